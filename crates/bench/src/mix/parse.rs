//! Workloads from the command line.

use std::path::{Path, PathBuf};

use super::named::{FAMILIES, named};
use super::{Start, Workload};
use crate::keys::Choice;

/// Every name that [`parse`] knows.
fn names() -> String {
    let all: Vec<&str> = FAMILIES
        .iter()
        .flat_map(|(family, names)| [*family].into_iter().chain(names.iter().copied()))
        .collect();
    all.join(" ")
}

/// The workloads that `text` asks for: a name, a family of names, either with a
/// distribution behind a colon, or `trace=FILE`.
///
/// # Errors
/// In words, naming what there is.
pub(crate) fn parse(text: &str) -> Result<Vec<Workload>, String> {
    if let Some(path) = text.strip_prefix("trace=") {
        return trace(Path::new(path)).map(|workload| vec![workload]);
    }
    let (name, choice) = match text.split_once(':') {
        Some((name, choice)) => (name, Some(choice.parse::<Choice>()?)),
        None => (text, None),
    };
    let family = FAMILIES.iter().find(|(family, _)| *family == name);
    let wanted = family.map_or(std::slice::from_ref(&name), |(_, names)| names);
    wanted
        .iter()
        .map(|name| {
            let unknown = || {
                format!(
                    "{name:?} is no workload; there are {}, and trace=FILE",
                    names()
                )
            };
            let mut workload = named(name).ok_or_else(unknown)?;
            if let Some(choice) = choice {
                workload.choice = choice;
                workload.name = format!("{name}:{choice}");
            }
            Ok(workload)
        })
        .collect()
}

fn trace(path: &Path) -> Result<Workload, String> {
    if !path.is_file() {
        return Err(format!("trace: there is no file {}", path.display()));
    }
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let mut workload = named("ycsb-c").ok_or("ycsb-c is a workload")?;
    workload.name = format!("trace={file}");
    workload.start = Start::Loaded;
    workload.trace = Some(PathBuf::from(path));
    Ok(workload)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let workloads = parse(text).unwrap().into_iter();
        workloads.map(|workload| workload.name).collect()
    }

    #[test]
    fn a_family_is_all_its_workloads() {
        assert_eq!(found("nova"), ["nova-rw50", "nova-sw50", "nova-w100"]);
        let uniform = [
            "nova-rw50:uniform",
            "nova-sw50:uniform",
            "nova-w100:uniform",
        ];
        assert_eq!(found("nova:uniform"), uniform);
    }

    #[test]
    fn a_distribution_takes_the_place_of_the_workloads_own() {
        let workload = &parse("ycsb-c:zipf=1.2").unwrap()[0];
        assert_eq!(workload.choice, Choice::Zipf { exponent: 1.2 });
        assert_eq!(workload.name, "ycsb-c:zipf=1.2");
    }

    #[test]
    fn what_is_unknown_is_answered_with_what_there_is() {
        for text in ["ycsb-g", "ycsb-c:zipf=x", "", "trace=/no/such/file", "YCSB"] {
            let error = parse(text).unwrap_err();
            assert!(error.len() > 20, "{error}");
        }
        assert!(parse("ycsb-g").unwrap_err().contains("logstore-b-90"));
    }
}
