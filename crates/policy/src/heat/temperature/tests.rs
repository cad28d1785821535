use super::*;
use thermocline_model::picture;

const SECOND: u64 = 1_000_000;
const START: u64 = 1 << 40;

fn tracker(cooling_coefficient: f64) -> Temperature {
    Temperature::new(HeatOptions {
        epoch_us: SECOND,
        cooling_coefficient,
        cooling_from_start: true,
    })
}

fn averaging(cooling_coefficient: f64) -> Temperature {
    Temperature::new(HeatOptions {
        epoch_us: SECOND,
        cooling_coefficient,
        cooling_from_start: false,
    })
}

fn read(tracker: &Temperature, table: u64, block_reads: u64) {
    tracker.touch(&Access {
        key: b"",
        table: TableId(table),
        delta: TableHeat {
            block_reads,
            ..TableHeat::default()
        },
    });
}

fn version(text: &str) -> Version {
    picture::parse(text).unwrap()
}

/// Of 1 MiB and of 4 MiB.
fn two() -> Version {
    version("L7: #1[a..f]{size=1048575} #2[g..z]{size=4194303}")
}

fn temperature(heat: &HeatMap, table: u64) -> Option<f64> {
    heat[&TableId(table)].temperature
}

#[test]
fn temperatures_follow_equation_4_from_the_first_whole_epoch_on() {
    let (tracker, version) = (tracker(0.75), two());
    let at = |second: u64| tracker.sample(&version, START + second * SECOND);
    assert_eq!(temperature(&at(0), 1), None);
    read(&tracker, 1, 80);
    read(&tracker, 2, 80);
    let heat = at(1);
    assert_eq!(temperature(&heat, 1), Some(80.0), "accesses / size");
    assert_eq!(temperature(&heat, 2), Some(20.0), "normalised by size");
    read(&tracker, 1, 40);
    let heat = at(2);
    assert_eq!(temperature(&heat, 1), Some(0.25 * 40.0 + 0.75 * 80.0));
    assert_eq!(temperature(&heat, 2), Some(0.75 * 20.0));
    // Within an epoch nothing changes.
    read(&tracker, 1, 1000);
    let heat = tracker.sample(&version, START + 2 * SECOND + SECOND / 2);
    assert_eq!(temperature(&heat, 1), Some(70.0));
}

#[test]
fn a_temperature_is_a_mean_until_that_is_as_long_as_the_coefficient_remembers() {
    let (tracker, version) = (averaging(0.75), two());
    let at = |second: u64| tracker.sample(&version, START + second * SECOND);
    at(0);
    let mut heat = HeatMap::new();
    for (epoch, reads) in [80, 40, 0, 0].into_iter().enumerate() {
        read(&tracker, 1, reads);
        read(&tracker, 2, 80 - reads);
        heat = at(epoch as u64 + 1);
        let shown = [80.0, 60.0, 40.0, 30.0][epoch];
        assert!((temperature(&heat, 1).unwrap() - shown).abs() < 1e-9);
    }
    read(&tracker, 1, 130);
    heat.extend(at(5));
    assert_eq!(temperature(&heat, 1), Some(0.25 * 130.0 + 0.75 * 30.0));
    // Two epochs at once, of a table known from one.
    let tracker = averaging(0.75);
    tracker.sample(&version, START);
    read(&tracker, 1, 90);
    tracker.sample(&version, START + SECOND);
    read(&tracker, 2, 180);
    let heat = tracker.sample(&version, START + 3 * SECOND);
    assert!((temperature(&heat, 1).unwrap() - 90.0 / 3.0).abs() < 1e-9);
}

