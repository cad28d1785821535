//! The byte encoding of edits.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use thermocline_model::key::SeqNo;
use thermocline_model::table::{TableId, TableMeta};
use thermocline_model::tier::TierId;
use thermocline_model::version::{KeyspaceId, RunId, Slot, Version};
use thermocline_model::{Ahead, Change, Cuts, Edit, Tiny, check_version, picture};

struct Dice(u64);

impl Dice {
    /// Numbers of all magnitudes.
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> (self.0 % 64)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.roll();
        self.0 % n
    }
}

fn random_table(dice: &mut Dice) -> Arc<TableMeta> {
    let mut table = picture::parse_table("#1[a..m)").unwrap();
    table.id = TableId(dice.roll());
    table.range.end_inclusive = dice.below(2) == 0;
    table.range.end = vec![b'm'; 1 + dice.below(9) as usize].into();
    (table.seq_min, table.seq_max) = (SeqNo(dice.roll()), SeqNo(dice.roll()));
    (table.entries, table.deletes) = (dice.roll(), dice.roll());
    (table.range_deletes, table.raw_bytes) = (dice.roll(), dice.roll());
    (table.dead_bytes, table.created_us) = (dice.roll(), dice.roll());
    table.data = vec![table.meta; dice.below(3) as usize];
    for extent in &mut table.data {
        extent.tier = TierId(dice.roll() as u32);
        extent.object.0 = dice.roll();
        extent.offset = dice.roll() / 2;
        extent.length = dice.roll() / 2;
        extent.checksum = dice.roll() as u32;
    }
    Arc::new(table)
}

fn random_change(dice: &mut Dice) -> Change {
    let keyspace = KeyspaceId(dice.roll() as u32);
    match dice.below(13) {
        11 => Change::SetAhead {
            keyspace,
            part: dice.roll() as u32,
            ahead: Ahead {
                start: vec![dice.below(256) as u8; dice.below(4) as usize].into(),
                end: (dice.below(2) == 0).then(|| vec![dice.below(256) as u8; 3].into()),
                flushed: SeqNo(dice.roll()),
            },
        },
        12 => Change::SetTiny {
            keyspace,
            part: dice.roll() as u32,
            duplicates: dice.roll() as u32,
            tiny: (0..dice.below(5))
                .map(|i| Tiny {
                    start: vec![i as u8; i as usize].into(),
                    writes: dice.roll(),
                })
                .collect(),
        },
        10 => Change::SetCuts {
            keyspace,
            cuts: Cuts::new(vec![vec![dice.below(256) as u8; 2].into()]).unwrap(),
        },
        0 => {
            let bounds = (0..dice.below(4)).map(|i| vec![b'a' + i as u8; 3].into());
            Change::AddKeyspace {
                keyspace,
                name: "n\u{e4}me".to_string(),
                cuts: Cuts::new(bounds.collect()).unwrap(),
            }
        }
        1 => Change::DropKeyspace { keyspace },
        2 => Change::AddTable {
            keyspace,
            slot: match dice.below(2) {
                0 => Slot::Newest(dice.roll() as u32),
                _ => Slot::Level(dice.roll() as u32),
            },
            run: RunId(dice.roll()),
            behind: Some(RunId(dice.roll())).filter(|r| r.0 % 2 == 1),
            table: random_table(dice),
        },
        3 => Change::RemoveTable {
            keyspace,
            table: TableId(dice.roll()),
        },
        4 => Change::ReplaceTable {
            keyspace,
            table: random_table(dice),
        },
        5 => Change::SetFlushed {
            keyspace,
            part: dice.roll() as u32,
            flushed: SeqNo(dice.roll()),
        },
        6 => Change::SetLogFloor {
            segment: dice.roll(),
        },
        7 => Change::SetLogReach {
            seq: SeqNo(dice.roll()),
        },
        8 => Change::SetLogBase {
            seq: SeqNo(dice.roll()),
        },
        _ => Change::SetCounters {
            next_id: dice.roll(),
            next_keyspace: dice.roll() as u32,
            last_seq: SeqNo(dice.roll()),
        },
    }
}

#[test]
fn edits_come_back_as_they_were() {
    let seed = 17;
    println!("seed {seed}");
    let mut dice = Dice(seed);
    for _ in 0..2000 {
        let count = dice.below(6);
        let edit = Edit {
            changes: (0..count).map(|_| random_change(&mut dice)).collect(),
        };
        assert_eq!(Edit::decode(&edit.encode()), Ok(edit));
    }
}

