//! Crashes and errors at every call of a repair; see
//! `thermocline_sim::harness::corruption::interrupt`.
//!
//! `THERMOCLINE_FAULT_STRIDE` takes one call in so many, in each repair other
//! ones; 1 takes all.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use thermocline_sim::Tally;
use thermocline_sim::disk::Fault;
use thermocline_sim::harness::corruption::damage::{Damage, each_way};
use thermocline_sim::harness::corruption::examine::examine_unreadable;
use thermocline_sim::harness::corruption::interrupt::Case;
use thermocline_sim::harness::corruption::store::{self, Small};
use thermocline_sim::harness::faults::ERRORS;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn stride(default: u64) -> u64 {
    let set = std::env::var("THERMOCLINE_FAULT_STRIDE").ok();
    set.map_or(default, |s| s.parse::<u64>().unwrap().max(1))
}

/// Every damaged store that a repair makes something of, and a number.
fn for_each(mut test: impl FnMut(&Case<'_>, u64, &mut Tally) -> Result<(), String>) {
    let (mut tally, mut broken, mut cases, mut calls) = (Tally::default(), Vec::new(), 0, 0);
    for store in store::all() {
        for damage in each_way(&store.image) {
            match Case::new(&store, &damage) {
                Ok(Some(case)) => {
                    cases += 1;
                    calls += case.calls;
                    broken.extend(test(&case, cases, &mut tally).err());
                }
                Ok(None) => {}
                Err(what) => broken.push(what),
            }
        }
    }
    println!("{cases} repairs of {calls} calls; {tally}");
    assert!(cases > 50, "{cases}");
    assert!(
        broken.is_empty(),
        "{} broken promises, the first:\n{}",
        broken.len(),
        broken[..broken.len().min(12)].join("\n\n")
    );
}

#[test]
fn a_repair_cut_short_at_any_call_and_again_at_another_leaves_nothing_worse() {
    let stride = stride(13) as usize;
    for_each(|case, number, tally| {
        case.crashes(|site| site % stride == number as usize % stride, tally)
    });
}

fn every_call_fails(fault: Fault) {
    let stride = stride(13);
    for_each(|case, number, tally| {
        let mut n = 1 + number % stride;
        while case.fails(n, fault, tally)? {
            n += stride;
        }
        Ok(())
    });
}

#[test]
fn an_error_at_any_call_of_a_repair_leaves_nothing_worse() {
    for fault in ERRORS {
        println!("{fault:?}");
        every_call_fails(fault);
    }
}

/// The pointer was lost, and the repair was killed while it wrote its manifest.
/// The next one took that for the newest manifest there was, could read nothing in
/// it, and put all tables of all keyspaces into the default one.
#[test]
fn a_manifest_that_a_repair_did_not_finish_does_not_hide_the_one_before() {
    let (store, damage) = parts_with("CURRENT removed", "CURRENT removed");
    let case = Case::new(&store, &damage).unwrap().unwrap();
    case.crashes(|_| true, &mut Tally::default()).unwrap();
}

/// An edit of the manifest was damaged, so places were lost, and the repair was
/// killed after it had written tables anew. The next one found them, which no edit
/// names, and put those of another keyspace into the default one.
#[test]
fn tables_of_a_repair_that_was_cut_short_turn_up_in_no_other_keyspace() {
    let (store, damage) = parts_with("MANIFEST", "flipped");
    let case = Case::new(&store, &damage).unwrap().unwrap();
    case.crashes(|_| true, &mut Tally::default()).unwrap();
}

/// One read failed, once. Where it was of the manifest, places were lost; where it
/// was of a block, its entries were.
#[test]
fn an_error_of_the_device_that_passes_costs_a_repair_nothing() {
    for what in ["CURRENT removed", ".data with"] {
        let (store, damage) = parts_with(what, "");
        let case = Case::new(&store, &damage).unwrap().unwrap();
        let mut n = 1;
        while case.fails(n, Fault::Io, &mut Tally::default()).unwrap() {
            n += 1;
        }
        assert!(n > 100, "{n}");
    }
}

/// There were no descriptors left, and the repair went on without the files that
/// it could not open.
#[test]
fn a_lack_of_descriptors_ends_a_repair_before_it_changes_anything() {
    let (store, damage) = parts_with("CURRENT removed", "");
    let case = Case::new(&store, &damage).unwrap().unwrap();
    let mut n = 1;
    while case
        .fails(n, Fault::Handles(20), &mut Tally::default())
        .unwrap()
    {
        n += 1;
    }
}

/// A store of two keyspaces, and the damage to it with these words.
fn parts_with(one: &str, other: &str) -> (Small, Damage) {
    let mut stores = store::all().into_iter();
    let store = stores.find(|s| s.name == "parts and keyspaces").unwrap();
    let mut damages = each_way(&store.image).into_iter();
    let damage = damages.find(|d| d.what.contains(one) && d.what.contains(other));
    (store, damage.unwrap())
}

/// A place that the device could not read, however often it was asked, ended a repair
/// wherever it did not lie in a table of a manifest that could be read.
#[test]
fn a_place_that_never_can_be_read_counts_as_damaged() {
    let (mut tally, mut broken) = (Tally::default(), Vec::new());
    let (mut lost, mut cases) = (0, 0);
    for store in store::all() {
        for (path, bytes) in &store.image {
            for at in (0..bytes.len()).step_by(512) {
                let place = at..bytes.len().min(at + 512);
                cases += 1;
                match examine_unreadable(&store, path, place, &mut tally) {
                    Ok(outcome) => lost += u32::from(outcome.lost),
                    Err(what) => broken.push(format!("{}: {what}", store.name)),
                }
            }
        }
    }
    println!("{cases} places, {lost} of which cost something; {tally}");
    assert!(broken.is_empty(), "{}", broken.join("\n\n"));
    assert!(lost > 50 && lost < cases, "{lost} of {cases}");
}