/// After a merge of flushes into a level that had nothing where the hot keys were, its
/// hottest outputs were taken for cold, and lay on the slow tier for minutes.
#[test]
fn what_comes_of_a_wide_table_is_read_where_the_level_below_is_and_soon_shows_it() {
    let tracker = averaging(0.999);
    let before = version(
        "L1: #9[a..y]{size=1M} / #10[a..y] | L6: #1[u..v]{size=1M} #2[v..w]{size=1M} \
         #3[w..x]{size=1M} #4[x..y]{size=1M} | L7: #21[a..g]{size=1M} #22[g..m]{size=1M} \
         #23[m..y]{size=1M}",
    );
    tracker.sample(&before, START);
    for (table, reads) in [(9, 1000), (1, 1), (4, 1), (21, 900), (22, 90), (23, 10)] {
        read(&tracker, table, reads);
    }
    tracker.sample(&before, START + SECOND);
    let after = version(
        "L6: #5[a..g]{size=1M} #6[g..m]{size=1M} #7[m..v]{size=1M} #8[v..y]{size=1M} | L7: \
         #21[a..g]{size=1M} #22[g..m]{size=1M} #23[m..y]{size=1M}",
    );
    let level = |v: &Version, level: usize| {
        let keyspace = v.keyspaces.values().next().unwrap();
        keyspace.levels[level].tables().cloned().collect::<Vec<_>>()
    };
    let parents = [level(&before, 0), level(&before, 5)].concat();
    tracker.inherit(&parents, &level(&after, 5), &level(&after, 6));
    let heat = tracker.sample(&after, START + SECOND + 1);
    let chance = heat[&TableId(5)].temperature_of_one;
    assert!(chance > 0.5, "known from one epoch: {chance}");
    let of = |heat: &HeatMap, table| temperature(heat, table).unwrap();
    assert!(of(&heat, 5) > 800.0, "{heat:?}");
    assert!((50.0..150.0).contains(&of(&heat, 6)), "{heat:?}");
    assert!(of(&heat, 8) < 50.0, "{heat:?}");
    // The guess was wrong. Tables that are known from long before do not forget so soon.
    for second in 2..12 {
        read(&tracker, 6, 500);
        tracker.sample(&after, START + second * SECOND);
    }
    let heat = tracker.sample(&after, START + 12 * SECOND);
    assert!(of(&heat, 5) < 100.0 && of(&heat, 6) > 400.0, "{heat:?}");
}

#[test]
fn what_comes_of_tables_known_to_be_cold_is_known_to_be_so() {
    let tracker = averaging(0.999);
    let before = version(
        "L6: #1[a..m]{size=1M} | L7: #2[a..f]{size=1M} #3[g..m]{size=1M} #8[n..z]{size=1M}",
    );
    for second in 0..100 {
        read(&tracker, 8, 99);
        tracker.sample(&before, START + second * SECOND);
    }
    let after = version("L7: #4[a..f]{size=1M} #5[g..m]{size=1M} #8[n..z]{size=1M}");
    let tables = |v: &Version| v.tables().cloned().collect::<Vec<_>>();
    tracker.inherit(&tables(&before)[..3], &tables(&after)[..2], &[]);
    read(&tracker, 4, 1);
    read(&tracker, 8, 99);
    let heat = tracker.sample(&after, START + 100 * SECOND);
    let shown = temperature(&heat, 4).unwrap();
    assert!((0.009..0.011).contains(&shown), "{shown}");
}

/// Both tables are of 1 MiB.
const PAIR: &str = "L7: #1[a..f]{size=1048575} #2[g..z]{size=1048575}";

#[test]
fn a_hot_set_that_has_moved_is_known_in_seconds_and_by_the_equation_in_minutes() {
    let (shifting, equation, version) = (averaging(0.999), tracker(0.999), version(PAIR));
    for tracker in [&shifting, &equation] {
        let mut heat = tracker.sample(&version, START);
        for second in 1..=1010 {
            let (hot, cold) = if second <= 1000 { (1, 2) } else { (2, 1) };
            read(tracker, hot, 100);
            read(tracker, cold, 1);
            heat = tracker.sample(&version, START + second * SECOND);
        }
        let [was, is] = [1, 2].map(|table| temperature(&heat, table).unwrap());
        match std::ptr::eq(tracker, &raw const shifting) {
            true => assert!(was < 5.0 && is > 90.0, "{was}, {is}"),
            false => assert!(was > 90.0 && is < 5.0, "{was}, {is}"),
        }
    }
}

#[test]
fn a_store_that_nobody_reads_for_a_night_keeps_what_it_knows() {
    let (tracker, version) = (averaging(0.999), version(PAIR));
    tracker.sample(&version, START);
    for second in 1..=100 {
        read(&tracker, 1, 90);
        read(&tracker, 2, 10);
        tracker.sample(&version, START + second * SECOND);
    }
    let night = START + 8 * 3600 * SECOND;
    for second in 0..8 * 3600 {
        tracker.sample(&version, START + (101 + second) * SECOND);
    }
    // One read tells nothing beside a hundred seconds of them.
    read(&tracker, 2, 1);
    let heat = tracker.sample(&version, night + 200 * SECOND);
    let [hot, cold] = [1, 2].map(|table| temperature(&heat, table).unwrap());
    assert!((8.5..9.5).contains(&(hot / cold)), "{hot}, {cold}");
    let chance = heat[&TableId(1)].temperature_of_one / hot;
    assert!(
        (chance * 9000.0 - 1.0).abs() < 0.01,
        "of 9,000 reads: {chance}"
    );
}

