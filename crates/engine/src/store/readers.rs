//! Threads that read ahead of need, where the operating system does not.
//!
//! Reads through the page cache overlap by advice: the kernel fetches what it
//! is told will be needed. Reads past it do only what they are asked, one after
//! the other. So a store with such a tier owns a few threads. Who knows what it
//! will need asks for it early ([`Readers::request`]) and takes it when it is
//! needed ([`PendingRead::wait`]).
//!
//! Nothing depends on a thread being free: a read that none has begun is done by
//! the one who waits for it. So a pool of any size, or one that could not start
//! its threads, gives the same bytes and the same errors, only later.
//!
//! Invariants: no more than [`WAITING_MAX`] reads wait and no more than
//! [`IN_FLIGHT_BYTES_MAX`] bytes are asked for and not yet taken; beyond either
//! a request is refused, and the caller reads when it needs to. A read that is
//! let go before it began lets go of its object at once; one under way, when it
//! ends. No lock is held over a read.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use super::{Buffer, ObjectReader};
use crate::error::{Error, ErrorKind, Result};

/// Reads that may wait for a thread.
pub const WAITING_MAX: usize = 256;

/// Bytes that may be asked for and not yet taken, over all of a store.
pub const IN_FLIGHT_BYTES_MAX: usize = 64 << 20;

/// The threads, and what they are to do. The threads are started one by one,
/// when there is work that no idle one would take.
#[derive(Debug)]
pub struct Readers {
    threads_max: usize,
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Arc<Task>>,
    in_flight_bytes: usize,
    idle: usize,
    started: usize,
    closed: bool,
}

#[derive(Debug)]
struct Task {
    offset: u64,
    length: usize,
    state: Mutex<State>,
    done: Condvar,
    shared: Arc<Shared>,
}

#[derive(Debug)]
enum State {
    /// Nobody has begun it.
    Waiting(Arc<dyn ObjectReader>, Buffer),
    Running,
    Done(Result<Buffer>),
    /// Taken, or let go.
    Gone,
}

/// A read that was asked for. Dropped, it is let go.
#[derive(Debug)]
pub struct PendingRead(Arc<Task>);

impl Readers {
    /// At most `threads_max` threads, none of them started yet.
    #[must_use]
    pub fn new(threads_max: usize) -> Readers {
        Readers {
            threads_max,
            shared: Arc::default(),
            threads: Mutex::default(),
        }
    }

    /// Asks for `length` bytes of the object from `offset`. They come in
    /// `buffer`, whose content is of no meaning. None when too much is asked for
    /// already, or the store is closing.
    #[must_use]
    pub fn request(
        &self,
        reader: &Arc<dyn ObjectReader>,
        offset: u64,
        length: usize,
        mut buffer: Buffer,
    ) -> Option<PendingRead> {
        let mut queue = self.shared.queue.lock();
        let full = queue.waiting.len() >= WAITING_MAX
            || queue.in_flight_bytes + length > IN_FLIGHT_BYTES_MAX;
        if full || queue.closed || self.threads_max == 0 {
            return None;
        }
        queue.in_flight_bytes += length;
        drop(queue);
        // Outside the lock: this may be a mebibyte of zeros.
        buffer.resize(length);
        let task = Arc::new(Task {
            offset,
            length,
            state: Mutex::new(State::Waiting(Arc::clone(reader), buffer)),
            done: Condvar::new(),
            shared: Arc::clone(&self.shared),
        });
        let pending = PendingRead(Arc::clone(&task));
        let mut queue = self.shared.queue.lock();
        queue.waiting.push_back(task);
        let start = queue.waiting.len() > queue.idle && queue.started < self.threads_max;
        if start {
            queue.started += 1;
        }
        let number = queue.started;
        drop(queue);
        if start {
            self.start(number);
        }
        self.shared.work.notify_one();
        Some(pending)
    }

    fn start(&self, number: usize) {
        let shared = Arc::clone(&self.shared);
        let builder = std::thread::Builder::new().name(format!("thermocline-read-{number}"));
        match builder.spawn(move || shared.work_until_closed()) {
            Ok(thread) => self.threads.lock().push(thread),
            // Who waits does the work; a later request tries again.
            Err(_) => self.shared.queue.lock().started -= 1,
        }
    }

