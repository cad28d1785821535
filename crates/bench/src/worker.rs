//! One process for each engine, so that memory, processor time and a crash
//! belong to one engine alone, while the rows of all engines still take turns.
//!
//! The parent starts its own binary again and speaks with it in JSON lines: the
//! engine and its settings first, then an order for each row, answered by an
//! outcome or an error in words. The worker ends when its input ends.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::{Deserialize, Serialize};

use serde::de::DeserializeOwned;

use crate::drive::{Driver, EngineDriver, RunOrder, Setup};
use crate::engine::{Engine, EngineKind, Result, null::Null};
use crate::tiers::Rig;
use crate::workload::{EngineSession, Order, Session, Settings};

/// The signal with which the kernel ends a process that takes too much memory.
const KILL: i32 = 9;

/// The name of the hidden subcommand.
pub(crate) const SUBCOMMAND: &str = "worker";

/// The first line to a worker.
#[derive(Serialize, Deserialize)]
struct Hello {
    engine: EngineKind,
    task: Task,
}

/// What a worker is for.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum Task {
    /// The rows of `memory`; orders are [`Order`].
    Memory(Settings),
    /// The workloads of `compare`; orders are [`RunOrder`].
    Compare(Setup),
}

/// A running worker, seen from the parent.
pub(crate) struct Worker {
    child: Child,
    orders: Option<ChildStdin>,
    outcomes: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a worker for `engine`, under the caps of `rig` if one is given.
    pub(crate) fn start(engine: EngineKind, task: Task, rig: Option<&Rig>) -> Result<Worker> {
        let mut command = Command::new(std::env::current_exe()?);
        if rig.is_some_and(|rig| rig.memory_group.is_some()) {
            // The allocator gives back at once what is freed, and asks for no huge
            // pages: what it would keep counts under a cap.
            command.env("MIMALLOC_PURGE_DELAY", "0");
            command.env("MIMALLOC_ALLOW_THP", "0");
        }
        let mut child = command
            .arg(SUBCOMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = child.stdin.take().ok_or("the worker has no input")?;
        let outcomes = child.stdout.take().ok_or("the worker has no output")?;
        let mut worker = Worker {
            child,
            orders: Some(orders),
            outcomes: BufReader::new(outcomes),
        };
        if let Some(rig) = rig {
            // It waits for its first line, so it has done nothing yet.
            rig.join(worker.child.id())?;
        }
        worker.send(&Hello { engine, task })?;
        Ok(worker)
    }

    /// Has one order carried out. Requires: orders and outcomes are those of the
    /// worker's task.
    pub(crate) fn run<O: DeserializeOwned>(&mut self, order: &impl Serialize) -> Result<O> {
        let mut line = String::new();
        let answered = self.send(order).is_ok() && self.outcomes.read_line(&mut line)? > 0;
        if !answered {
            self.orders = None;
            let status = self.child.wait()?;
            let hint = match status.signal() {
                Some(KILL) => "; a memory cap, or the lack of memory, ends processes so",
                _ => "",
            };
            return Err(format!("its process ended early: {status}{hint}").into());
        }
        let outcome: Result<O, String> = serde_json::from_str(&line)?;
        Ok(outcome?)
    }

    fn send(&mut self, message: &impl Serialize) -> Result<()> {
        let orders = self.orders.as_mut().ok_or("the worker has ended")?;
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        orders.write_all(&line)?;
        Ok(orders.flush()?)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The end of its input ends the worker, which deletes its store.
        self.orders = None;
        drop(self.child.wait());
    }
}

/// The worker's side: reads orders from standard input until it ends.
pub(crate) fn serve() -> Result<()> {
    // An allocator that is to ask for no huge pages forbids them to the whole process. An
    // engine that asks for some, for its cache or to read into, has them as it would elsewhere.
    let _ = rustix::thread::disable_transparent_huge_pages(false);
    let mut lines = std::io::stdin().lock().lines();
    let first = lines.next().ok_or("no settings came")??;
    let hello: Hello = serde_json::from_str(&first)?;
    match hello.engine {
        #[cfg(feature = "thermocline")]
        EngineKind::Thermocline => {
            answer::<crate::engine::thermocline::Thermocline>(hello.task, lines)
        }
        #[cfg(feature = "rocksdb")]
        EngineKind::Rocksdb => answer::<crate::engine::rocksdb::Rocksdb>(hello.task, lines),
        #[cfg(feature = "leveldb")]
        EngineKind::Leveldb => answer::<crate::engine::leveldb::Leveldb>(hello.task, lines),
        #[cfg(feature = "fjall")]
        EngineKind::Fjall => answer::<crate::engine::fjall::Fjall>(hello.task, lines),
        EngineKind::Null => answer::<Null>(hello.task, lines),
        #[cfg(not(all(
            feature = "thermocline",
            feature = "rocksdb",
            feature = "leveldb",
            feature = "fjall"
        )))]
        other => Err(other.missing().unwrap_or("not in this build").into()),
    }
}

/// Carries out one order, a line, and answers with a line.
type Work = dyn FnMut(&str) -> Result<String>;

/// Carries out the orders in `lines` on the engine `E`.
fn answer<E: Engine + 'static>(
    task: Task,
    lines: impl Iterator<Item = std::io::Result<String>>,
) -> Result<()> {
    let mut work: Box<Work> = match task {
        Task::Memory(settings) => {
            let mut session = EngineSession::<E>::new(settings);
            Box::new(move |line| {
                let order: Order = serde_json::from_str(line)?;
                reply(&session.run(order))
            })
        }
        Task::Compare(setup) => {
            let mut driver = EngineDriver::<E>::new(setup);
            Box::new(move |line| {
                let order: RunOrder = serde_json::from_str(line)?;
                reply(&driver.run(&order))
            })
        }
    };
    let mut output = std::io::stdout();
    for line in lines {
        let mut answer = work(&line?)?;
        answer.push('\n');
        output.write_all(answer.as_bytes())?;
        output.flush()?;
    }
    Ok(())
}

/// An outcome, or an error in words, as a line.
fn reply(outcome: &Result<impl Serialize>) -> Result<String> {
    let outcome = outcome.as_ref().map_err(ToString::to_string);
    Ok(serde_json::to_string(&outcome)?)
}
