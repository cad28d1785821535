//! Running the built command.
#![allow(dead_code, reason = "every test binary uses a part of it")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// The command with `arguments`.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs the command to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the command starts")
}

/// Runs the command, which must exit with `code`; what it printed.
pub(crate) fn exits(code: i32, arguments: &[&str]) -> String {
    let output = run(arguments);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(!err.contains("panicked"), "{arguments:?}: {err}");
    assert_eq!(
        output.status.code(),
        Some(code),
        "{arguments:?}\n{out}\n{err}"
    );
    out
}

/// Runs the command, which must succeed; what it printed, as JSON.
pub(crate) fn json(arguments: &[&str]) -> Value {
    let out = exits(0, arguments);
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{arguments:?}: {e}\n{out}"))
}

/// Runs the command, which must succeed; what it printed, one JSON a line.
pub(crate) fn json_lines(arguments: &[&str]) -> Vec<Value> {
    let out = exits(0, arguments);
    out.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect()
}

/// Runs the command with `input` on its standard input.
pub(crate) fn run_with_input(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = start(arguments);
    let mut stdin = child.stdin.take().expect("it is piped");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // A command that stops early closes the pipe.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().expect("the command ends");
    writer.join().expect("the writer does not panic");
    output
}

/// Starts the command with every stream piped.
pub(crate) fn start(arguments: &[&str]) -> Child {
    command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A temporary directory whose paths are text.
pub(crate) struct Scratch(tempfile::TempDir);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch(tempfile::tempdir().expect("temporary directories can be made"))
    }

    pub(crate) fn path(&self, name: &str) -> String {
        let path = self.0.path().join(name);
        path.to_str().expect("temporary paths are text").to_owned()
    }

    /// Writes a file and names it.
    pub(crate) fn file(&self, name: &str, content: &[u8]) -> String {
        let path = self.path(name);
        fs::write(&path, content).expect("the file can be written");
        path
    }
}

/// Every file below `directory`.
pub(crate) fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("the directory can be read") {
        let path = entry.expect("the entry can be read").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// `count` rows `key000017,value of 17 ...`.
pub(crate) fn rows(count: u32) -> Vec<u8> {
    let mut rows = Vec::new();
    for i in 0..count {
        writeln!(rows, "key{i:06},value of {i} {}", "x".repeat(40)).expect("a Vec takes it");
    }
    rows
}
