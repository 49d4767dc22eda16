//! This process' memory and time, as the kernel counts them.

/// Resident bytes now.
pub fn resident() -> anyhow::Result<u64> {
    of_status("VmRSS:")
}

/// The most resident bytes so far.
pub fn peak() -> anyhow::Result<u64> {
    of_status("VmHWM:")
}

/// Seconds that the calling thread has had a core.
pub fn on_core() -> anyhow::Result<f64> {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: Option<u64> = told.split_whitespace().next().and_then(|first| first.parse().ok());
    nanoseconds.map(|ns| ns as f64 / 1e9).ok_or_else(|| anyhow::anyhow!("/proc/thread-self/schedstat tells nothing"))
}

fn of_status(key: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let kib: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| anyhow::anyhow!("/proc/self/status has no {key}"))
}
