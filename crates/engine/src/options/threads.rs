//! How many threads the background has where no number was given: by the processors of the machine,
//! and by the memory that their jobs may need.

use std::sync::OnceLock;

use super::Options;

/// Least and most threads that are not asked for: one flushes while another merges; and with many,
/// merges write more than most devices take.
const THREADS_MIN: usize = 2;
const THREADS_MAX: usize = 8;

/// Of the memory that buffers, caches and metadata were given, the share that jobs of such threads
/// may take.
const JOBS_SHARE: u64 = 2;

/// Processors that this process may use, as they were when it was first asked: options mean the
/// same as long as it runs.
fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

impl Options {
    /// Threads of the background.
    pub(crate) fn threads(&self) -> usize {
        let auto = || self.threads_on(processors());
        self.background_threads.unwrap_or_else(auto)
    }

    /// The most that there are on any machine: what is refused on one is refused on all.
    pub(super) fn threads_anywhere(&self) -> usize {
        let most = || self.threads_on(THREADS_MAX);
        self.background_threads.unwrap_or_else(most)
    }

    /// Whether there are any.
    pub(crate) fn has_threads(&self) -> bool {
        self.background_threads != Some(0)
    }

    /// As many as a machine has processors, but so few that their jobs need no more memory than
    /// half of what all else was given.
    fn threads_on(&self, processors: usize) -> usize {
        let caches = self
            .block_cache_bytes
            .saturating_add(self.pinned_meta_bytes);
        let given = caches.saturating_add(self.write_buffer_bytes);
        let fits = |threads: &usize| self.jobs_bytes_max(*threads) <= given / JOBS_SHARE;
        let most = processors.clamp(THREADS_MIN, THREADS_MAX);
        let fitting = (THREADS_MIN..=most).rev().find(fits);
        fitting.unwrap_or(THREADS_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn on(options: &Options) -> [usize; 7] {
        [1, 2, 3, 4, 8, 9, 1000].map(|processors| options.threads_on(processors))
    }

    #[test]
    fn threads_follow_the_processors_as_far_as_the_memory_is_good_for_their_jobs() {
        let options = Options::at("/x");
        let large = options.clone().block_cache_bytes(16 << 30);
        assert_eq!(on(&large), [2, 2, 3, 4, 8, 8, 8]);
        let small = options.clone().write_buffer_bytes(8 * MIB);
        let small = small.block_cache_bytes(16 * MIB).pinned_meta_bytes(8 * MIB);
        assert_eq!(on(&small), [2; 7]);
        // With what is given by default, their number ends where the memory does.
        let usual = on(&options);
        assert!(usual.is_sorted() && usual[6] >= 4, "{usual:?}");
        for options in [&options, &large, &small] {
            for processors in 1..=64 {
                let threads = options.threads_on(processors);
                let fixed = options.clone().background_threads(threads);
                let max = fixed.memory_max(1);
                let given = max.total() - max.jobs - max.other - max.lookup_index;
                // And the filter of a large flush.
                let filter = (options.write_buffer_bytes + options.lendable_bytes()) / 32;
                let fits = max.jobs <= given / 2 + filter;
                assert!(threads == THREADS_MIN || fits, "{threads} threads");
            }
        }
    }

    #[test]
    fn a_number_that_is_given_is_taken_and_no_other_is_written() {
        let options = Options::at("/x");
        assert!(!options.to_toml().contains("background_threads"));
        assert!((THREADS_MIN..=THREADS_MAX).contains(&options.threads()));
        assert!(options.has_threads() && !options.clone().background_threads(0).has_threads());
        for threads in [0, 1, 2, 64] {
            let given = options.clone().background_threads(threads);
            assert_eq!(given.threads(), threads);
            let kept = format!("background_threads = {threads}\n");
            assert!(given.to_toml().contains(&kept));
            assert_eq!(Options::from_toml(&given.to_toml()).unwrap(), given);
        }
    }
}
