//! Saying what was lost, in lists and in words.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::Path;

use thermocline_model::table::TableMeta;

use super::{LostRange, LostTable, Repair, RepairReport};

/// Added to the numbers of lost log entries, if there may be more.
const LATER: [&str; 2] = ["", " and maybe later ones"];

impl fmt::Display for RepairReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.was_sound {
            return f.write_str("nothing is wrong, and nothing was changed");
        }
        let s = if self.problems.len() == 1 { "" } else { "s" };
        writeln!(f, "{} problem{s}:", self.problems.len())?;
        for problem in &self.problems {
            writeln!(f, "  {problem}")?;
        }
        writeln!(
            f,
            "tables   {} kept, {} written anew, {} lost",
            self.tables_kept,
            self.tables_rewritten,
            self.tables_lost.len()
        )?;
        write!(f, "log      {} entries kept", self.log_entries_kept)?;
        if let Some((first, last)) = self.log_numbers_lost {
            let later = LATER[usize::from(self.log_numbers_lost_or_later)];
            write!(f, ", numbers {first} to {last}{later} lost")?;
        }
        let mut places: BTreeMap<&Path, u64> = BTreeMap::new();
        for place in self.moved_aside.iter().filter_map(|file| file.parent()) {
            *places.entry(place).or_default() += 1;
        }
        for (place, files) in places {
            write!(f, "\nmoved aside: {files} files, to {}", place.display())?;
        }
        for note in &self.notes {
            write!(f, "\nnote: {note}")?;
        }
        if self.lost.is_empty() {
            return write!(f, "\nnothing was lost");
        }
        write!(f, "\nlost:")?;
        for lost in &self.lost {
            write!(f, "\n  {lost}")?;
        }
        Ok(())
    }
}

impl Repair<'_> {
    pub(super) fn lose(&mut self, keyspace: &str, meta: &TableMeta, why: &str) {
        self.report.tables_lost.push(LostTable {
            table: meta.id.0,
            keyspace: keyspace.to_string(),
            range: meta.range.to_string(),
            entries: meta.entries,
            why: why.to_string(),
        });
        self.report.key_ranges_lost.push(LostRange {
            keyspace: keyspace.to_string(),
            table: meta.id.0,
            first: meta.range.start.escape_ascii().to_string(),
            last: meta.range.end.escape_ascii().to_string(),
            first_key: meta.range.start.to_vec(),
            last_key: meta.range.end.to_vec(),
            why: why.to_string(),
        });
    }

    /// Says in words what was lost.
    pub(super) fn report_loss(&mut self) {
        let report = &mut self.report;
        let whole: HashSet<u64> = report.tables_lost.iter().map(|t| t.table).collect();
        for t in &report.tables_lost {
            report.lost.push(format!(
                "table {:06} of keyspace {:?}, {} entries, keys {}: {}",
                t.table, t.keyspace, t.entries, t.range, t.why
            ));
        }
        for r in report
            .key_ranges_lost
            .iter()
            .filter(|r| !whole.contains(&r.table))
        {
            let keyspace = match &r.keyspace[..] {
                "" => "a keyspace that is not known".to_string(),
                name => format!("keyspace {name:?}"),
            };
            report.lost.push(format!(
                "entries of table {:06} of {keyspace}, of keys from {} to {}: {}",
                r.table, r.first, r.last, r.why
            ));
        }
        if let Some((first, last)) = report.log_numbers_lost {
            let later = LATER[usize::from(report.log_numbers_lost_or_later)];
            report.lost.push(format!(
                "log entries numbered {first} to {last}{later}, but for those in tables"
            ));
        }
        if let Some(last) = report.log_start_unknown {
            report.lost.push(format!(
                "log entries numbered up to {last}, if there were any that are not in tables: nothing \
                 says where the log began"
            ));
        }
        if let Some(first) = report.log_end_unknown {
            report.lost.push(format!(
                "log entries numbered {first} and later, if there were any, but for those in tables: \
                 nothing says where the log ended"
            ));
        }
        if !report.key_ranges_lost.is_empty()
            || report.log_numbers_lost.is_some()
            || report.log_start_unknown.is_some()
            || report.log_end_unknown.is_some()
        {
            report.notes.push(
                "where entries were lost, older values of their keys may be back".to_string(),
            );
        }
    }
}