#[test]
fn tables_known_from_other_times_are_compared_by_their_share_of_all_reads() {
    let (tracker, before) = (averaging(0.999), version(PAIR));
    tracker.sample(&before, START);
    for second in 1..=100 {
        read(&tracker, 1, 100);
        read(&tracker, 2, 900);
        tracker.sample(&before, START + second * SECOND);
    }
    // Then a hundredth is read, half of it of a table that was not there.
    let after = version(&format!("{PAIR} | L6: #3[a..f]{{size=1048575}}"));
    let mut heat = tracker.sample(&after, START + 100 * SECOND);
    for second in 101..=110 {
        read(&tracker, 2, 5);
        read(&tracker, 3, 5);
        heat = tracker.sample(&after, START + second * SECOND);
    }
    let [one, new] = [1, 3].map(|table| temperature(&heat, table).unwrap());
    assert!((4.5..5.5).contains(&(new / one)), "{one}, {new}");
}

/// After a load many tables are known from epochs in which nobody read anything.
#[test]
fn what_is_known_from_no_reads_takes_nothing_from_what_it_is_merged_with() {
    let tracker = averaging(0.999);
    let before = version("L6: #1[a..m]{size=1M} | L7: #2[a..f]{size=1M} #3[g..m]{size=1M}");
    let without = version("L7: #2[a..f]{size=1M} #3[g..m]{size=1M}");
    tracker.sample(&without, START);
    for second in 1..=100 {
        read(&tracker, 2, 90);
        read(&tracker, 3, 10);
        tracker.sample(&without, START + second * SECOND);
    }
    for second in 100..103 {
        tracker.sample(&before, START + second * SECOND);
    }
    let after = version("L7: #4[a..f]{size=1M} #5[g..m]{size=1M}");
    let tables = |v: &Version| v.tables().cloned().collect::<Vec<_>>();
    // In the order that could take something: what nobody read comes last.
    let mut parents = tables(&before);
    parents.reverse();
    tracker.inherit(&parents, &tables(&after), &[]);
    let heat = tracker.sample(&after, START + 102 * SECOND);
    let [hot, cold] = [4, 5].map(|table| temperature(&heat, table).unwrap());
    assert!((8.9..9.1).contains(&(hot / cold)), "{hot}, {cold}");
    // Nor is what comes of such tables alone taken for new, and so for hottest.
    let tracker = averaging(0.999);
    for second in 0..3 {
        tracker.sample(&before, START + second * SECOND);
    }
    tracker.inherit(&tables(&before), &tables(&after), &[]);
    let heat = tracker.sample(&after, START + 2 * SECOND);
    assert_eq!(
        [4, 5].map(|table| temperature(&heat, table)),
        [Some(0.0); 2]
    );
}

#[test]
fn a_night_between_a_closing_and_an_opening_is_forgotten_and_not_what_was_before() {
    let (first, version) = (averaging(0.999), version(PAIR));
    first.sample(&version, START);
    for second in 1..=100 {
        read(&first, 1, 90);
        read(&first, 2, 10);
        first.sample(&version, START + second * SECOND);
    }
    for second in 101..30_000 {
        first.sample(&version, START + second * SECOND);
    }
    let second = averaging(0.999);
    second.restore(&first.save());
    let opened = START + 30_000 * SECOND;
    second.sample(&version, opened);
    read(&second, 2, 1);
    let heat = second.sample(&version, opened + SECOND);
    let [hot, cold] = [1, 2].map(|table| temperature(&heat, table).unwrap());
    assert!((8.5..9.5).contains(&(hot / cold)), "{hot}, {cold}");
}