#[test]
fn spoilt_bytes_are_refused_or_read_but_never_panic() {
    let seed = 23;
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let base = picture::parse("cuts g | L0.0: #3[a..b] | L1: #2[a..z]").unwrap();
    for _ in 0..3000 {
        let count = 1 + dice.below(4);
        let edit = Edit {
            changes: (0..count).map(|_| random_change(&mut dice)).collect(),
        };
        let bytes = edit.encode();
        let short = dice.below(bytes.len() as u64) as usize;
        assert!(Edit::decode(&bytes[..short]).is_err(), "cut to {short}");
        let mut flipped = bytes.clone();
        for _ in 0..=dice.below(3) {
            let at = dice.below(bytes.len() as u64) as usize;
            flipped[at] ^= 1 << dice.below(8);
        }
        // Neither may what was read do harm when it is applied and checked.
        if let Ok(edit) = Edit::decode(&flipped)
            && let Ok(after) = edit.apply(&base)
        {
            let _ = thermocline_model::check_edit(&base, &edit, &after);
            let _ = check_version(&after);
        }
    }
}

#[test]
fn a_snapshot_makes_the_same_version_out_of_nothing() {
    for text in [
        "",
        "L7: #1[a..b]",
        "cuts g p | L0.0: #9[a..c] / #8[b..f) #7[f..g) / #6[a..b] | L0.2: #5[q..z] | L1: #4[a..b] | \
         L3: #3[a..m]{size=2M} #2[n..z] / #1[b..c]",
    ] {
        let mut version = picture::parse(text).unwrap();
        version.log_floor = 3.min(version.next_id);
        version.log_reach = version.last_seq;
        version.log_base = version.last_seq;
        check_version(&version).unwrap();
        let edit = Edit::snapshot(&version);
        let edit = Edit::decode(&edit.encode()).unwrap();
        let again = edit.apply(&Version::empty()).unwrap();
        assert_eq!(again, version);
        thermocline_model::check_edit(&Version::empty(), &edit, &again).unwrap();
    }
}

#[test]
fn the_encoding_is_the_one_documented() {
    let keyspace = KeyspaceId(300);
    let table = Arc::new(
        picture::parse_table(
            "#5[a..f){size=2K,seq=3..9,entries=7,deletes=1,ranges=2,meta=64,tier=1}",
        )
        .unwrap(),
    );
    // Number, range, flag, eight counts, the meta extent, one data extent.
    let table_bytes =
        "05 0161 0166 00 03 09 07 01 02 8010 00 00 00 05 00 40 00 01 01 05 00 8010 00";
    for (change, bytes) in [
        (
            Change::AddKeyspace {
                keyspace,
                name: "k".to_string(),
                cuts: Cuts::new(vec![(*b"g").into(), (*b"pq").into()]).unwrap(),
            },
            "01 ac02 016b 02 0167 027071".to_string(),
        ),
        (
            Change::SetCuts {
                keyspace,
                cuts: Cuts::new(vec![(*b"g").into(), (*b"pq").into()]).unwrap(),
            },
            "0b ac02 02 0167 027071".to_string(),
        ),
        (
            Change::SetAhead {
                keyspace,
                part: 2,
                ahead: Ahead {
                    start: (*b"g").into(),
                    end: Some((*b"pq").into()),
                    flushed: SeqNo(300),
                },
            },
            "0c ac02 02 0167 01 027071 ac02".to_string(),
        ),
        (
            Change::SetAhead {
                keyspace,
                part: 2,
                ahead: Ahead {
                    start: Box::default(),
                    end: None,
                    flushed: SeqNo(1),
                },
            },
            "0c ac02 02 00 00 01".to_string(),
        ),
        (
            Change::SetTiny {
                keyspace,
                part: 2,
                duplicates: 3,
                tiny: vec![
                    Tiny {
                        start: Box::default(),
                        writes: 300,
                    },
                    Tiny {
                        start: (*b"pq").into(),
                        writes: 0,
                    },
                ],
            },
            "0d ac02 02 03 02 00 ac02 027071 00".to_string(),
        ),
        (Change::DropKeyspace { keyspace }, "02 ac02".to_string()),
        (
            Change::AddTable {
                keyspace,
                slot: Slot::Newest(2),
                run: RunId(128),
                behind: None,
                table: Arc::clone(&table),
            },
            format!("03 ac02 00 02 8001 00 {table_bytes}"),
        ),
        (
            Change::RemoveTable {
                keyspace,
                table: TableId(5),
            },
            "04 ac02 05".to_string(),
        ),
        (
            Change::ReplaceTable { keyspace, table },
            format!("05 ac02 {table_bytes}"),
        ),
        (
            Change::SetFlushed {
                keyspace,
                part: 1,
                flushed: SeqNo(1000),
            },
            "06 ac02 01 e807".to_string(),
        ),
        (Change::SetLogFloor { segment: 12 }, "07 0c".to_string()),
        (
            Change::SetLogReach { seq: SeqNo(1000) },
            "09 e807".to_string(),
        ),
        (
            Change::SetLogBase { seq: SeqNo(1000) },
            "0a e807".to_string(),
        ),
        (
            Change::SetCounters {
                next_id: 13,
                next_keyspace: 301,
                last_seq: SeqNo(1000),
            },
            "08 0d ad02 e807".to_string(),
        ),
    ] {
        let edit = Edit::of(change);
        let hex: String = edit.encode().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, format!("01{}", bytes.replace(' ', "")), "{edit:?}");
        assert_eq!(Edit::decode(&edit.encode()), Ok(edit));
    }
}