    /// Ends the threads, after what they are reading. What is asked for from
    /// here on is refused; what waits is done by those who wait for it.
    pub fn close(&self) {
        let mut queue = self.shared.queue.lock();
        queue.closed = true;
        // Tasks take the lock when they go.
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(waiting);
        self.shared.work.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // A thread that panicked has nothing more to tell.
            let _ = thread.join();
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn work_until_closed(&self) {
        let mut queue = self.queue.lock();
        while !queue.closed {
            match queue.waiting.pop_front() {
                Some(task) => {
                    drop(queue);
                    task.run();
                    drop(task);
                    queue = self.queue.lock();
                }
                None => {
                    queue.idle += 1;
                    self.work.wait(&mut queue);
                    queue.idle -= 1;
                }
            }
        }
    }
}

impl Task {
    /// Reads, unless somebody else does or nobody wants it any more.
    fn run(&self) {
        let mut state = self.state.lock();
        if !matches!(*state, State::Waiting(..)) {
            return;
        }
        let State::Waiting(reader, buffer) = std::mem::replace(&mut *state, State::Running) else {
            return;
        };
        drop(state);
        // Somebody may wait for the answer, and the thread is still wanted.
        let result = catch_unwind(AssertUnwindSafe(|| self.read(reader, buffer)));
        let result = result.unwrap_or_else(|_| {
            let what = "the thread that read ahead panicked";
            Err(Error::new(ErrorKind::Io, what))
        });
        let mut state = self.state.lock();
        if matches!(*state, State::Running) {
            *state = State::Done(result);
        }
        drop(state);
        self.done.notify_all();
    }

    /// Lets go of the object before anybody can hear of the result.
    fn read(&self, reader: Arc<dyn ObjectReader>, mut buffer: Buffer) -> Result<Buffer> {
        reader.read_at(self.offset, &mut buffer).map(|()| buffer)
    }