#[test]
fn a_backup_does_not_make_cold_what_is_read_beside_it() {
    let tracker = averaging(0.999);
    let tables: Vec<String> = (2..40)
        .map(|t| format!("#{t}[b{t}..b{t}z]{{size=1M}}"))
        .collect();
    let version = version(&format!("L7: #1[a..b]{{size=1M}} {}", tables.join(" ")));
    let mut heat = tracker.sample(&version, START);
    for second in 1..=300 {
        read(&tracker, 1, 50);
        match second {
            200..230 => read(&tracker, second - 198, 2000),
            _ => read(&tracker, 2 + second % 38, 50),
        }
        heat = tracker.sample(&version, START + second * SECOND);
        if second >= 100 {
            let hot = temperature(&heat, 1).unwrap();
            let hotter = (2..40).filter(|&t| temperature(&heat, t).unwrap() > hot);
            assert_eq!(hotter.count(), 0, "after {second} s");
        }
    }
    assert!(temperature(&heat, 1).unwrap() > 10.0);
}

#[test]
fn a_table_of_half_an_epoch_has_no_temperature_yet() {
    let tracker = tracker(0.5);
    tracker.sample(&Version::empty(), START);
    let version = two();
    tracker.sample(&version, START + SECOND / 2);
    read(&tracker, 1, 30);
    let heat = tracker.sample(&version, START + SECOND);
    assert_eq!(temperature(&heat, 1), None);
    let heat = tracker.sample(&version, START + 2 * SECOND);
    assert_eq!(temperature(&heat, 1), Some(20.0), "30 in one and a half");
}

#[test]
fn epochs_that_nobody_looked_at_are_made_up_for_up_to_a_bound() {
    let (tracker, version) = (tracker(0.5), two());
    tracker.sample(&version, START);
    read(&tracker, 1, 64);
    tracker.sample(&version, START + SECOND);
    read(&tracker, 1, 64);
    // Two epochs of 32 each.
    let heat = tracker.sample(&version, START + 3 * SECOND);
    assert_eq!(temperature(&heat, 1), Some(0.75 * 32.0 + 0.25 * 64.0));
}

#[test]
fn a_clock_that_jumps_does_no_harm() {
    let (tracker, version) = (tracker(0.999), two());
    tracker.sample(&version, START);
    read(&tracker, 1, 100);
    tracker.sample(&version, START + SECOND);
    // A century ahead: a minute's worth of cooling.
    let ahead = START + 100 * 365 * 86_400 * SECOND;
    let heat = tracker.sample(&version, ahead);
    let value = temperature(&heat, 1).unwrap();
    assert!((94.0..95.0).contains(&value), "{value}");
    // And back to the beginning of time: nothing, and then it goes on.
    assert_eq!(temperature(&tracker.sample(&version, 5), 1), Some(value));
    let heat = tracker.sample(&version, 5 + SECOND);
    assert_eq!(temperature(&heat, 1), Some(value * 0.999));
    let heat = tracker.sample(&version, u64::MAX);
    assert!(temperature(&heat, 1).unwrap() > value * 0.9);
}

#[test]
fn merge_outputs_inherit_by_key_interval() {
    let tracker = tracker(0.999);
    let before =
        version("L6: #1[a..m]{size=1048575} | L7: #2[a..f]{size=1048575} #3[g..m]{size=1048575}");
    tracker.sample(&before, START);
    read(&tracker, 1, 10);
    read(&tracker, 2, 100);
    tracker.sample(&before, START + SECOND);
    let after = version("L7: #4[a..f]{size=1048575} #5[g..m]{size=1048575}");
    let tables = |v: &Version| v.tables().cloned().collect::<Vec<_>>();
    tracker.inherit(&tables(&before), &tables(&after), &[]);
    let heat = tracker.sample(&after, START + SECOND + 1);
    // Half of table 1 each, and all of table 2.
    assert_eq!(temperature(&heat, 4), Some(105.0));
    assert_eq!(temperature(&heat, 5), Some(5.0));
    let sum: f64 = tracker.save().iter().map(|(_, t)| t).sum();
    assert_eq!(sum, 110.0, "the parents are forgotten");
}

