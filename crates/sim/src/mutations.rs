//! Shows that the rig can fail: puts deliberate faults into a copy of the
//! source, one at a time, and demands that the named test catches each.
//!
//! The faults are listed in `crates/sim/mutations.toml`. The checkout itself is
//! never touched: the copy lies in the target directory, with a target
//! directory of its own, and is put right again after each fault.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use serde::Deserialize;

/// Puts each deliberate fault into a copy of the source and runs the test that
/// must catch it.
#[derive(Parser)]
#[command(
    name = "thermocline-mutations",
    version,
    after_help = "Examples:\n  \
        thermocline-mutations\n  \
        thermocline-mutations --only log-deleted-early,half-a-batch\n  \
        thermocline-mutations --list\n\n\
        Exit codes: 0 every fault was caught, 1 one was not, 2 the list or the tests are wrong."
)]
struct Arguments {
    /// Only these, by name.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Print the names and what they do.
    #[arg(long)]
    list: bool,
    /// Leave out the run without a fault, where these tests have just passed.
    #[arg(long)]
    only_faults: bool,
    /// How long a test may take before it counts as hanging, in seconds.
    #[arg(long, default_value_t = 900)]
    timeout_seconds: u64,
}

#[derive(Deserialize)]
struct List {
    mutation: Vec<Mutation>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutation {
    name: String,
    /// What promise it breaks, in a sentence.
    breaks: String,
    /// Below the workspace.
    file: String,
    /// Occurs exactly once in the file.
    find: String,
    replace: String,
    /// Arguments of `cargo test`; one of its tests must fail.
    caught_by: String,
}

/// How a `cargo test` ended.
enum Outcome {
    Passed,
    /// The tests that failed, as far as they were named.
    Failed(Vec<String>),
    Hung,
    DoesNotBuild(String),
    /// The command names none that there is.
    RanNone,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

/// Returns how many were not caught.
fn run(arguments: &Arguments) -> Result<usize, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .ok_or("this crate lies two levels below the workspace")?;
    let mut mutations = read_list(root)?;
    if arguments.list {
        for mutation in &mutations {
            println!("{:32} {}", mutation.name, mutation.breaks);
        }
        return Ok(0);
    }
    if !arguments.only.is_empty() {
        for name in &arguments.only {
            if !mutations.iter().any(|m| m.name == *name) {
                return Err(format!("no mutation is called {name}; --list names them"));
            }
        }
        mutations.retain(|m| arguments.only.contains(&m.name));
    }
    let copy = Copy::new(root, Duration::from_secs(arguments.timeout_seconds))?;
    let mut commands: BTreeSet<&str> = mutations.iter().map(|m| &*m.caught_by).collect();
    if arguments.only_faults {
        commands.clear();
    } else {
        println!("without a fault, every test must pass:");
    }
    for command in commands {
        let start = Instant::now();
        match copy.test(command)? {
            Outcome::Passed => println!("  ok, {:4} s: {command}", start.elapsed().as_secs()),
            Outcome::Failed(names) => {
                return Err(format!("{command} fails without a fault: {names:?}"));
            }
            Outcome::Hung => return Err(format!("{command} hangs without a fault")),
            Outcome::DoesNotBuild(message) => return Err(message),
            Outcome::RanNone => return Err(format!("{command} runs no test")),
        }
    }
    println!("\nwith a fault, one must fail:");
    let mut missed = 0;
    for mutation in &mutations {
        let start = Instant::now();
        let caught = match copy.test_with(mutation)? {
            Outcome::Passed => {
                missed += 1;
                format!("NOT CAUGHT by cargo test {}", mutation.caught_by)
            }
            Outcome::Failed(names) => format!("caught by {}", names.join(", ")),
            Outcome::Hung => "caught: the test hangs".to_string(),
            Outcome::DoesNotBuild(message) => {
                // It shows nothing any more, but the others may.
                missed += 1;
                format!("DOES NOT BUILD: {message}")
            }
            Outcome::RanNone => {
                missed += 1;
                format!("RUNS NO TEST: cargo test {}", mutation.caught_by)
            }
        };
        let seconds = start.elapsed().as_secs();
        println!("  {:32} {caught} ({seconds} s)", mutation.name);
    }
    println!(
        "\n{} of {} caught",
        mutations.len() - missed,
        mutations.len()
    );
    Ok(missed)
}

/// The list, each entry of which fits its file.
fn read_list(root: &Path) -> Result<Vec<Mutation>, String> {
    let path = root.join("crates/sim/mutations.toml");
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let list: List = toml::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut names = BTreeSet::new();
    for mutation in &list.mutation {
        let name = &mutation.name;
        if !names.insert(name) {
            return Err(format!("{name} is there twice"));
        }
        let source = fs::read_to_string(root.join(&mutation.file))
            .map_err(|e| format!("{name}: {}: {e}", mutation.file))?;
        let found = source.matches(&mutation.find).count();
        if found != 1 {
            return Err(format!(
                "{name}: its text must occur once in {}, and does {found} times",
                mutation.file
            ));
        }
    }
    Ok(list.mutation)
}

/// A copy of the workspace to break.
struct Copy {
    tree: PathBuf,
    target: PathBuf,
    timeout: Duration,
}

impl Copy {
    fn new(root: &Path, timeout: Duration) -> Result<Copy, String> {
        let own_target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let place = own_target.join("mutations");
        let copy = Copy {
            tree: place.join("tree"),
            target: place.join("target"),
            timeout,
        };
        let failed = |e: io::Error| format!("copying to {}: {e}", copy.tree.display());
        if copy.tree.exists() {
            fs::remove_dir_all(&copy.tree).map_err(failed)?;
        }
        fs::create_dir_all(&copy.tree).map_err(failed)?;
        for name in ["Cargo.toml", "Cargo.lock", "README.md", "clippy.toml"] {
            fs::copy(root.join(name), copy.tree.join(name)).map_err(failed)?;
        }
        for name in ["crates", "docs"] {
            copy_folder(&root.join(name), &copy.tree.join(name)).map_err(failed)?;
        }
        Ok(copy)
    }

