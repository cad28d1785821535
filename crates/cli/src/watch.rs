//! Rows of a store's pulse over time, as `stat --watch`, `replay` and `demo` print
//! them: price, places, and where reads are served.

use std::io;

use crate::columns::Columns;
use crate::engine::{PartsPulse, Pulse};
use crate::human;

/// A line on parts, of a store that has several or one that is duplicated.
pub(crate) fn parts_line(parts: &PartsPulse) -> Option<String> {
    if parts.parts < 2 && parts.duplicates == 0 {
        return None;
    }
    let percent = |share: f64| format!("{:.2}%", 100.0 * share);
    let shares = match (
        parts.write_share_min,
        parts.write_share_max,
        parts.imbalance,
    ) {
        (Some(min), Some(max), Some(deviation)) => format!(
            "{} to {} of writes each, deviation {}",
            percent(min),
            percent(max),
            percent(deviation)
        ),
        _ => "no writes".to_string(),
    };
    Some(format!(
        "  {} parts: {shares}; memtables {} active, {} sealed; {} duplicates; cuts moved {} times",
        parts.parts, parts.active_memtables, parts.sealed_memtables, parts.duplicates, parts.recuts
    ))
}

/// The cells of a pulse. Columns of the caller's may come before them.
pub(crate) struct Rows {
    columns: Columns,
}

impl Rows {
    /// For a store with the tiers of `pulse`, behind the columns `before`, each with
    /// its least width.
    pub(crate) fn new(before: &[(&str, usize)], pulse: &Pulse) -> Rows {
        let names: Vec<String> = pulse
            .tiers
            .iter()
            .map(|tier| crate::text::escape(tier.name.as_bytes()))
            .collect();
        let mut columns = before.to_vec();
        columns.extend([("memtable", 8), ("cache", 6)]);
        columns.extend(names.iter().map(|name| (name.as_str(), 6)));
        columns.extend([("bytes fast", 10), ("moved", 9), ("USD/GB", 6)]);
        columns.push(("target", 6));
        Rows {
            columns: Columns::new(&columns),
        }
    }

    /// Prints the titles.
    pub(crate) fn header(&self, out: &mut dyn io::Write) -> io::Result<()> {
        self.columns.header(out)
    }

    /// Prints a row: the cells `before`, then those of `delta`, whose counts are those
    /// of the row's time.
    pub(crate) fn row(
        &self,
        out: &mut dyn io::Write,
        before: Vec<String>,
        delta: &Pulse,
    ) -> io::Result<()> {
        let hits = delta.hits();
        let mut cells = before;
        cells.push(human::percent(delta.memtable_hits, hits));
        cells.push(human::percent(delta.cached_hits, hits));
        let tiers = delta.tiers.iter();
        cells.extend(tiers.map(|tier| human::percent(tier.hits, hits)));
        cells.push(format!("{:.1}%", 100.0 * delta.fast_share));
        // From tier to tier: most of what merges write stays on its own.
        let moved = delta.migrated_bytes + delta.migrations_saved_bytes;
        cells.push(human::bytes(moved));
        cells.push(format!("{:.4}", delta.price_usd_gb_month));
        cells.push(
            delta
                .target_usd_gb_month
                .map_or("-".to_string(), |t| t.to_string()),
        );
        self.columns.row(out, &cells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // All that merges wrote counted as moved, most of which had stayed on its tier.
    #[test]
    fn moved_is_what_changed_its_tier() {
        let delta = Pulse {
            merged_bytes: 64 << 20,
            migrated_bytes: 3 << 20,
            migrations_saved_bytes: 1 << 20,
            ..Pulse::default()
        };
        let mut out = Vec::new();
        let rows = Rows::new(&[], &delta);
        rows.row(&mut out, Vec::new(), &delta).unwrap();
        let row = String::from_utf8(out).unwrap();
        assert!(row.contains("4.0 MiB"), "{row}");
    }
}