/// On emulated devices, five reads in a hundred operations being writes: each merge of
/// flushes into the level below made all of its outputs as hot as the flushes were on
/// average, and they drove tables from the fast tier that were read.
#[test]
fn the_reads_of_a_wide_table_are_inherited_where_narrow_ones_are_read() {
    let tracker = tracker(0.999);
    let before = version(
        "L1: #9[a..y]{size=1048575} | L6: #1[a..g]{size=1048575} #2[g..m]{size=1048575} \
         #3[m..s]{size=1048575} #4[s..y]{size=1048575}",
    );
    tracker.sample(&before, START);
    for (table, reads) in [(9, 1000), (1, 80), (2, 15), (3, 5)] {
        read(&tracker, table, reads);
    }
    tracker.sample(&before, START + SECOND);
    let after = version(
        "L6: #5[a..g]{size=1048575} #6[g..m]{size=1048575} #7[m..s]{size=1048575} \
         #8[s..y]{size=1048575}",
    );
    let tables = |v: &Version| v.tables().cloned().collect::<Vec<_>>();
    tracker.inherit(&tables(&before), &tables(&after), &[]);
    let heat = tracker.sample(&after, START + SECOND + 1);
    let temperatures = [5, 6, 7, 8].map(|table| temperature(&heat, table).unwrap());
    for (found, wanted) in temperatures.into_iter().zip([880.0, 165.0, 55.0, 0.0]) {
        assert!((found - wanted).abs() < 1e-6, "{temperatures:?}");
    }
}

/// The narrow tables lay at the end of the keys, and each output there was as large as the
/// one that had all other keys.
#[test]
fn a_wide_table_is_inherited_by_where_its_keys_are_not_by_how_large_the_children_are() {
    let tracker = tracker(0.999);
    let before = version(
        "L1: #9[a..y]{size=1M} / #10[a..y] / #11[a..y] / #12[a..y] / #13[a..y] | L6: #1[u..v]{size=1M} #2[v..w]{size=1M} #3[w..x]{size=1M} \
         #4[x..y]{size=1M}",
    );
    tracker.sample(&before, START);
    for (table, reads) in [(9, 1000), (1, 1), (2, 1), (3, 1), (4, 1)] {
        read(&tracker, table, reads);
    }
    tracker.sample(&before, START + SECOND);
    let after =
        version("L6: #5[a..u]{size=1M} #6[u..v]{size=1M} #7[v..w]{size=1M} #8[w..y]{size=2M}");
    let tables = |v: &Version| v.tables().cloned().collect::<Vec<_>>();
    tracker.inherit(&tables(&before), &tables(&after), &[]);
    let heat = tracker.sample(&after, START + SECOND + 1);
    assert!(temperature(&heat, 5).unwrap() > 800.0);
    assert!(temperature(&heat, 7).unwrap() < 50.0);
}

#[test]
fn heat_is_neither_made_nor_lost_by_a_merge() {
    let tracker = tracker(0.999);
    let before = version("L6: #1[c..p] | L7: #2[a..f]{size=3M} #3[g..k] #4[l..z]{size=2M}");
    tracker.sample(&before, START);
    for table in 1..5 {
        read(&tracker, table, table * 7);
    }
    tracker.sample(&before, START + SECOND);
    let after = version("L7: #5[a..e]{size=2M} #6[f..i]{size=2M} #7[j..z]{size=3M}");
    let tables = |v: &Version| v.tables().cloned().collect::<Vec<_>>();
    tracker.inherit(&tables(&before), &tables(&after), &[]);
    let heat = tracker.sample(&after, START + SECOND);
    let rate = |t: &Arc<TableMeta>| temperature(&heat, t.id.0).unwrap() * size_mib(t);
    let sum: f64 = after.tables().map(rate).sum();
    assert!((sum - 70.0).abs() < 1e-6, "{sum}");
}

#[test]
fn temperatures_survive_saving_and_unsound_ones_do_not() {
    let (first, version) = (tracker(0.999), two());
    first.sample(&version, START);
    read(&first, 1, 50);
    first.sample(&version, START + SECOND);
    let mut saved = first.save();
    assert_eq!(saved, [(TableId(1), 50.0), (TableId(2), 0.0)]);
    saved.push((TableId(9), 1.0));
    saved[1].1 = f64::NAN;
    let second = tracker(0.999);
    second.restore(&saved);
    assert_eq!(second.save(), [(TableId(1), 50.0), (TableId(9), 1.0)]);
    let heat = second.sample(&version, START);
    assert_eq!(temperature(&heat, 1), Some(50.0));
    assert_eq!(temperature(&heat, 2), None);
    assert_eq!(second.save(), [(TableId(1), 50.0)]);
}