    /// Runs the mutation's test on the broken source, then puts it right.
    fn test_with(&self, mutation: &Mutation) -> Result<Outcome, String> {
        let path = self.tree.join(&mutation.file);
        let failed = |e: io::Error| format!("{}: {e}", path.display());
        let sound = fs::read_to_string(&path).map_err(failed)?;
        let broken = sound.replacen(&mutation.find, &mutation.replace, 1);
        fs::write(&path, broken).map_err(failed)?;
        let outcome = self.test(&mutation.caught_by);
        fs::write(&path, sound).map_err(failed)?;
        outcome
    }

    fn cargo(&self, arguments: &str) -> Command {
        let mut command = Command::new("cargo");
        command
            .arg("test")
            .args(arguments.split_whitespace())
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            .stdin(Stdio::null());
        command
    }

    fn test(&self, arguments: &str) -> Result<Outcome, String> {
        let failed = |e: io::Error| format!("cargo test {arguments}: {e}");
        // What stands behind `--` is the test's, not the build's.
        let build = arguments.split(" -- ").next().unwrap_or_default();
        let built = self.cargo(build).arg("--no-run").output().map_err(failed)?;
        if !built.status.success() {
            let message = String::from_utf8_lossy(&built.stderr).into_owned();
            return Ok(Outcome::DoesNotBuild(message));
        }
        let output = self.target.join("output");
        let file = fs::File::create(&output).map_err(failed)?;
        let mut child = self
            .cargo(arguments)
            .stdout(file)
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().map_err(failed)? {
                break status;
            }
            // One is enough: the others need not end.
            let named = failed_tests(&output).map_err(failed)?;
            let outcome = if !named.is_empty() {
                Outcome::Failed(named)
            } else if start.elapsed() > self.timeout {
                Outcome::Hung
            } else {
                thread::sleep(Duration::from_millis(200));
                continue;
            };
            // The whole group: the test is a child of cargo.
            let group = format!("-{}", child.id());
            Command::new("kill")
                .args(["-9", "--", &group])
                .status()
                .map_err(failed)?;
            child.wait().map_err(failed)?;
            return Ok(outcome);
        };
        if status.success() {
            return Ok(match any_passed(&output).map_err(failed)? {
                true => Outcome::Passed,
                false => Outcome::RanNone,
            });
        }
        let named = failed_tests(&output).map_err(failed)?;
        Ok(Outcome::Failed(if named.is_empty() {
            vec![format!("an end of the process ({status})")]
        } else {
            named
        }))
    }
}

/// The tests that failed, by what they have printed so far.
fn failed_tests(output: &Path) -> io::Result<Vec<String>> {
    let printed = fs::read(output)?;
    let named = String::from_utf8_lossy(&printed)
        .lines()
        .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
        .map(str::to_string)
        .collect();
    Ok(named)
}

/// Whether any test has passed, by what was printed.
fn any_passed(output: &Path) -> io::Result<bool> {
    let printed = fs::read(output)?;
    let printed = String::from_utf8_lossy(&printed);
    Ok(printed
        .lines()
        .any(|line| line.starts_with("test ") && line.ends_with(" ... ok")))
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list that no longer fits the source would silently prove nothing.
    #[test]
    fn every_deliberate_fault_fits_its_source() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
        let mutations = read_list(root.unwrap()).unwrap();
        assert!(mutations.len() >= 20, "{} faults", mutations.len());
    }
}
