//! Real processes on a real store: killed, stopped and started again, at
//! random moments and in the middle of opening, bulk load, checkpoint and
//! compaction. After each death the store must be sound by `verify` and hold,
//! to the byte, what the expected-state file outside it allows.
//!
//! The moment of a kill depends on the machine, so a seed gives the same work
//! again, not the same run.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use thermocline::{Db, Options, Tier};

use crate::contents::contents;
use crate::expected::{self, Expected, Field, LOADER, Model, Phase, WRITERS};
use crate::scratch::Scratch;
use crate::{Dice, Tally};

/// How long a process may take to come where it is to be killed.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long to wait for a moment that chance may never bring; it is killed then
/// wherever it is.
const LOOKOUT: Duration = Duration::from_millis(150);

/// Deaths of a store in [`run`].
const LIVES: u64 = 10;

/// One store that dies a few times.
pub fn run(seed: u64, tally: &mut Tally) {
    match program() {
        Some(program) => {
            lives(&program, seed, LIVES, tally);
        }
        None => tally.fault("skipped-process"),
    }
}

/// The program `thermocline-sim`, by the side of the running one.
fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    // Tests lie one directory deeper.
    let near = own.ancestors().skip(1).take(2);
    near.map(|directory| directory.join("thermocline-sim"))
        .find(|path| path.is_file())
}

/// A worker process, killed when dropped.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    said: PathBuf,
}

impl Worker {
    /// Starts `program` on `task`; what it says goes to files in `root`.
    #[must_use]
    pub fn start(program: &Path, root: &Path, seed: u64, task: &str) -> Worker {
        let said = root.join("said");
        let child = Command::new(program)
            .arg("worker")
            .arg(root)
            .arg(seed.to_string())
            .arg(task)
            .stdin(Stdio::null())
            .stdout(fs::File::create(root.join("answer")).unwrap())
            .stderr(fs::File::create(&said).unwrap())
            .spawn();
        Worker {
            child: child.unwrap_or_else(|e| panic!("seed {seed}: {}: {e}", program.display())),
            said,
        }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("a child not yet waited for takes signals");
    }

    /// Kills it and waits for its end.
    ///
    /// # Errors
    /// It had come to another end before; says which, and its last words.
    pub fn kill(mut self) -> Result<(), String> {
        let _ = self.child.kill();
        self.died_by(Signal::KILL)
    }

    /// Waits for its end, which must be by `signal`.
    ///
    /// # Errors
    /// It ended otherwise; says how, and its last words.
    pub fn died_by(&mut self, signal: Signal) -> Result<(), String> {
        let status = self.child.wait().map_err(|e| e.to_string())?;
        if status.signal() == Some(signal.as_raw()) {
            return Ok(());
        }
        let said = fs::read_to_string(&self.said).unwrap_or_default();
        Err(format!("the process ended with {status}: {said}"))
    }

    /// Waits for its end; its exit code.
    pub fn code(&mut self) -> Option<i32> {
        self.child.wait().ok()?.code()
    }

