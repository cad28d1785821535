//! One process for each engine, so that memory, processor time and a crash
//! belong to one engine alone, while the rows of all engines still take turns.
//!
//! The parent starts its own binary again and speaks with it in JSON lines: the
//! engine and its settings first, then an order for each row, answered by an
//! outcome or an error in words. The worker ends when its input ends.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::engine::{EngineKind, Result, null::Null};
use crate::workload::{EngineSession, Order, Outcome, Session, Settings};

/// The name of the hidden subcommand.
pub(crate) const SUBCOMMAND: &str = "worker";

/// The first line to a worker.
#[derive(Serialize, Deserialize)]
struct Hello {
    engine: EngineKind,
    settings: Settings,
}

/// A running worker, seen from the parent.
pub(crate) struct Worker {
    child: Child,
    orders: Option<ChildStdin>,
    outcomes: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a worker for `engine`.
    pub(crate) fn start(engine: EngineKind, settings: Settings) -> Result<Worker> {
        let mut child = Command::new(std::env::current_exe()?)
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
        worker.send(&Hello { engine, settings })?;
        Ok(worker)
    }

    /// Has one row run.
    pub(crate) fn run(&mut self, order: Order) -> Result<Outcome> {
        let mut line = String::new();
        let answered = self.send(&order).is_ok() && self.outcomes.read_line(&mut line)? > 0;
        if !answered {
            self.orders = None;
            return Err(format!("its process ended early: {}", self.child.wait()?).into());
        }
        let outcome: Result<Outcome, String> = serde_json::from_str(&line)?;
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
    let mut lines = std::io::stdin().lock().lines();
    let first = lines.next().ok_or("no settings came")??;
    let hello: Hello = serde_json::from_str(&first)?;
    let mut session = session(hello.engine, hello.settings)?;
    let mut output = std::io::stdout();
    for line in lines {
        let order: Order = serde_json::from_str(&line?)?;
        let outcome = session.run(order).map_err(|error| error.to_string());
        let mut answer = serde_json::to_vec(&outcome)?;
        answer.push(b'\n');
        output.write_all(&answer)?;
        output.flush()?;
    }
    Ok(())
}

/// The session of `engine`.
fn session(engine: EngineKind, settings: Settings) -> Result<Box<dyn Session>> {
    match engine {
        #[cfg(feature = "thermocline")]
        EngineKind::Thermocline => {
            use crate::engine::thermocline::Thermocline;
            Ok(Box::new(EngineSession::<Thermocline>::new(settings)))
        }
        #[cfg(feature = "rocksdb")]
        EngineKind::Rocksdb => {
            use crate::engine::rocksdb::Rocksdb;
            Ok(Box::new(EngineSession::<Rocksdb>::new(settings)))
        }
        #[cfg(feature = "leveldb")]
        EngineKind::Leveldb => {
            use crate::engine::leveldb::Leveldb;
            Ok(Box::new(EngineSession::<Leveldb>::new(settings)))
        }
        #[cfg(feature = "fjall")]
        EngineKind::Fjall => {
            use crate::engine::fjall::Fjall;
            Ok(Box::new(EngineSession::<Fjall>::new(settings)))
        }
        EngineKind::Null => Ok(Box::new(EngineSession::<Null>::new(settings))),
        #[cfg(not(all(
            feature = "thermocline",
            feature = "rocksdb",
            feature = "leveldb",
            feature = "fjall"
        )))]
        other => Err(other.missing().unwrap_or("not in this build").into()),
    }
}
