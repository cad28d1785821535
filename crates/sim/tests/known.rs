//! Seeds with which the prover once found a promise broken, each with its story.
//! The same faults have tests of their own beside the engine where they could be
//! made small (`engine/tests/gap.rs`).

use thermocline_sim::Tally;
use thermocline_sim::harness::{corruption, decode, faults, metamorphic};

/// A log cut by damage, keyspaces flushed at different times: newer tables stood, older
/// durable entries were gone, and no error.
#[test]
fn seed_317_a_log_cut_below_what_tables_hold() {
    corruption::run(317, &mut Tally::default());
}

/// Repair took a segment without entries out of the chain of the log; what it had kept
/// behind that was dropped by the next opening.
#[test]
fn seed_439_a_log_cut_behind_a_segment_without_entries() {
    corruption::run(439, &mut Tally::default());
}

/// The edit that created an empty keyspace was damaged; repair said nothing was lost.
#[test]
fn seed_577_a_manifest_that_lost_an_empty_keyspace() {
    corruption::run(577, &mut Tally::default());
}

/// The first mend of seed 439 kept segments that had been passed over, whose claims made
/// the repaired log look damaged again.
#[test]
fn seed_1154_a_log_with_a_segment_that_was_passed_over() {
    decode::run(1154, &mut Tally::default());
}

/// Two bulk loads of the same entries into two keyspaces make data objects of the same
/// bytes. Repair, without the manifest's places, gave both tables the first of them, and
/// then refused the version that it had made itself.
#[test]
fn seed_2245_two_tables_with_the_same_bytes() {
    corruption::run(2245, &mut Tally::default());
}

/// A manifest damaged behind its middle, a log cut: repair went by what the manifest
/// said of the log before its damage, and said nothing of the log's lost end.
#[test]
fn seed_4710_a_damaged_manifest_that_still_says_how_far_the_log_reaches() {
    corruption::run(4710, &mut Tally::default());
}

/// Pointer, identity and log of a store without tables removed together: what was left,
/// a manifest, passed for a creation that was cut short, and the next opening began anew.
#[test]
fn seed_782_a_manifest_that_nothing_points_to() {
    corruption::run(782, &mut Tally::default());
}

/// The header of the only log segment zeroed with its first frames: the frames behind
/// said that those had been durable, but the manifest's last number was higher, and
/// recovery took them for flushed. The manifest now says after which number the log begins.
#[test]
fn seed_20412_a_log_that_lost_its_beginning() {
    corruption::run(20412, &mut Tally::default());
}

/// A manifest damaged where it said how far the log reached, and a log cut at the end of
/// a frame: repair said that nothing was lost, and an older value was back.
#[test]
fn seed_601183_a_log_whose_end_nothing_knows() {
    corruption::run(601_183, &mut Tally::default());
}

/// A copy of a table's meta beside it, and a manifest that had lost the edit which says
/// in which keyspace the table is: repair put it into the default one, but of the copy it
/// said that the table was lost, and nothing of its move.
#[test]
fn seed_701655_a_table_that_is_there_by_two_metas() {
    corruption::run(701_655, &mut Tally::default());
}

/// A table's meta written over with another's, and the edit that named it damaged: of
/// its data repair said that it was lost, but not of its range deletes, which reached
/// beyond that.
#[test]
fn seed_800590_range_deletes_of_a_table_whose_meta_is_gone() {
    corruption::run(800_590, &mut Tally::default());
}

/// A table's meta damaged, and its data written over with a longer object of another
/// keyspace: its blocks, as far as they went, were taken for the table's own.
#[test]
fn seed_801837_the_beginning_of_another_tables_data() {
    corruption::run(801_837, &mut Tally::default());
}

/// The first log segment removed, and the manifest damaged where it said from which one on
/// the log is needed: the log began later, and repair said nothing of it.
#[test]
fn seed_803301_a_log_whose_beginning_nothing_knows() {
    corruption::run(803_301, &mut Tally::default());
}

/// A table's meta removed, another's damaged, and the manifest damaged before the edits that
/// named both: the first table written anew was given the number of the missing one, which
/// nothing on the device showed any more, and that was then passed over as found. In which
/// order the two came was chance.
#[test]
fn seed_803528_a_number_that_only_an_edit_knows() {
    corruption::run(803_528, &mut Tally::default());
    corruption::run(804_417, &mut Tally::default());
}

/// A table's meta removed, its only block damaged, and the edit that added it unreadable:
/// repair found a data object with nothing in it to name, and said nothing.
#[test]
fn seed_178_data_of_which_nothing_can_be_read() {
    corruption::run_with_manifest(178, &mut Tally::default());
}

/// The seal of a clean close written over earlier frames of the same file: the log then
/// looked torn before anything in it was durable. The manifest now says at a close how
/// far the log reaches.
#[test]
fn seed_30479_a_seal_that_landed_on_what_it_sealed() {
    faults::run(30479, &mut Tally::default());
}

/// A range delete over several parts, of which one was not flushed as far as the others;
/// the parts became one, the store was opened anew, the part was divided again. The whole range
/// delete had been replayed, so that the new parts had in memory what they had in tables
/// already, and no flush was lawful any more: writing came to an end.
#[test]
fn seed_4003940_a_range_delete_replayed_where_it_was_flushed() {
    metamorphic::run(4_003_940, &mut Tally::default());
}
