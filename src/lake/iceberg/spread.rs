//! Work on columns, spread over the cores.

use std::sync::{LazyLock, Mutex, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

/// Cores at hand when this was asked first: the system looks through files for it.
pub fn cores() -> usize {
    static CORES: LazyLock<usize> = LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
    *CORES
}

/// A core for work that takes one, when its turn comes: jobs side by side would
/// otherwise hold the memory of more columns than can be worked on. Held until the
/// work is done; such work never waits for another core.
pub async fn core() -> Option<SemaphorePermit<'static>> {
    static FREE: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(cores()));
    FREE.acquire().await.ok()
}

/// Does the work on every item, on as many threads as there are cores, this one
/// among them. Items are taken in order; after a failure no further ones are.
///
/// Errs with the first failure. Panics when `work` does.
pub fn spread<T: Send, E: Send>(items: Vec<T>, work: impl Fn(T) -> Result<(), E> + Sync) -> Result<(), E> {
    let helpers = cores().min(items.len()).saturating_sub(1);
    let left = Mutex::new((items.into_iter(), Ok(())));
    let take = || {
        let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
        if left.1.is_err() { None } else { left.0.next() }
    };
    let run = || {
        while let Some(item) = take() {
            if let Err(error) = work(item) {
                let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
                left.1 = std::mem::replace(&mut left.1, Ok(())).and(Err(error));
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..helpers {
            scope.spawn(run);
        }
        run();
    });
    left.into_inner().unwrap_or_else(PoisonError::into_inner).1
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn every_item_is_worked_on_once() {
        let sum = AtomicU64::new(0);
        let mut slots = vec![0u64; 1000];
        let done: Result<(), ()> = spread(slots.iter_mut().zip(0..).collect(), |(slot, number): (&mut u64, u64)| {
            *slot += number;
            sum.fetch_add(number, Ordering::Relaxed);
            Ok(())
        });
        assert_eq!((done, sum.into_inner()), (Ok(()), 499_500));
        assert_eq!(slots, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn a_failure_is_told_and_ends_the_work() {
        let begun = AtomicU64::new(0);
        let done = spread((0..100_000).collect(), |number: u64| {
            begun.fetch_add(1, Ordering::Relaxed);
            if number == 3 { Err("three") } else { Ok(()) }
        });
        assert_eq!(done, Err("three"));
        assert_eq!(spread(vec![1, 2], |n: u64| if n == 1 { Err(n) } else { Ok(()) }), Err(1));
    }
}
