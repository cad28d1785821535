//! The stand-ins of a model: each call is a place where threads may change.
//!
//! Atomics and `ArcSwap` are the real ones with such a place before each call,
//! laid out as the real ones are, so that they may lie in raw memory. Locks and
//! condition variables are the model's own, so that it knows who waits, and
//! says so when all do. Orders of memory are as strong as the machine's that
//! runs the model: it shows wrong orders of steps, not weak orderings.
//!
//! A bounded wait gives up at once: it might have.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use arc_swap::Guard;
use shuttle::sync as waits;

/// Lets the scheduler choose who goes on. Outside of a model: nothing.
#[inline]
fn point() {
    if shuttle::current::try_get_current_task().is_some() {
        // Reading an atomic of its own is the plainest such place there is. A
        // yield would do more: it asks for somebody else.
        waits::atomic::AtomicBool::new(false).load(atomic::Ordering::SeqCst);
    }
}

/// Somebody else should go on: this thread waits for what others do.
pub(crate) fn yield_now() {
    shuttle::thread::yield_now();
}

/// As [`yield_now`].
pub(crate) fn spin_loop() {
    shuttle::thread::yield_now();
}

/// As `std::sync::atomic`.
#[allow(dead_code, reason = "every number has what some number needs")]
pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::Ordering;

    use super::point;

    /// An atomic of the standard library with a place to switch at before each
    /// of the calls listed.
    macro_rules! atomic {
        ($name:ident$(<$of:ident>)?, $value:ty, $($call:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
            /// As the standard library's.
            #[derive(Default, Debug)]
            #[repr(transparent)]
            pub(crate) struct $name$(<$of>)?(std::sync::atomic::$name$(<$of>)?);

            impl$(<$of>)? $name$(<$of>)? {
                pub(crate) const fn new(value: $value) -> Self {
                    Self(std::sync::atomic::$name::new(value))
                }

                pub(crate) fn get_mut(&mut self) -> &mut $value {
                    self.0.get_mut()
                }

                $(
                    #[inline]
                    pub(crate) fn $call(&self, $($argument: $kind),*) -> $result {
                        point();
                        self.0.$call($($argument),*)
                    }
                )*
            }
        };
    }

    /// What the engine does with numbers.
    macro_rules! number {
        ($name:ident, $value:ty) => {
            atomic! {
                $name, $value,
                load(order: Ordering) -> $value;
                store(value: $value, order: Ordering) -> ();
                fetch_add(value: $value, order: Ordering) -> $value;
                fetch_sub(value: $value, order: Ordering) -> $value;
                fetch_or(value: $value, order: Ordering) -> $value;
                fetch_min(value: $value, order: Ordering) -> $value;
                fetch_max(value: $value, order: Ordering) -> $value;
                compare_exchange(current: $value, new: $value, success: Ordering, failure: Ordering)
                    -> Result<$value, $value>;
            }
        };
    }

    number!(AtomicU8, u8);
    number!(AtomicU64, u64);
    number!(AtomicUsize, usize);

    atomic! {
        AtomicBool, bool,
        load(order: Ordering) -> bool;
        store(value: bool, order: Ordering) -> ();
        swap(value: bool, order: Ordering) -> bool;
    }

    atomic! {
        AtomicPtr<T>, *mut T,
        load(order: Ordering) -> *mut T;
        store(value: *mut T, order: Ordering) -> ();
    }
}

/// As `arc_swap`'s.
#[derive(Debug)]
pub(crate) struct ArcSwap<T>(arc_swap::ArcSwap<T>);

impl<T> ArcSwap<T> {
    pub(crate) fn from_pointee(value: T) -> ArcSwap<T> {
        ArcSwap(arc_swap::ArcSwap::from_pointee(value))
    }

    pub(crate) fn load(&self) -> Guard<Arc<T>> {
        point();
        self.0.load()
    }

    pub(crate) fn load_full(&self) -> Arc<T> {
        point();
        self.0.load_full()
    }

    pub(crate) fn store(&self, value: Arc<T>) {
        point();
        self.0.store(value);
    }
}

/// Why a guard can be used.
const HELD: &str = "a guard is without its lock only while it waits";

/// As `parking_lot`'s.
#[derive(Default)]
pub(crate) struct Mutex<T>(waits::Mutex<T>);

/// As `parking_lot`'s.
pub(crate) struct MutexGuard<'a, T> {
    mutex: &'a waits::Mutex<T>,
    /// None only while it waits on a condition variable.
    locked: Option<waits::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Mutex<T> {
        Mutex(waits::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard {
            mutex: &self.0,
            locked: Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn try_lock_for(&self, _: Duration) -> Option<MutexGuard<'_, T>> {
        let locked = Some(self.0.try_lock().ok()?);
        Some(MutexGuard {
            mutex: &self.0,
            locked,
        })
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.locked.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.locked.as_mut().expect(HELD)
    }
}

/// As `parking_lot`'s.
#[derive(Debug)]
pub(crate) struct Condvar(waits::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Condvar {
        Condvar(waits::Condvar::new())
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let locked = self.0.wait(guard.locked.take().expect(HELD));
        guard.locked = Some(locked.unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) {
        guard.locked = None;
        yield_now();
        let locked = guard.mutex.lock();
        guard.locked = Some(locked.unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}
