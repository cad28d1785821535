//! The rules of the house that no compiler checks: arrows between crates and
//! folders, where `unsafe` may stand, length of files and comments, and litter.
//!
//! Every check lists all that it finds, so that one run shows all there is to do.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

/// Lines that a source file may have before its tests.
const LINES_MAX: usize = 700;

/// Columns of a comment, but for tables and examples: those that `cargo fmt` gives code.
const COLUMNS_MAX: usize = 100;

/// Longer files, and why.
const LONG_FILES: &[(&str, &str)] = &[(
    "crates/engine/src/memory/skiplist.rs",
    "one data structure, whose unsafe code is judged together",
)];

/// Where `unsafe` may stand, and for what.
const UNSAFE_FILES: &[(&str, &str)] = &[
    (
        "crates/engine/src/cache/slots.rs",
        "memory of cached blocks",
    ),
    ("crates/engine/src/memory/arena.rs", "memory of a memtable"),
    (
        "crates/engine/src/memory/skiplist.rs",
        "nodes of a lock-free list",
    ),
    (
        "crates/engine/src/store/buffer.rs",
        "mappings of large buffers",
    ),
    ("crates/engine/src/pages.rs", "anonymous mappings"),
    (
        "crates/engine/src/table/lists.rs",
        "lists of several types in one mapping",
    ),
    (
        "crates/engine/src/store/mapped.rs",
        "memory map, SIGBUS handler",
    ),
    ("crates/engine/src/store/turns.rs", "slices of a thread"),
    (
        "crates/engine/src/store/written.rs",
        "a system call that no crate in use has",
    ),
    (
        "crates/engine/src/store/direct.rs",
        "huge pages for large reads",
    ),
    ("crates/sim/tests/corruption.rs", "an allocator that counts"),
    ("crates/engine/tests/memory.rs", "an allocator that counts"),
    ("crates/bench/src/engine/leveldb.rs", "calls into LevelDB"),
    ("crates/bench/src/engine/rocksdb.rs", "calls into RocksDB"),
    ("crates/bench/src/engine/rocksdb/c.rs", "RocksDB's C names"),
    ("crates/bench/src/engine/foreign.rs", "strings of C"),
];

/// The crates from the bottom up: each may depend on those of lower rank.
const CRATE_RANKS: &[(&str, u32)] = &[
    ("thermocline-model", 0),
    ("thermocline-policy", 1),
    ("thermocline", 2),
    ("thermocline-sim", 3),
    ("thermocline-cli", 3),
    ("thermocline-bench", 4),
    ("thermocline-fuzz", 4),
];

/// Modules of the engine that each of its folders may name, besides itself and
/// `error` and `sync`.
const FOLDER_ARROWS: &[(&str, &[&str])] = &[
    ("memory", &["pages"]),
    ("store", &["pages"]),
    ("log", &["store"]),
    ("cache", &["table", "pages"]),
    ("table", &["store", "cache", "pages"]),
    // Of `memory` the filters, which stand before the tables of a flush.
    // Of `log` the note that a clean close leaves there.
    ("version", &["store", "log", "table", "cache", "memory"]),
    (
        "job",
        &[
            // Of `batch` the encoding in which a fold logs anew.
            "store", "table", "version", "cache", "memory", "engine", "merge", "events", "batch",
        ],
    ),
];

struct Source {
    /// Relative to the repository, with slashes.
    path: String,
    text: String,
}

impl Source {
    fn is(&self, extension: &str) -> bool {
        self.path.ends_with(extension)
    }

    /// The text up to the tests at its end.
    fn without_tests(&self) -> &str {
        let end = self.text.find("\n#[cfg(test)]\nmod ");
        &self.text[..end.map_or(self.text.len(), |at| at + 1)]
    }

    fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("/tests.rs")
    }

    /// Line numbers, counted from 1, and lines without their comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate();
        lines.map(|(at, line)| (at + 1, line.split("//").next().unwrap_or("")))
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every text file of the repository.
fn sources() -> Vec<Source> {
    fn walk(directory: &Path, relative: &str, found: &mut Vec<Source>) {
        let mut entries: Vec<_> = fs::read_dir(directory).unwrap().flatten().collect();
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name().into_string().unwrap();
            let path = format!("{relative}{name}");
            if entry.file_type().unwrap().is_dir() {
                if name != "target" && (!name.starts_with('.') || name == ".ci") {
                    walk(&entry.path(), &format!("{path}/"), found);
                }
                continue;
            }
            let known = ["rs", "md", "toml", "sh"].map(|e| path.ends_with(&format!(".{e}")));
            if known.contains(&true) || path.starts_with(".ci/") || path.starts_with("LICENSE") {
                let text = fs::read_to_string(entry.path()).unwrap();
                found.push(Source { path, text });
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), "", &mut found);
    assert!(found.len() > 50, "this is not the repository");
    found
}

