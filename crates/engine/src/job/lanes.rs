//! Which stretches of a merge run beside which.
//!
//! What goes deeper, to another device, has threads of its own, which mostly wait for that: in one thread,
//! one stretch after the other, each device would stand still while the other one works.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::error::Result;

/// Items that are worked at in their order, by so many threads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Lane {
    at: Vec<usize>,
    threads: usize,
}

/// Threads that one merge may use on a device: all but the one left for flushes.
pub(super) fn threads(background_threads: usize) -> usize {
    background_threads.saturating_sub(1).max(1)
}

/// The lanes of stretches of which each goes deeper or does not. With one thread in the background or
/// none all are worked at in order.
pub(super) fn lanes(
    deeper: impl IntoIterator<Item = bool>,
    background_threads: usize,
) -> Vec<Lane> {
    let mut lanes = [Vec::new(), Vec::new()];
    for (at, deeper) in deeper.into_iter().enumerate() {
        let is_apart = deeper && background_threads > 1;
        lanes[usize::from(is_apart)].push(at);
    }
    let lane = |at: Vec<usize>| Lane {
        threads: threads(background_threads).min(at.len()),
        at,
    };
    let lanes = lanes.into_iter().filter(|at| !at.is_empty());
    lanes.map(lane).collect()
}

/// Runs `job` on every item, all lanes at the same time, and gives the results in the
/// order of the items, or the first error. After that no further item is begun, and jobs that
/// run are told so, to end with any error.
pub(super) fn side_by_side<T: Sync, R: Send>(
    items: &[T],
    lanes: &[Lane],
    job: &(dyn Fn(&T, &AtomicBool) -> Result<R> + Sync),
) -> Result<Vec<R>> {
    let failed = AtomicBool::new(false);
    let error = Mutex::new(None);
    let results = Mutex::new(Vec::with_capacity(items.len()));
    let work = |lane: &Lane, next: &AtomicUsize| {
        while !failed.load(Ordering::Relaxed) {
            let Some(&at) = lane.at.get(next.fetch_add(1, Ordering::Relaxed)) else {
                break;
            };
            match job(&items[at], &failed) {
                Ok(result) => results.lock().push((at, result)),
                Err(first) if !failed.swap(true, Ordering::Relaxed) => *error.lock() = Some(first),
                Err(_) => (),
            }
        }
    };
    match lanes {
        [lane] if lane.threads <= 1 => work(lane, &AtomicUsize::new(0)),
        _ => {
            let begun: Vec<_> = lanes.iter().map(|_| AtomicUsize::new(0)).collect();
            std::thread::scope(|scope| {
                let mut running = Vec::new();
                for (lane, next) in lanes.iter().zip(&begun) {
                    running.extend((0..lane.threads).map(|_| scope.spawn(|| work(lane, next))));
                }
                for thread in running {
                    // With its own message, as if it had been in this thread.
                    thread.join().unwrap_or_else(|panic| resume_unwind(panic));
                }
            });
        }
    }
    match error.into_inner() {
        Some(error) => Err(error),
        None => {
            let mut results = results.into_inner();
            results.sort_by_key(|(at, _)| *at);
            Ok(results.into_iter().map(|(_, result)| result).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::error::Error;

    #[test]
    fn what_goes_deeper_has_threads_of_its_own_where_there_are_two() {
        let of = |deeper: &[u8], background_threads: usize| {
            let lanes = lanes(deeper.iter().map(|d| *d == 1), background_threads);
            let each = lanes.into_iter().map(|lane| (lane.at, lane.threads));
            each.collect::<Vec<_>>()
        };
        let mixed = [0, 1, 1, 0, 1];
        let in_order = vec![(vec![0, 1, 2, 3, 4], 1)];
        assert_eq!((of(&mixed, 0), of(&mixed, 1)), (in_order.clone(), in_order));
        let apart = |here, deeper| vec![(vec![0, 3], here), (vec![1, 2, 4], deeper)];
        assert_eq!(of(&mixed, 2), apart(1, 1));
        assert_eq!(of(&mixed, 4), apart(2, 3));
        assert_eq!(of(&[0, 0, 0], 3), [(vec![0, 1, 2], 2)]);
        assert_eq!(of(&[1, 1], 2), [(vec![0, 1], 1)]);
        assert_eq!(of(&[], 2), []);
    }

    #[test]
    fn lanes_run_at_the_same_time_and_results_are_in_order() {
        // The first of each lane waits for the first of the other.
        let (tell_left, left) = mpsc::channel();
        let (tell_right, right) = mpsc::channel();
        let (left, right) = (Mutex::new(left), Mutex::new(right));
        let long = Duration::from_secs(60);
        let job = |n: &usize, _: &AtomicBool| {
            let met = match n {
                10 => tell_right.send(()).is_ok() && left.lock().recv_timeout(long).is_ok(),
                11 => tell_left.send(()).is_ok() && right.lock().recv_timeout(long).is_ok(),
                _ => true,
            };
            assert!(met, "{n} was alone");
            Ok(n * 2)
        };
        let lanes = lanes([false, true, false, true], 2);
        let done = side_by_side(&[10, 11, 12, 13], &lanes, &job).unwrap();
        assert_eq!(done, [20, 22, 24, 26]);
    }

    #[test]
    fn the_first_error_ends_all_lanes() {
        let job = |n: &usize, failed: &AtomicBool| match n {
            0 => Err(Error::invalid("the first")),
            // Runs until it is told.
            1 => {
                while !failed.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                Err(Error::invalid("stopped"))
            }
            _ => panic!("{n} is begun after the error"),
        };
        let lanes = lanes([false, true, false, true], 2);
        let done: Result<Vec<()>> = side_by_side(&[0, 1, 2, 3], &lanes, &job);
        assert!(done.unwrap_err().to_string().contains("the first"));
    }
}