    /// Waits until the store in it has refused so many writes.
    ///
    /// # Panics
    /// It does not come to that.
    pub fn wait_refused(&self, root: &Path, count: u64) {
        let expected = Expected::open(root).unwrap();
        let deadline = Instant::now() + PATIENCE;
        while expected.get(Field::Refused) < count {
            assert!(
                Instant::now() < deadline,
                "no {count} refusals: {}",
                fs::read_to_string(&self.said).unwrap_or_default()
            );
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the processes had done by themselves when they were killed.
#[derive(Clone, Copy, Default, Debug)]
pub struct Worked {
    /// Flushes that had ended.
    pub flushes: u64,
    /// Merges that had ended.
    pub merges: u64,
    /// Tables that had been moved to another tier.
    pub relocations: u64,
    /// Checkpoints that were whole when looked at, and compared.
    pub checkpoints: u64,
}

/// What the parent knows.
struct Parent<'a> {
    program: &'a Path,
    root: &'a Path,
    seed: u64,
    dice: Dice,
    expected: Expected,
    /// What the store held when it was last looked at; the loader last.
    models: Vec<Model>,
    /// The number of the life, for messages.
    life: u64,
    worked: Worked,
}

/// One store that dies `count` times at the hands of `program`'s workers.
///
/// # Panics
/// With the seed, when the store breaks a promise.
pub fn lives(program: &Path, seed: u64, count: u64, tally: &mut Tally) -> Worked {
    let scratch = if seed.is_multiple_of(4) {
        Scratch::on_disk()
    } else {
        Scratch::in_memory()
    };
    let mut parent = Parent {
        program,
        root: scratch.path(),
        seed,
        dice: Dice(seed),
        expected: Expected::open(scratch.path()).unwrap(),
        models: (0..=LOADER).map(|w| Model::new(seed, w)).collect(),
        life: 0,
        worked: Worked::default(),
    };
    while parent.life < count {
        parent.life += 1;
        parent.live_and_die(tally);
        // Several deaths in a row, without anybody having looked.
        if parent.dice.percent(75) || parent.life == count {
            parent.look(tally);
        }
    }
    parent.worked
}

impl Parent<'_> {
    fn context(&self) -> String {
        format!("seed {}: process life {}", self.seed, self.life)
    }

    /// Starts a worker and kills it at some moment.
    fn live_and_die(&mut self, tally: &mut Tally) {
        for field in [Field::Flushes, Field::Merges, Field::Relocations] {
            self.expected.set(field, 0);
        }
        self.expected.set(Field::Phase, Phase::Start as u64);
        let mut worker = Worker::start(self.program, self.root, self.seed, "work");
        let target = match self.dice.below(10) {
            0 | 1 => Phase::Opening,
            2 => Phase::Checkpoint,
            3 => Phase::BulkLoad,
            4 => Phase::CompactRange,
            5 => Phase::Flush,
            _ => Phase::Writing,
        };
        let patience = if target == Phase::Writing {
            PATIENCE
        } else {
            LOOKOUT
        };
        let deadline = Instant::now() + patience;
        let mut seen = self.expected.phase();
        while seen != target && worker.is_running() && Instant::now() < deadline {
            if target == Phase::Opening {
                // It is short, and may have passed unseen.
                if seen != Phase::Start {
                    break;
                }
                std::hint::spin_loop();
            } else {
                thread::sleep(Duration::from_micros(50));
            }
            seen = self.expected.phase();
        }
        assert!(
            worker.is_running() && (seen == target || target != Phase::Writing),
            "{}: did not come to {target:?}: {:?}",
            self.context(),
            worker.died_by(Signal::KILL)
        );
        let longest = if target == Phase::Writing {
            60_000
        } else {
            4_000
        };
        let moment = Duration::from_micros(self.dice.below(longest));
        thread::sleep(moment);
        match self.dice.below(5) {
            0 => {
                worker.signal(Signal::STOP);
                thread::sleep(Duration::from_micros(self.dice.below(3000)));
                worker.signal(Signal::CONT);
                tally.fault("stop-and-continue");
                thread::sleep(moment);
            }
            1 => {
                worker.signal(Signal::STOP);
                tally.fault("stop-and-kill");
                thread::sleep(Duration::from_micros(self.dice.below(500)));
            }
            _ => {}
        }
        let phase = self.expected.phase();
        worker
            .kill()
            .unwrap_or_else(|e| panic!("{}: {e}", self.context()));
        tally.crashes += 1;
        tally.fault(phase.kill_name());
        self.worked.flushes += self.expected.get(Field::Flushes);
        self.worked.merges += self.expected.get(Field::Merges);
        self.worked.relocations += self.expected.get(Field::Relocations);
        tally.operations += self.expected.get(Field::Compared);
        self.expected.set(Field::Compared, 0);
    }

    /// Looks at the store, reading only or by opening it for good, and takes
    /// what it holds for what must be there from now on.
    fn look(&mut self, tally: &mut Tally) {
        let options = expected::options(self.root, self.seed);
        if !self.root.join("fast/CURRENT").exists() {
            // Killed before there was a store; or was it lost?
            let counts = (0..=LOADER).map(|w| self.expected.get(Field::Acknowledged(w)));
            assert_eq!(counts.sum::<u64>(), 0, "{}: no store", self.context());
            return;
        }
        if self.dice.percent(60) {
            let report = thermocline::verify(options.clone())
                .unwrap_or_else(|e| panic!("{}: verify refused: {e}", self.context()));
            assert!(
                report.problems.is_empty(),
                "{}: verify: {:#?}",
                self.context(),
                report.problems
            );
            tally.operations += report.entries;
        }
        let reads = self.dice.percent(60);
        let db = Db::open(options.read_only(reads))
            .unwrap_or_else(|e| panic!("{}: refused to open: {e}", self.context()));
        for writer in 0..=LOADER {
            let acknowledged = self.expected.get(Field::Acknowledged(writer));
            let pending = self.expected.get(Field::Pending(writer));
            let found = expected::counter(&db, writer).unwrap();
            assert!(
                (acknowledged..=pending).contains(&found),
                "{}: writer {writer} is at operation {found}: {acknowledged} acknowledged, {pending} begun",
                self.context()
            );
            self.models[writer as usize].advance(found);
            self.expected.set(Field::Acknowledged(writer), found);
            self.expected.set(Field::Pending(writer), found);
        }
        self.compare(&db, &self.models, tally);
        db.close()
            .unwrap_or_else(|e| panic!("{}: close: {e}", self.context()));
        self.look_at_checkpoint(tally);
    }

    fn compare(&self, db: &Db, models: &[Model], tally: &mut Tally) {
        let found = contents(db).unwrap();
        let wanted = expected::whole(models, &db.keyspaces());
        for (space, entries) in &wanted {
            let here = &found[space];
            let wrong = entries
                .keys()
                .chain(here.keys())
                .find(|&key| entries.get(key) != here.get(key));
            if let Some(key) = wrong {
                let show = |v: Option<&Vec<u8>>| v.map(|v| v.len());
                panic!(
                    "{}: {space}/{}: {:?} bytes expected, {:?} found",
                    self.context(),
                    key.escape_ascii(),
                    show(entries.get(key)),
                    show(here.get(key))
                );
            }
            tally.operations += 2 * entries.len() as u64;
        }
    }

    /// A finished checkpoint holds one moment of the past, whole. One that was
    /// cut short is refused or holds that too.
    fn look_at_checkpoint(&mut self, tally: &mut Tally) {
        let directory = self.root.join("checkpoint");
        if !directory.exists() {
            return;
        }
        let complete = self.expected.get(Field::Checkpoint) > 0;
        let options = Options::new()
            .tier(Tier::new("fast", directory.join("fast")))
            .tier(Tier::new("slow", directory.join("slow")))
            .create_if_missing(false)
            .background_threads(2)
            .read_only(self.dice.percent(50));
        match Db::open(options) {
            Ok(db) => {
                let mut models = Vec::new();
                for writer in 0..=LOADER {
                    let mut model = Model::new(self.seed, writer);
                    let found = expected::counter(&db, writer).unwrap();
                    assert!(found <= self.models[writer as usize].done || writer >= WRITERS);
                    model.advance(found);
                    models.push(model);
                }
                self.compare(&db, &models, tally);
                self.worked.checkpoints += 1;
            }
            Err(e) if complete => {
                panic!("{}: a complete checkpoint is refused: {e}", self.context())
            }
            Err(_) => {}
        }
        fs::remove_dir_all(&directory).unwrap();
        self.expected.set(Field::Checkpoint, 0);
    }
}