fn report(rule: &str, found: &[String]) {
    assert!(found.is_empty(), "{rule}:\n  {}", found.join("\n  "));
}

/// Whether `word` occurs in `line` with nothing of a word on either side.
fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let stands_alone = word.ends_with('!') || !after.is_some_and(part);
        stands_alone && !before.is_some_and(part)
    })
}

#[test]
fn source_files_are_about_one_thing() {
    let mut found = Vec::new();
    for source in sources() {
        if !source.is(".rs") || !source.path.contains("/src/") || source.is_test() {
            continue;
        }
        let lines = source.without_tests().lines().count();
        let excused = LONG_FILES.iter().any(|(path, _)| *path == source.path);
        if lines > LINES_MAX && !excused {
            found.push(format!("{}: {lines} lines", source.path));
        }
    }
    report("files that want to be two", &found);
}

#[test]
fn nothing_is_left_half_done() {
    // Put together here, so that this file passes its own check.
    let words = [
        ["TO", "DO"],
        ["FIX", "ME"],
        ["XX", "X"],
        ["to", "do!"],
        ["unimpl", "emented!"],
        ["db", "g!"],
    ]
    .map(|halves| halves.concat());
    let mut found = Vec::new();
    for source in sources() {
        for (at, line) in source.text.lines().enumerate() {
            for word in &words {
                if has_word(line, word) {
                    found.push(format!("{}:{}: {word}", source.path, at + 1));
                }
            }
        }
    }
    report("left half done", &found);
}

#[test]
fn no_line_ends_in_white_space_and_every_file_in_a_newline() {
    let mut found = Vec::new();
    for source in sources() {
        for (at, line) in source.text.lines().enumerate() {
            if line.ends_with([' ', '\t', '\r']) {
                found.push(format!("{}:{}", source.path, at + 1));
            }
        }
        if !source.text.is_empty() && !source.text.ends_with('\n') {
            found.push(format!("{}: no newline at the end", source.path));
        }
    }
    report("white space", &found);
}

#[test]
fn comments_are_no_wider_than_code() {
    let mut found = Vec::new();
    for source in sources().iter().filter(|source| source.is(".rs")) {
        let mut is_example = false;
        for (at, line) in source.text.lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else {
                is_example = false;
                continue;
            };
            let text = comment.trim_start_matches(['/', '!']).trim_start();
            is_example ^= text.starts_with("```");
            let may_be_wide = is_example || text.starts_with('|');
            if line.chars().count() > COLUMNS_MAX && !may_be_wide {
                found.push(format!("{}:{}", source.path, at + 1));
            }
        }
    }
    report("comments wider than code", &found);
}

#[test]
fn unsafe_stands_only_where_it_is_named() {
    let word = "unsafe";
    let mut found = Vec::new();
    for source in sources().iter().filter(|s| s.is(".rs")) {
        if source.path.ends_with("model/tests/tidy.rs") {
            continue;
        }
        let named = UNSAFE_FILES.iter().any(|(path, _)| *path == source.path);
        let mut uses = source.code().filter(|(_, line)| has_word(line, word));
        match uses.next() {
            Some((at, _)) if !named => found.push(format!("{}:{at}", source.path)),
            None if named => found.push(format!("{}: named, but has none", source.path)),
            _ => {}
        }
    }
    report("unsafe code", &found);
}

/// The lines of the dependency sections of a `Cargo.toml`, each with the line
/// above it.
fn dependencies(text: &str) -> Vec<(&str, &str)> {
    let mut inside = false;
    let mut above = "";
    let mut found = Vec::new();
    for line in text.lines() {
        if line.starts_with('[') {
            inside = line.contains("dependencies]") && !line.contains("workspace.");
        } else if inside && line.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            found.push((above, line));
        }
        above = line;
    }
    found
}

fn name_of(dependency: &str) -> &str {
    let end = dependency.find([' ', '.', '=']);
    &dependency[..end.unwrap_or(dependency.len())]
}

