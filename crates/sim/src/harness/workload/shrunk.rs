//! A store that is opened with less memory than its log was written with.

use thermocline::{Durability, LookupIndex, Options};

use super::{Act, History, Room, Setting, Shape, Workload, key, machine, play, put};
use crate::Dice;
use crate::contents::{Effect, fresh};

/// With little room, an eighth of the write buffer and one sealed memtable at a time.
pub(super) fn options(room: Room, options: Options) -> Options {
    let options = options
        .cuts(Vec::new())
        .table_bytes(32 << 10)
        .log_segment_bytes(128 << 10)
        .log_bytes_max(8 << 20)
        .block_cache_bytes(0)
        .lookup_index(LookupIndex::On);
    match room {
        Room::Plenty => options.write_buffer_bytes(2 << 20),
        Room::Little => options
            .write_buffer_bytes(256 << 10)
            .sealed_memtables_max(1)
            .sealed_memtables_total_max(1),
    }
}

impl Workload {
    /// Most of a large write buffer in the log, some of it overwritten or deleted, recovered with
    /// an eighth of it: the latest versions alone are kept, which is still too much, and is flushed
    /// before anybody writes.
    #[must_use]
    pub fn shrunk(seed: u64, mapped: bool) -> Workload {
        let mut dice = Dice(seed ^ 8);
        let setting = Setting {
            mapped,
            shape: Shape::Shrunk,
        };
        let mut acts = vec![Act::Open(Room::Plenty)];
        let mut many = |acts: &mut Vec<Act>, batches: u64| {
            for n in 0..batches {
                let value = |dice: &mut Dice| vec![dice.next() as u8; 20_000];
                let mut batch = vec![
                    put(format!("{}x{n}", key(dice.below(40))), value(&mut dice)),
                    put(key(dice.below(8)), value(&mut dice)),
                ];
                match n % 8 {
                    2 => batch.push(Effect::Delete("default".into(), key(n).into_bytes())),
                    5 => batch.push(Effect::DeleteRange(
                        "default".into(),
                        key(n).into_bytes(),
                        key(n + 2).into_bytes(),
                    )),
                    _ => {}
                }
                let durability = match n % 8 {
                    7 => Durability::Device,
                    _ => Durability::OperatingSystem,
                };
                acts.push(Act::Write(batch, durability));
            }
        };
        many(&mut acts, 34);
        let disk = machine(seed, mapped);
        let mut history = History::new(fresh());
        drop(play(&disk, &acts, setting, &mut history));
        let base = disk.fork(seed);
        let mut acts = vec![Act::Open(Room::Little)];
        many(&mut acts, 3);
        acts.push(Act::Step);
        Workload {
            name: "shrunk",
            seed,
            setting,
            base,
            before: history.now(),
            earlier: history.all(),
            acts,
        }
    }
}
