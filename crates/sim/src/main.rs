//! The prover: every harness, at random, for as long as it is given.
//!
//! One number replays one run: what failed is printed with the command that
//! does it again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use parking_lot::Mutex;
use thermocline_sim::harness::{ALL, Harness};
use thermocline_sim::{Dice, Tally};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs every kind of proof on Thermocline, at random, and counts.
#[derive(Parser)]
#[command(
    name = "thermocline-sim",
    version,
    after_help = "Examples:\n  \
        thermocline-sim --minutes 60\n  \
        thermocline-sim --minutes 10 --only crash,corruption --seed 7\n  \
        thermocline-sim --only crash --seed 4711 --runs 1\n\n\
        Exit codes: 0 nothing failed, 1 a promise was broken, 2 the arguments make no sense."
)]
struct Arguments {
    /// For how long.
    #[arg(long, default_value_t = 1.0, value_parser = minutes)]
    minutes: f64,
    /// The first seed; each run takes the next one. Drawn from the clock if
    /// not given, and printed.
    #[arg(long)]
    seed: Option<u64>,
    /// Stop after this many runs, if that comes first.
    #[arg(long)]
    runs: Option<u64>,
    /// Only these kinds of proof, by name.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Threads, each with runs of its own. One for each processor if not given.
    #[arg(long)]
    threads: Option<usize>,
    /// Print the names of the kinds of proof.
    #[arg(long)]
    list: bool,
}

fn minutes(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(minutes) if minutes > 0.0 && minutes <= 100_000.0 => Ok(minutes),
        _ => Err("expected more than 0 and at most 100000".to_string()),
    }
}

/// A run that broke a promise.
struct Failure {
    harness: &'static str,
    seed: u64,
    message: String,
}

/// What all threads share.
struct Shared {
    harnesses: Vec<&'static Harness>,
    first_seed: u64,
    runs_max: u64,
    end: Instant,
    /// The next run.
    next: AtomicU64,
    done: Mutex<Done>,
}

#[derive(Default)]
struct Done {
    tally: Tally,
    /// Runs and time by kind, in the order of `harnesses`.
    runs: Vec<u64>,
    time: Vec<Duration>,
    failure: Option<Failure>,
}

fn main() -> ExitCode {
    if let Some(done) = thermocline_sim::worker::intercept() {
        return done;
    }
    let arguments = Arguments::parse();
    if arguments.list {
        for harness in ALL {
            println!("{:12} {}", harness.name, harness.about);
        }
        return ExitCode::SUCCESS;
    }
    let harnesses: Vec<&Harness> = if arguments.only.is_empty() {
        ALL.iter().collect()
    } else {
        let mut chosen = Vec::new();
        for name in &arguments.only {
            let Some(harness) = ALL.iter().find(|h| h.name == name) else {
                eprintln!("no kind of proof is called {name}; --list names them");
                return ExitCode::from(2);
            };
            chosen.push(harness);
        }
        chosen
    };
    let first_seed = arguments.seed.unwrap_or_else(|| {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        // Small enough to be typed.
        Dice(now.as_nanos() as u64).below(1 << 40)
    });
    let threads = arguments
        .threads
        .unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
        .max(1);
    let shared = Shared {
        done: Mutex::new(Done {
            runs: vec![0; harnesses.len()],
            time: vec![Duration::ZERO; harnesses.len()],
            ..Done::default()
        }),
        harnesses,
        first_seed,
        runs_max: arguments.runs.unwrap_or(u64::MAX),
        end: Instant::now() + Duration::from_secs_f64(arguments.minutes * 60.0),
        next: AtomicU64::new(0),
    };
    println!("first seed {first_seed}, {threads} threads");
    // The message is printed with its seed at the end, once.
    std::panic::set_hook(Box::new(|_| {}));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work(&shared));
        }
        watch(&shared);
    });
    drop(std::panic::take_hook());
    conclude(&shared)
}

/// Takes runs until the time is up or one has failed.
fn work(shared: &Shared) {
    loop {
        let n = shared.next.fetch_add(1, Ordering::Relaxed);
        if n >= shared.runs_max || Instant::now() >= shared.end {
            return;
        }
        if shared.done.lock().failure.is_some() {
            return;
        }
        let seed = shared.first_seed.wrapping_add(n);
        let chosen = shared.choose(seed);
        let harness = shared.harnesses[chosen];
        let start = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| {
            let mut tally = Tally::default();
            (harness.run)(seed, &mut tally);
            tally
        }));
        let mut done = shared.done.lock();
        done.runs[chosen] += 1;
        done.time[chosen] += start.elapsed();
        match result {
            Ok(tally) => done.tally.add(&tally),
            Err(panic) => {
                let message = panic
                    .downcast_ref::<String>()
                    .map(String::as_str)
                    .or_else(|| panic.downcast_ref::<&str>().copied())
                    .unwrap_or("a panic without words")
                    .to_string();
                done.failure.get_or_insert(Failure {
                    harness: harness.name,
                    seed,
                    message,
                });
            }
        }
    }
}

impl Shared {
    /// The seed alone decides the kind, so that a run can be replayed.
    fn choose(&self, seed: u64) -> usize {
        let total: u64 = self.harnesses.iter().map(|h| h.weight).sum();
        let mut at = Dice(seed).below(total);
        for (i, harness) in self.harnesses.iter().enumerate() {
            if at < harness.weight {
                return i;
            }
            at -= harness.weight;
        }
        0
    }
}

/// Says now and then how far it is.
fn watch(shared: &Shared) {
    const PAUSE: Duration = Duration::from_millis(100);
    const EVERY: Duration = Duration::from_secs(30);
    let mut said = Instant::now();
    while Instant::now() < shared.end
        && shared.next.load(Ordering::Relaxed) < shared.runs_max
        && shared.done.lock().failure.is_none()
    {
        thread::sleep(PAUSE);
        if said.elapsed() >= EVERY {
            said = Instant::now();
            let left = shared.end.saturating_duration_since(said);
            eprintln!("{} s left: {}", left.as_secs(), shared.done.lock().tally);
        }
    }
}

fn conclude(shared: &Shared) -> ExitCode {
    let done = shared.done.lock();
    let runs: u64 = done.runs.iter().sum();
    for (i, harness) in shared.harnesses.iter().enumerate() {
        println!(
            "{:12} {:>9} runs, {:>7.1} s",
            harness.name,
            done.runs[i],
            done.time[i].as_secs_f64()
        );
    }
    println!("{}", done.tally);
    println!(
        "seeds {} to {}",
        shared.first_seed,
        shared.first_seed.wrapping_add(runs.saturating_sub(1))
    );
    match &done.failure {
        None => {
            println!("no promise was broken");
            ExitCode::SUCCESS
        }
        Some(failure) => {
            println!("\nFAILED: {}, seed {}", failure.harness, failure.seed);
            println!("{}", failure.message);
            println!(
                "again: cargo run --release -p thermocline-sim -- --only {} --seed {} --runs 1",
                failure.harness, failure.seed
            );
            ExitCode::FAILURE
        }
    }
}