#[test]
fn every_dependency_says_what_it_is_for() {
    let mut found = Vec::new();
    for source in sources().iter().filter(|s| s.is("Cargo.toml")) {
        for (above, line) in dependencies(&source.text) {
            if !name_of(line).starts_with("thermocline") && !above.starts_with('#') {
                found.push(format!("{}: {}", source.path, name_of(line)));
            }
        }
    }
    report("dependencies without a reason above them", &found);
}

#[test]
fn crates_depend_only_on_lower_ones() {
    let rank = |name: &str| {
        CRATE_RANKS
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, r)| *r)
    };
    let mut found = Vec::new();
    for source in sources().iter().filter(|s| s.is("/Cargo.toml")) {
        let name = source
            .text
            .lines()
            .find_map(|l| l.strip_prefix("name = \""));
        let name = name.unwrap().trim_end_matches('"');
        let Some(own) = rank(name) else {
            found.push(format!("{name} has no rank in CRATE_RANKS"));
            continue;
        };
        for (_, line) in dependencies(&source.text) {
            let other = name_of(line);
            if other.starts_with("thermocline") && rank(other).is_none_or(|r| r >= own) {
                found.push(format!("{name} -> {other}"));
            }
        }
    }
    report("arrows between crates that point up", &found);
}

/// The first names after `crate::` in `text`.
fn named_modules(text: &str) -> Vec<&str> {
    fn first(path: &str) -> &str {
        let end = path.find(|c: char| !c.is_alphanumeric() && c != '_');
        &path[..end.unwrap_or(path.len())]
    }
    let mut found = Vec::new();
    for (at, word) in text.match_indices("crate::") {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &text[at + word.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            found.push(first(rest));
            continue;
        };
        let mut depth = 0;
        let mut start = 0;
        for (i, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                ',' | '}' if depth == 0 => {
                    found.push(first(list[start..i].trim()));
                    start = i + 1;
                    if c == '}' {
                        break;
                    }
                }
                _ => {}
            }
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

#[test]
fn inside_the_engine_nouns_do_not_know_verbs() {
    let common = ["error", "Error", "ErrorKind", "Result", "sync"];
    let mut found = Vec::new();
    let sources = sources();
    for (folder, arrows) in FOLDER_ARROWS {
        let place = format!("crates/engine/src/{folder}/");
        let inside = |s: &&Source| s.path.starts_with(&place) && !s.is_test();
        let mut files = 0;
        for source in sources.iter().filter(inside) {
            files += 1;
            let code: Vec<&str> = Source::code(source).map(|(_, line)| line).collect();
            let lines = source.without_tests().lines().count();
            for name in named_modules(&code[..lines].join("\n")) {
                if name != *folder && !common.contains(&name) && !arrows.contains(&name) {
                    found.push(format!("{} -> {name}", source.path));
                }
            }
            if *folder == "memory" && source.without_tests().contains("thermocline_policy") {
                found.push(format!("{} -> policy", source.path));
            }
        }
        assert!(files > 0, "{place} is not there");
    }
    report("arrows inside the engine that point up", &found);
}

/// The names that `lib.rs` of the engine gives to users from its own modules.
fn names_for_users(lib: &str) -> Vec<&str> {
    let uses = lib.split("pub use ").skip(1);
    let own = uses.filter(|text| !text.starts_with("thermocline_"));
    own.flat_map(|text| {
        let text = &text[..text.find(';').unwrap()];
        let names = text.split_once('{').map_or_else(
            || text.rsplit("::").next().unwrap(),
            |(_, list)| list.trim_end_matches('}'),
        );
        names.split(',').map(str::trim).filter(|n| !n.is_empty())
    })
    .collect()
}

/// The name at the start of `text`.
fn name_at(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

/// What is wrong with the example in a doc comment: of the item in line `at`,
/// or of a whole module if `mark` is `//!`.
fn example_fault(lines: &[&str], at: usize, mark: &str) -> Option<&'static str> {
    let above = lines[..at].iter().rev();
    let part = |l: &&&str| {
        let line = l.trim_start();
        line.starts_with(mark) || !line.is_empty() && !line.starts_with('}') && mark == "///"
    };
    let doc: Vec<&str> = above
        .take_while(part)
        .filter_map(|l| l.trim_start().strip_prefix(mark))
        .collect();
    let fences = doc.iter().rev().filter(|l| l.trim().starts_with("```"));
    let openings: Vec<&str> = fences.step_by(2).map(|l| l.trim()).collect();
    if openings.is_empty() {
        return Some("no example");
    }
    // `no_run`, `ignore` and the like.
    if openings.iter().any(|fence| *fence != "```") {
        return Some("an example that does not run");
    }
    let asserts = doc.iter().any(|l| l.contains("assert"));
    (!asserts).then_some("an example without assertion")
}

#[test]
fn every_public_call_of_the_library_has_an_example() {
    let sources = sources();
    let place = "crates/engine/src/";
    let lib = format!("{place}lib.rs");
    let lib = &sources.iter().find(|s| s.path == lib).unwrap().text;
    let names = names_for_users(lib);
    let mut found = Vec::new();
    let mut examples = 0;
    let mut defined = Vec::new();
    for source in &sources {
        let Some(inside) = source.path.strip_prefix(place) else {
            continue;
        };
        if source.is_test() {
            continue;
        }
        let lines: Vec<&str> = source.without_tests().lines().collect();
        // Open for simulation: one example for the module.
        if lib.contains(&format!("\npub mod {};", name_at(inside))) {
            let end = lines.iter().position(|l| !l.starts_with("//!"));
            let fault = example_fault(&lines, end.unwrap_or(0), "//!");
            if let Some(fault) = fault.filter(|_| inside.ends_with("/mod.rs")) {
                found.push(format!("{}: {fault}", source.path));
            }
            continue;
        }
        // The type whose methods these are.
        let mut of = "";
        for (at, line) in lines.iter().enumerate() {
            if let Some(rest) = line.strip_prefix("impl") {
                let generics = rest.starts_with('<');
                let rest = rest.split_once(if generics { "> " } else { " " });
                let rest = rest.map_or("", |(_, rest)| rest);
                of = name_at(rest.rsplit(" for ").next().unwrap());
            }
            let method = line.strip_prefix("    pub fn ");
            let item = ["fn", "struct", "enum", "type"]
                .iter()
                .find_map(|kind| line.strip_prefix(&format!("pub {kind} ")));
            let (owner, name) = match (method, item) {
                (Some(rest), _) => (of, name_at(rest)),
                (_, Some(rest)) => (name_at(rest), ""),
                _ => continue,
            };
            if !names.contains(&owner) {
                continue;
            }
            defined.push(owner);
            examples += 1;
            if let Some(fault) = example_fault(&lines, at, "///") {
                found.push(format!(
                    "{}:{}: {owner} {name}: {fault}",
                    source.path,
                    at + 1
                ));
            }
        }
    }
    // Constants have examples where there is something to show.
    let is_constant = |name: &str| name.chars().all(|c| c.is_uppercase() || c == '_');
    for name in names.iter().filter(|name| !is_constant(name)) {
        if !defined.contains(name) {
            found.push(format!("{name} is defined nowhere"));
        }
    }
    assert!(examples > 100, "only {examples} public items found");
    report("public items of the library without an example", &found);
}

#[test]
fn model_and_policy_touch_no_file_thread_or_clock() {
    let mut found = Vec::new();
    for source in sources() {
        let pure = ["crates/model/src/", "crates/policy/src/"];
        if !pure.iter().any(|p| source.path.starts_with(p)) {
            continue;
        }
        for (at, line) in source.code() {
            for ambient in ["fs", "thread", "time", "net", "process", "env", "io"] {
                if has_word(line, &format!("std::{ambient}")) {
                    found.push(format!("{}:{at}: std::{ambient}", source.path));
                }
            }
        }
    }
    report("not plain data", &found);
}

#[test]
fn no_path_of_a_machine_is_named() {
    let places = [["/wo", "rk/"], ["/fa", "rm/"], ["/ro", "ot/"]].map(|halves| halves.concat());
    let mut found = Vec::new();
    for source in sources() {
        for (at, line) in source.text.lines().enumerate() {
            for place in &places {
                if line.contains(place.as_str()) {
                    found.push(format!("{}:{}: {place}", source.path, at + 1));
                }
            }
        }
    }
    report("paths of one machine", &found);
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    let mut found = Vec::new();
    for source in sources().iter().filter(|s| s.is(".md")) {
        let directory = root().join(Path::new(&source.path).parent().unwrap());
        for (at, _) in source.text.match_indices("](") {
            let rest = &source.text[at + 2..];
            let target = &rest[..rest.find(')').unwrap_or(0)];
            let file = target.split('#').next().unwrap_or("");
            let outside = file.is_empty() || file.contains("://") || file.contains(' ');
            if !outside && !directory.join(file).exists() {
                found.push(format!("{}: {target}", source.path));
            }
        }
    }
    report("links that lead nowhere", &found);
}
