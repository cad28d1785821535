//! Keeping the version of a manifest that can be read: every table stays in its
//! place, or gives it to what could be read of it.

use std::sync::Arc;

use thermocline_model::key::SeqNo;
use thermocline_model::version::Version;

use super::Repair;
use crate::error::Result;
use crate::verify::Examined;
use crate::version::remains::Remains;

impl Repair<'_> {
    /// The manifest can be read: its version stands, but for damaged tables.
    pub(super) fn keep_places(
        &mut self,
        remains: &Remains,
        examined: &Examined,
    ) -> Result<Version> {
        self.identify(remains.header.as_ref())?;
        let mut version = remains.version.clone().unwrap_or_else(Version::empty);
        self.next_id = self.next_id.max(version.next_id);
        self.mark()?;
        self.last_seq = version.last_seq;
        let read = examined.manifest.is_some();
        for keyspace in version.keyspaces.values_mut() {
            let keyspace = Arc::make_mut(keyspace);
            let name = keyspace.name.clone();
            let newest = keyspace.parts.iter_mut().map(|p| &mut p.newest);
            for level in newest.chain(&mut keyspace.levels) {
                for run in &mut level.runs {
                    let mut tables = Vec::with_capacity(run.tables.len());
                    for table in &run.tables {
                        let sound = if read {
                            !examined.damaged.contains(&table.id.0)
                        } else {
                            self.is_sound(table)
                        };
                        if sound {
                            self.report.tables_kept += 1;
                            tables.push(Arc::clone(table));
                        } else {
                            tables.extend(self.rescue(&name, table)?);
                        }
                        self.meter.add(table.size_bytes());
                    }
                    run.tables = tables;
                }
                level.runs.retain(|r| !r.tables.is_empty());
            }
            while keyspace.levels.last().is_some_and(|l| l.runs.is_empty()) {
                keyspace.levels.pop();
            }
        }
        let log = self.read_log(
            version.log_floor,
            version.log_base,
            version.log_reach,
            false,
        )?;
        // What the log lacks of it has been reported.
        version.log_reach = SeqNo::ZERO;
        self.last_seq = self.last_seq.max(log.last);
        if log.is_damaged {
            self.cut_log(version.log_floor, &log)?;
        }
        Ok(version)
    }
}
