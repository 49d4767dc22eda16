//! Work on columns, spread over the cores, and work beside other tasks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LazyLock, Mutex, PoisonError};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Cores at hand when this was asked first: the system looks through files for it.
pub fn cores() -> usize {
    static CORES: LazyLock<usize> = LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
    *CORES
}

/// A core for work that takes one, when its turn comes: jobs side by side would
/// otherwise hold the memory of more columns than can be worked on. Held until the
/// work is done; such work never waits for another core. A runtime of one thread does
/// such work one piece at a time by itself: see [`aside`].
pub async fn core() -> Option<SemaphorePermit<'static>> {
    static FREE: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(cores()));
    if is_alone() { None } else { FREE.acquire().await.ok() }
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

/// Does work that takes its time where it does not hold up other tasks. In a
/// runtime of one thread, as a simulation has, it is done in place: there the
/// order of all things is the order of the tasks.
///
/// Errs with what became of it when it did not end: it panicked, or the runtime
/// is going down.
pub async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    if is_alone() {
        return catch_unwind(AssertUnwindSafe(work)).map_err(|_| "the work panicked".into());
    }
    tokio::task::spawn_blocking(work).await.map_err(|stopped| stopped.to_string())
}

/// Whether all tasks share one thread.
fn is_alone() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread
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

    #[tokio::test]
    async fn on_one_thread_work_is_done_in_place_and_a_panic_is_told() {
        let here = std::thread::current().id();
        assert_eq!(aside(|| std::thread::current().id()).await, Ok(here));
        assert_eq!(
            aside(|| if true {
                std::panic::resume_unwind(Box::new(1))
            })
            .await,
            Err("the work panicked".into())
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn elsewhere_work_is_done_beside_the_tasks() {
        let here = std::thread::current().id();
        assert_ne!(aside(|| std::thread::current().id()).await, Ok(here));
        assert!(
            aside(|| if true {
                std::panic::resume_unwind(Box::new(1))
            })
            .await
            .is_err()
        );
    }
}
