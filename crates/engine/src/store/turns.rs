//! How long a thread runs at a stretch where others wait for the processor.

use std::mem::{size_of, zeroed};

use libc::{SCHED_OTHER, SYS_sched_getattr, SYS_sched_setattr, sched_attr, syscall};

/// The least that the kernel takes.
const TURN_NS: u64 = 100_000;

/// Turns of the calling thread become as short as the kernel lets them, if they were longer.
pub(super) fn shorten() {
    let Some(mut attributes) = get() else {
        return;
    };
    // Zero: a kernel that knows no slices. Another policy is what the user wants.
    if attributes.sched_policy == SCHED_OTHER as u32 && attributes.sched_runtime > TURN_NS {
        attributes.sched_runtime = TURN_NS;
        // SAFETY: the kernel reads a `sched_attr`, whose size is in it. If it refuses, all is as
        // before.
        unsafe { syscall(SYS_sched_setattr, 0, &raw const attributes, 0) };
    }
}

/// What the calling thread is scheduled by, if the kernel tells.
fn get() -> Option<sched_attr> {
    // SAFETY: of integers alone, for which all zeros are a value.
    let mut attributes: sched_attr = unsafe { zeroed() };
    let bytes = size_of::<sched_attr>();
    // SAFETY: the kernel writes no more than `bytes` to it.
    let got = unsafe { syscall(SYS_sched_getattr, 0, &raw mut attributes, bytes, 0) };
    (got == 0).then_some(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Environment;

    #[test]
    fn a_thread_that_takes_short_turns_has_them_where_the_kernel_knows_such() {
        let environment = Environment::real();
        let turn_ns = || get().map_or(0, |attributes| attributes.sched_runtime);
        let before_ns = turn_ns();
        let thread = std::thread::spawn(move || {
            environment.clock.take_short_turns();
            let once_ns = turn_ns();
            environment.clock.take_short_turns();
            (once_ns, turn_ns())
        });
        let after_ns = before_ns.min(TURN_NS);
        assert_eq!(thread.join().unwrap(), (after_ns, after_ns));
        assert_eq!(turn_ns(), before_ns, "nobody else's");
    }
}
