//! The handing out of accesses to the workers, window by window.

use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::{Duration, Instant};

use super::survey::Access;
use super::worker::{Measured, Order};

/// Accesses handed to a worker at once.
const ACCESSES_PER_ORDER: usize = 256;

/// Orders that may wait for a worker: what bounds how far the threads drift
/// apart.
const ORDERS_WAITING_MAX: usize = 8;

/// What one line of the table spans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Window {
    Accesses(u64),
    Time(Duration),
}

impl Window {
    /// Reads `100000` or `10s`.
    pub(crate) fn parse(text: &str) -> Result<Window, String> {
        let wrong = || format!("{text:?} is no window; write 100000 or 10s");
        let window = match text.strip_suffix('s') {
            Some(seconds) => {
                let seconds: f64 = seconds.trim().parse().map_err(|_| wrong())?;
                Window::Time(Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?)
            }
            None => Window::Accesses(text.parse().map_err(|_| wrong())?),
        };
        match window {
            Window::Accesses(0) | Window::Time(Duration::ZERO) => Err(wrong()),
            window => Ok(window),
        }
    }

    /// Whether a window that began at `began` ends behind `accesses` accesses.
    pub(crate) fn is_over(self, accesses: u64, began: Instant) -> bool {
        match self {
            Window::Accesses(most) => accesses >= most,
            // A look at the clock at every access would show in the numbers.
            Window::Time(most) => accesses.is_multiple_of(256) && began.elapsed() >= most,
        }
    }
}

/// The way to the workers.
pub(crate) struct Dispatch {
    senders: Vec<SyncSender<Order>>,
    batches: Vec<Vec<Access>>,
}

impl Dispatch {
    /// The way to no worker yet.
    pub(crate) fn new() -> Dispatch {
        Dispatch {
            senders: Vec::new(),
            batches: Vec::new(),
        }
    }

    /// Adds a worker: what it will receive.
    pub(crate) fn add(&mut self) -> Receiver<Order> {
        let (sender, orders) = mpsc::sync_channel(ORDERS_WAITING_MAX);
        self.senders.push(sender);
        self.batches.push(Vec::new());
        orders
    }

    /// Hands `access` to the worker of its key; `false` if that one is gone.
    pub(crate) fn give(&mut self, access: Access) -> bool {
        let worker = access.key as usize % self.senders.len();
        let batch = &mut self.batches[worker];
        batch.push(access);
        if batch.len() < ACCESSES_PER_ORDER {
            return true;
        }
        let full = std::mem::replace(batch, Vec::with_capacity(ACCESSES_PER_ORDER));
        self.senders[worker].send(Order::Accesses(full)).is_ok()
    }

    /// Waits until everything handed out is done and collects what was
    /// measured; `None` if a worker is gone.
    pub(crate) fn report(&mut self) -> Option<Measured> {
        let (reply, replies) = mpsc::channel();
        for (sender, batch) in self.senders.iter().zip(&mut self.batches) {
            let rest = std::mem::take(batch);
            sender.send(Order::Accesses(rest)).ok()?;
            sender.send(Order::Report(reply.clone())).ok()?;
        }
        drop(reply);
        let mut total = Measured::new();
        for _ in 0..self.senders.len() {
            total.add(replies.recv().ok()?);
        }
        Some(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_accesses_or_seconds() {
        assert_eq!(Window::parse("100"), Ok(Window::Accesses(100)));
        let second = Duration::from_millis(1500);
        assert_eq!(Window::parse("1.5s"), Ok(Window::Time(second)));
        for text in ["", "0", "0s", "-1s", "x", "nans", "1e300s"] {
            assert!(Window::parse(text).is_err(), "{text}");
        }
    }
}
