//! What a tracker knows of each table: a list by ascending number, since at every look
//! all of it is gone through, and little is searched for.

use thermocline_model::table::{TableId, TableMeta};
use thermocline_model::version::Version;

/// Room for tables that inherit before they are in a version, so that all is not moved
/// for them.
const HEIRS: usize = 64;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Known<T> {
    tables: Vec<(TableId, T)>,
    /// The tables of the version last followed, in its order.
    version: Vec<TableId>,
}

impl<T> Default for Known<T> {
    fn default() -> Known<T> {
        Known {
            tables: Vec::new(),
            version: Vec::new(),
        }
    }
}

impl<T> Known<T> {
    fn position(&self, table: TableId) -> Result<usize, usize> {
        self.tables.binary_search_by_key(&table, |known| known.0)
    }

    pub(crate) fn get(&self, table: TableId) -> Option<&T> {
        self.position(table).ok().map(|at| &self.tables[at].1)
    }

    pub(crate) fn get_mut(&mut self, table: TableId) -> Option<&mut T> {
        self.position(table).ok().map(|at| &mut self.tables[at].1)
    }

    /// Puts `value` in the place of what was known of `table`, if anything was.
    pub(crate) fn insert(&mut self, table: TableId, value: T) {
        match self.position(table) {
            Ok(at) => self.tables[at].1 = value,
            Err(at) => self.tables.insert(at, (table, value)),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(TableId, T)> {
        self.tables.iter()
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.tables.iter_mut().map(|known| &mut known.1)
    }

    /// Memory of the list, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let tables = self.tables.capacity() * size_of::<(TableId, T)>();
        (tables + self.version.capacity() * size_of::<TableId>()) as u64
    }

    /// Ensures: it is known of the tables of `version` and of no others; of one that was
    /// not, what `born` makes.
    pub(crate) fn follow(&mut self, version: &Version, mut born: impl FnMut(&TableMeta) -> T) {
        let mut tables: Vec<(TableId, &TableMeta)> = Vec::with_capacity(self.tables.len());
        for keyspace in version.keyspaces.values() {
            let newest = keyspace.parts.iter().map(|p| &p.newest);
            for run in newest.chain(&keyspace.levels).flat_map(|l| &l.runs) {
                tables.extend(run.tables.iter().map(|t| (t.id, &**t)));
            }
        }
        let ids = tables.iter().map(|(id, _)| *id);
        if self.tables.len() == tables.len() && ids.clone().eq(self.version.iter().copied()) {
            return;
        }
        self.version = ids.collect();
        tables.sort_unstable_by_key(|(id, _)| *id);
        let mut before = std::mem::take(&mut self.tables).into_iter().peekable();
        self.tables = Vec::with_capacity(tables.len() + HEIRS);
        self.tables.extend(tables.into_iter().map(|(id, table)| {
            while before.next_if(|known| known.0 < id).is_some() {}
            let known = before.next_if(|known| known.0 == id);
            known.unwrap_or_else(|| (id, born(table)))
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_model::picture;

    #[test]
    fn what_is_known_follows_the_version_whatever_the_order_of_its_tables() {
        let mut known = Known::default();
        let mut follow = |text: &str, mark: u64| -> Vec<(u64, u64)> {
            let version = picture::parse(text).unwrap();
            known.follow(&version, |table| 100 * mark + table.id.0);
            assert_eq!(known.get(TableId(4)).is_some(), text.contains("#4"));
            known.iter().map(|(id, value)| (id.0, *value)).collect()
        };
        assert_eq!(follow("L1: #7[a..c] #2[d..f]", 1), [(2, 102), (7, 107)]);
        let both = "L1: #4[a..c] | L2: #9[a..b] #2[d..f] #3[g..h]";
        let four = [(2, 102), (3, 203), (4, 204), (9, 209)];
        assert_eq!(follow(both, 2), four);
        assert_eq!(follow(both, 3), four, "nothing is born twice");
        assert_eq!(follow("L2: #9[a..b]", 4), [(9, 209)]);
        assert_eq!(follow("", 5), []);
    }

    #[test]
    fn what_never_came_into_a_version_is_forgotten() {
        let version = picture::parse("L1: #1[a..c]").unwrap();
        let mut known = Known::default();
        known.follow(&version, |_| 1);
        known.insert(TableId(2), 2);
        known.follow(&version, |_| 3);
        let all: Vec<_> = known.iter().map(|(id, value)| (id.0, *value)).collect();
        assert_eq!(all, [(1, 1)]);
    }
}
