//! Which stretches of a merge run beside which.
//!
//! What goes deeper, to another device, has threads of its own, which mostly wait for that: in one
//! thread, one stretch after the other, each device would stand still while the other one works.
//!
//! Each lane of a merge has one thread, and takes more of those that all merges of the store share
//! ([`SpareThreads`]), as many as are free when it begins: a merge that is alone has all of them,
//! and what runs at a time grows with the threads of the background and not with their square.
//! Where a merge is cut does not hang on that, so neither do the tables it makes.

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

/// The most stretches that run at a time on a device, of all merges that the background runs.
pub(crate) fn stretches_max(background_threads: usize) -> usize {
    match background_threads {
        0 | 1 => 1,
        // One thread for each merge, and those that they share.
        more => (more - 1).saturating_add(spare(more)),
    }
}

/// Threads that merges share on a device.
fn spare(background_threads: usize) -> usize {
    threads(background_threads) - 1
}

/// Threads that all merges of a store share, beside the one that each lane of each has anyway.
#[derive(Debug)]
pub(crate) struct SpareThreads(Mutex<Spare>);

#[derive(Debug)]
struct Spare {
    /// By lane: what goes to a level as others do, and what goes deeper.
    free: [usize; 2],
    /// Threads at work beside the one that each merge runs in.
    beside: usize,
}

impl SpareThreads {
    pub(crate) fn new(background_threads: usize) -> SpareThreads {
        SpareThreads(Mutex::new(Spare {
            free: [spare(background_threads); 2],
            beside: 0,
        }))
    }

    /// Threads at work on stretches, beside the one that each merge runs in.
    pub(crate) fn beside(&self) -> usize {
        self.0.lock().beside
    }
}

/// The lanes of a merge, with the threads that they have until they are dropped.
pub(super) struct Lanes<'a> {
    lanes: Vec<Lane>,
    taken: [usize; 2],
    spare: &'a SpareThreads,
}

impl Lanes<'_> {
    /// Threads beside the one that the merge runs in.
    fn beside(&self) -> usize {
        let threads: usize = self.lanes.iter().map(|lane| lane.threads).sum();
        threads.saturating_sub(1)
    }
}

impl Drop for Lanes<'_> {
    fn drop(&mut self) {
        let mut spare = self.spare.0.lock();
        for (free, taken) in spare.free.iter_mut().zip(self.taken) {
            *free += taken;
        }
        spare.beside -= self.beside();
    }
}

/// The lanes of stretches of which each goes deeper or does not. With one thread in the background
/// or none all are worked at in order.
pub(super) fn lanes(
    deeper: impl IntoIterator<Item = bool>,
    background_threads: usize,
    spare: &SpareThreads,
) -> Lanes<'_> {
    let mut items = [Vec::new(), Vec::new()];
    for (at, deeper) in deeper.into_iter().enumerate() {
        let is_apart = deeper && background_threads > 1;
        items[usize::from(is_apart)].push(at);
    }
    let mut lanes = Lanes {
        lanes: Vec::new(),
        taken: [0; 2],
        spare,
    };
    let mut shared = spare.0.lock();
    let mine = shared.free.iter_mut().zip(&mut lanes.taken);
    for (at, (free, taken)) in items.into_iter().zip(mine) {
        if at.is_empty() {
            continue;
        }
        *taken = (at.len() - 1).min(*free);
        *free -= *taken;
        let threads = 1 + *taken;
        lanes.lanes.push(Lane { at, threads });
    }
    shared.beside += lanes.beside();
    drop(shared);
    lanes
}

/// Runs `job` on every item, all lanes at the same time, and gives the results in the
/// order of the items, or the first error. After that no further item is begun, and jobs that
/// run are told so, to end with any error.
pub(super) fn side_by_side<T: Sync, R: Send>(
    items: &[T],
    lanes: &Lanes<'_>,
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
    let lanes = &lanes.lanes;
    match &lanes[..] {
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

    /// Threads of each lane.
    fn threads_of(lanes: &Lanes<'_>) -> Vec<usize> {
        lanes.lanes.iter().map(|lane| lane.threads).collect()
    }

    #[test]
    fn what_goes_deeper_has_threads_of_its_own_where_there_are_two() {
        let of = |deeper: &[u8], background_threads: usize| {
            let spare = SpareThreads::new(background_threads);
            let lanes = lanes(deeper.iter().map(|d| *d == 1), background_threads, &spare);
            let each = lanes.lanes.iter();
            let each = each.map(|lane| (lane.at.clone(), lane.threads));
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
    fn a_merge_that_is_alone_has_all_threads_and_others_have_what_it_leaves_and_one() {
        let spare = SpareThreads::new(8);
        let here = |stretches: usize| lanes(vec![false; stretches], 8, &spare);
        let first = here(20);
        assert_eq!((threads_of(&first), spare.beside()), (vec![7], 6));
        assert_eq!(threads_of(&here(20)), [1]);
        drop(first);
        // Small ones leave what they have no stretches for.
        let (small, smaller) = (here(3), here(1));
        assert_eq!(
            (threads_of(&small), threads_of(&smaller)),
            (vec![3], vec![1])
        );
        assert_eq!(spare.beside(), 2);
        assert_eq!(threads_of(&here(20)), [5]);
        // What goes deeper has as many again.
        let deeper = [[true; 20], [false; 20]].concat();
        assert_eq!(threads_of(&lanes(deeper, 8, &spare)), [5, 7]);
        drop((small, smaller));
        assert_eq!(spare.beside(), 0);
        assert_eq!(threads_of(&here(20)), [7]);
    }

    /// Merges of as many threads as there are, each with more stretches than those, all the time:
    /// without the budget these would be the square.
    #[test]
    fn stretches_that_run_at_a_time_never_exceed_the_budget() {
        for threads in [2usize, 3, 8] {
            let (spare, running) = (SpareThreads::new(threads), AtomicUsize::new(0));
            let most = AtomicUsize::new(0);
            let job = |_: &usize, _: &AtomicBool| {
                let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                for _ in 0..20 {
                    std::thread::yield_now();
                }
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            };
            std::thread::scope(|scope| {
                for merge in 1..threads {
                    let (job, spare) = (&job, &spare);
                    scope.spawn(move || {
                        for round in 0..30 {
                            let stretches = vec![0; 1 + (7 * merge + round) % 20];
                            let deeper = stretches.iter().map(|_| false);
                            let lanes = lanes(deeper, threads, spare);
                            side_by_side(&stretches, &lanes, job).unwrap();
                        }
                    });
                }
            });
            let most = most.into_inner();
            assert!(most <= stretches_max(threads), "{most} with {threads}");
            assert_eq!((spare.beside(), spare.0.lock().free), (0, [threads - 2; 2]));
            // All at once, and the bound is met.
            let open: Vec<_> = (1..threads)
                .map(|_| lanes([false; 64], threads, &spare))
                .collect();
            let all: usize = open.iter().flat_map(threads_of).sum();
            assert_eq!(all, stretches_max(threads));
        }
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
        let spare = SpareThreads::new(2);
        let lanes = lanes([false, true, false, true], 2, &spare);
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
        let spare = SpareThreads::new(2);
        let lanes = lanes([false, true, false, true], 2, &spare);
        let done: Result<Vec<()>> = side_by_side(&[0, 1, 2, 3], &lanes, &job);
        assert!(done.unwrap_err().to_string().contains("the first"));
    }
}