    /// No thread needs to look at it any more.
    fn leave_queue(self: &Arc<Self>) {
        let mut queue = self.shared.queue.lock();
        queue.waiting.retain(|task| !Arc::ptr_eq(task, self));
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.shared.queue.lock().in_flight_bytes -= self.length;
    }
}

impl PendingRead {
    /// The bytes; reads them here if nobody has begun to.
    ///
    /// # Errors
    /// Those of [`ObjectReader::read_at`].
    pub fn wait(self) -> Result<Buffer> {
        let mut state = self.0.state.lock();
        loop {
            match std::mem::replace(&mut *state, State::Gone) {
                State::Waiting(reader, buffer) => {
                    drop(state);
                    self.0.leave_queue();
                    return self.0.read(reader, buffer);
                }
                State::Running => {
                    *state = State::Running;
                    self.0.done.wait(&mut state);
                }
                State::Done(result) => return result,
                // Only this handle takes, and it is used up by that.
                State::Gone => return Err(crate::Error::invalid("a read was taken twice")),
            }
        }
    }
}

impl Drop for PendingRead {
    fn drop(&mut self) {
        let left = std::mem::replace(&mut *self.0.state.lock(), State::Gone);
        if matches!(left, State::Waiting(..)) {
            self.0.leave_queue();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Advice;
    use super::*;

    /// Gives its offset in every byte, once the gate is open.
    #[derive(Debug, Default)]
    struct Gated {
        open: Mutex<bool>,
        opened: Condvar,
    }

    impl ObjectReader for Gated {
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
            let mut open = self.open.lock();
            while !*open {
                self.opened.wait(&mut open);
            }
            assert_ne!(offset, 66, "a reader that panics");
            if offset == 13 {
                return Err(Error::corruption("an unlucky place"));
            }
            buffer.fill(offset as u8);
            Ok(())
        }
        fn size_bytes(&self) -> u64 {
            1 << 40
        }
        fn advise(&self, _: u64, _: u64, _: Advice) {}
        fn path(&self) -> &Path {
            Path::new("gated")
        }
    }

    impl Gated {
        fn open(&self) {
            *self.open.lock() = true;
            self.opened.notify_all();
        }
    }

    /// One thread, held up at a gate; with the read it is held up in.
    fn held_up() -> (Readers, Arc<Gated>, PendingRead) {
        let readers = Readers::new(1);
        let gate = Arc::new(Gated::default());
        let object: Arc<dyn ObjectReader> = gate.clone();
        let first = readers.request(&object, 1, 10, Buffer::default()).unwrap();
        while !matches!(*first.0.state.lock(), State::Running) {
            std::thread::yield_now();
        }
        (readers, gate, first)
    }

    fn free() -> (Arc<Gated>, Arc<dyn ObjectReader>) {
        let object = Arc::new(Gated::default());
        object.open();
        (object.clone(), object)
    }

    #[test]
    fn a_read_that_no_thread_has_begun_is_done_by_who_waits() {
        let (readers, gate, first) = held_up();
        let (_, object) = free();
        let second = readers.request(&object, 7, 3, vec![9; 100].into()).unwrap();
        assert_eq!(*second.wait().unwrap(), [7; 3]);
        let third = readers.request(&object, 13, 3, Buffer::default()).unwrap();
        assert_eq!(third.wait().unwrap_err().kind(), ErrorKind::Corruption);
        gate.open();
        assert_eq!(*first.wait().unwrap(), [1; 10]);
        let fourth = readers.request(&object, 13, 3, Buffer::default()).unwrap();
        assert_eq!(fourth.wait().unwrap_err().kind(), ErrorKind::Corruption);
    }

    #[test]
    fn a_read_let_go_before_it_began_lets_go_of_its_object_at_once() {
        let (readers, gate, first) = held_up();
        let (held, object) = free();
        let waiting: Vec<_> = (0..5)
            .map(|n| readers.request(&object, n, 10, Buffer::default()).unwrap())
            .collect();
        assert_eq!(Arc::strong_count(&held), 2 + 5);
        drop(waiting);
        assert_eq!(Arc::strong_count(&held), 2);
        let queue = readers.shared.queue.lock();
        assert_eq!((queue.waiting.len(), queue.in_flight_bytes), (0, 10));
        drop(queue);
        // One under way lets go when it ends.
        drop(first);
        gate.open();
        readers.close();
        assert_eq!(Arc::strong_count(&gate), 1);
        assert_eq!(readers.shared.queue.lock().in_flight_bytes, 0);
    }

    /// The thread was gone, and who waited for its answer waited for ever.
    #[test]
    fn a_read_that_panics_is_an_error_and_the_thread_goes_on() {
        let readers = Readers::new(1);
        let (_, object) = free();
        for _ in 0..3 {
            let read = readers.request(&object, 66, 1, Buffer::default()).unwrap();
            while matches!(*read.0.state.lock(), State::Waiting(..)) {
                std::thread::yield_now();
            }
            assert_eq!(read.wait().unwrap_err().kind(), ErrorKind::Io);
        }
    }

    #[test]
    fn requests_beyond_the_bounds_and_after_closing_are_refused() {
        let (readers, gate, first) = held_up();
        let (_, object) = free();
        let bytes = IN_FLIGHT_BYTES_MAX - 10;
        let large = readers.request(&object, 0, bytes, Buffer::default());
        assert!(large.is_some());
        assert!(readers.request(&object, 0, 1, Buffer::default()).is_none());
        drop(large);
        let mut waiting = Vec::new();
        while let Some(read) = readers.request(&object, 5, 1, Buffer::default()) {
            waiting.push(read);
        }
        assert_eq!(waiting.len(), WAITING_MAX);
        gate.open();
        readers.close();
        assert!(readers.request(&object, 0, 1, Buffer::default()).is_none());
        // What waited or was read is still to be had.
        assert_eq!(*first.wait().unwrap(), [1; 10]);
        for read in waiting {
            assert_eq!(*read.wait().unwrap(), [5]);
        }
        assert_eq!(readers.shared.queue.lock().in_flight_bytes, 0);
    }
}
