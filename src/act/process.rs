//! What a process knows of itself and of its neighbours on the machine.

use std::fs;

/// Peak resident memory of this process so far, in bytes; `None` where the
/// system does not tell.
pub fn peak_memory() -> Option<u64> {
    peak_of(&fs::read_to_string("/proc/self/status").ok()?)
}

fn peak_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The machine's name; empty where the system does not tell.
pub fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| fs::read_to_string("/etc/hostname"));
    name.map(|n| n.trim().to_string()).unwrap_or_default()
}

/// This process' id.
pub fn pid() -> u32 {
    std::process::id()
}

/// Whether a process of this machine lives. A process of another user counts;
/// one that has ended and that its parent has not asked for yet does not.
pub fn is_alive(pid: u32) -> bool {
    let Some(number) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else {
        return false;
    };
    let is_there = !matches!(rustix::process::test_kill_process(number), Err(rustix::io::Errno::SRCH));
    is_there && !fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| has_ended(&stat))
}

/// The state follows the name, which stands in parentheses and may hold any.
fn has_ended(stat: &str) -> bool {
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_memory_is_read_in_bytes() {
        assert_eq!(peak_of("Name:\tx\nVmHWM:\t   2048 kB\nVmRSS:\t 1 kB\n"), Some(2_097_152));
        assert_eq!(peak_of("Name:\tx\n"), None);
    }

    #[test]
    fn this_process_lives_and_an_impossible_one_does_not() {
        assert!(is_alive(pid()));
        assert!(!is_alive(u32::MAX));
        assert!(!is_alive(0));
        assert!(!is_alive(i32::MAX as u32));
    }

    #[test]
    fn a_process_that_has_ended_does_not_live_though_its_number_is_taken() {
        assert_eq!(["7 (a) Z 1", "7 (a) b) Z) R 1", "7 (Z) S 1", ""].map(has_ended), [true, false, false, false]);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while is_alive(child.id()) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }
}
