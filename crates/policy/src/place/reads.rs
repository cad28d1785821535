//! Where on the line of keys tables are read.
//!
//! A wide table has keys from everywhere, and where it is read nobody counted. But reads of
//! neighbours go together: it is read where the narrow tables are that have the same keys'
//! neighbours, those of all levels taken together. By bytes that would not be so: a level that has
//! taken much of what is written has more bytes there. Where bytes are asked for, and of that level
//! alone, they serve as reads do.

/// Reads by key, of tables that each are read evenly over their interval.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ReadsByKey {
    /// Where tables begin and end, in ascending order.
    at: Vec<f64>,
    /// Reads up to there,
    reads: Vec<f64>,
    /// and how much of the line has a table.
    covered: Vec<f64>,
}

impl ReadsByKey {
    /// Of tables with their start, their width, which is above 0, and their reads, in any unit.
    #[must_use]
    pub fn of(tables: impl IntoIterator<Item = ((f64, f64), f64)>) -> ReadsByKey {
        let mut ends = Vec::new();
        for ((start, width), reads) in tables {
            ends.push((start, reads / width, 1));
            ends.push((start + width, -reads / width, -1));
        }
        ends.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let mut by_key = ReadsByKey::default();
        let (mut before, mut density, mut tables) = (f64::NEG_INFINITY, 0.0, 0);
        let (mut reads, mut covered) = (0.0, 0.0);
        for (at, change, count) in ends {
            if tables > 0 {
                reads += (at - before) * density;
                covered += at - before;
            } else {
                // What is left of sums that should be nothing.
                density = 0.0;
            }
            (before, density, tables) = (at, f64::max(density + change, 0.0), tables + count);
            by_key.at.push(at);
            by_key.reads.push(reads);
            by_key.covered.push(covered);
        }
        by_key
    }

    /// Reads from `low` to `high`.
    #[must_use]
    pub fn between(&self, low: f64, high: f64) -> f64 {
        (self.up_to(&self.reads, high) - self.up_to(&self.reads, low)).max(0.0)
    }

    /// Reads for a unit of the line from `low` to `high`; `None` where no table is.
    #[must_use]
    pub fn density(&self, low: f64, high: f64) -> Option<f64> {
        let between = |sums: &[f64]| self.up_to(sums, high) - self.up_to(sums, low);
        let covered = between(&self.covered);
        (covered > 0.0).then(|| (between(&self.reads) / covered).max(0.0))
    }

    /// What each of `parts` has of a table that lies at `whole`, in any unit: by how
    /// much of it lies there, and how much is read there. Without any reads, by the first
    /// alone.
    #[must_use]
    pub fn shares(&self, whole: (f64, f64), parts: &[(f64, f64)]) -> Vec<f64> {
        let (low, high) = (whole.0, whole.0 + whole.1);
        let mean = self.density(low, high).unwrap_or(0.0);
        let within = |part: &(f64, f64)| (part.0.max(low), (part.0 + part.1).min(high));
        let width = |(low, high): (f64, f64)| (high - low).max(0.0) / whole.1;
        let read = |part: &(f64, f64)| {
            let (low, high) = within(part);
            width((low, high)) * self.density(low, high).unwrap_or(mean)
        };
        let shares: Vec<f64> = parts.iter().map(read).collect();
        match shares.iter().any(|share| *share > 0.0) {
            true => shares,
            false => parts.iter().map(|part| width(within(part))).collect(),
        }
    }

    /// Where tables begin and end.
    #[must_use]
    pub fn ends(&self) -> &[f64] {
        &self.at
    }

    fn up_to(&self, sums: &[f64], place: f64) -> f64 {
        let after = self.at.partition_point(|at| *at <= place);
        match (after.checked_sub(1), self.at.get(after)) {
            (None, _) => 0.0,
            (Some(last), None) => sums[last],
            (Some(last), Some(next)) => {
                let share = (place - self.at[last]) / (next - self.at[last]);
                sums[last] + share * (sums[after] - sums[last])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_all_levels_are_read_where_they_lie() {
        // 0..10 has 10 reads and 5..15 has 40; nothing lies at 15..20.
        let tables = [((0.0, 10.0), 10.0), ((5.0, 10.0), 40.0), ((20.0, 2.0), 0.0)];
        let by_key = ReadsByKey::of(tables);
        assert_eq!(by_key.density(0.0, 5.0), Some(1.0));
        assert_eq!(by_key.density(5.0, 10.0), Some(5.0));
        assert_eq!(by_key.density(0.0, 15.0), Some(50.0 / 15.0));
        assert_eq!(by_key.density(2.0, 8.0), Some((3.0 + 15.0) / 6.0));
        assert_eq!(by_key.density(15.0, 20.0), None);
        assert_eq!(
            by_key.density(14.0, 22.0),
            Some(4.0 / 3.0),
            "of what is covered"
        );
        assert_eq!(by_key.density(20.0, 30.0), Some(0.0));
        assert_eq!(by_key.density(30.0, 40.0), None);
        assert_eq!(by_key.density(-5.0, 0.0), None);
        assert_eq!(by_key.density(3.0, 3.0), None);
        assert_eq!(ReadsByKey::default().density(0.0, 1.0), None);
        let parts = [(0.0, 5.0), (5.0, 5.0), (15.0, 5.0), (30.0, 5.0)];
        // What lies apart from all tables has the mean of all.
        let shares = by_key.shares((0.0, 20.0), &parts);
        assert_eq!(shares, [0.25, 1.25, 0.25 * 50.0 / 15.0, 0.0]);
        let shares = ReadsByKey::default().shares((0.0, 20.0), &parts);
        assert_eq!(shares, [0.25, 0.25, 0.25, 0.0]);
    }
}
