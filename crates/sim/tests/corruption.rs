//! Every byte flipped, every file cut at every length, zeroed, removed,
//! swapped, doubled; see `thermocline_sim::harness::corruption`.
//!
//! `THERMOCLINE_ALL_BITS=1` flips all eight bits of every byte, one by one,
//! and not just one that is drawn.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

use mimalloc::MiMalloc;
use thermocline_sim::Tally;
use thermocline_sim::harness::corruption::damage::{self, Damage};
use thermocline_sim::harness::corruption::store::{self, Small};
use thermocline_sim::harness::corruption::{Count, run, run_with_manifest, sweep};
use thermocline_sim::harness::run_seeds;

/// Memory that one damaged store may take, above what was taken before.
const LIVE_BYTES_MAX: isize = 64 << 20;

thread_local! {
    static LIVE_BYTES: Cell<isize> = const { Cell::new(0) };
    static PEAK_BYTES: Cell<isize> = const { Cell::new(0) };
}

/// Counts what the thread holds: the tests of this file do all their work on
/// their own threads.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: isize) {
    let live = LIVE_BYTES.get() + bytes;
    LIVE_BYTES.set(live);
    PEAK_BYTES.set(PEAK_BYTES.get().max(live));
}

// SAFETY: every call is passed on to an allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the promises of `alloc`.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the promises of `alloc_zeroed`.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: the caller keeps the promises of `realloc`.
        unsafe { MiMalloc.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps the promises of `dealloc`.
        unsafe { MiMalloc.dealloc(pointer, layout) }
    }
}

/// Sweeps, and holds every damaged store to the cap on memory.
fn sweep_capped(store: &Small, damages: impl IntoIterator<Item = Damage>) -> Count {
    let mut tally = Tally::default();
    let mut most = 0;
    let mut base = LIVE_BYTES.get();
    PEAK_BYTES.set(base);
    let count = sweep(store, damages, &mut tally, &mut |what| {
        let taken = PEAK_BYTES.get() - base;
        most = most.max(taken);
        assert!(
            taken < LIVE_BYTES_MAX,
            "{}: {what}: {taken} bytes of memory",
            store.name
        );
        base = LIVE_BYTES.get();
        PEAK_BYTES.set(base);
    });
    println!("{}: {count:?}; {tally}; at most {most} bytes", store.name);
    assert_eq!(count.cases, tally.corruptions);
    assert_eq!(count.holed, 0, "all parts were flushed together");
    count
}

fn flip_every_byte(name: &str) {
    let all_bits = std::env::var_os("THERMOCLINE_ALL_BITS").is_some();
    let store = store::all().into_iter().find(|s| s.name == name).unwrap();
    let bytes: usize = store.image.values().map(|b| b.len()).sum();
    let count = sweep_capped(&store, damage::flips(&store.image, all_bits, 1));
    let each = if all_bits { 8 } else { 1 };
    assert_eq!(count.cases, bytes as u64 * each);
    // Nearly every byte matters; the options file is only for tools.
    assert!(count.noticed > count.cases / 2, "{count:?}");
}

#[test]
fn a_flip_anywhere_in_a_store_of_one_tier_is_named_or_harmless() {
    flip_every_byte("one tier");
}

#[test]
fn a_flip_anywhere_in_a_store_of_two_tiers_is_named_or_harmless() {
    flip_every_byte("two tiers");
}

#[test]
fn a_flip_anywhere_in_parts_and_keyspaces_is_named_or_harmless() {
    flip_every_byte("parts and keyspaces");
}

#[test]
fn a_flip_anywhere_in_a_log_of_several_segments_is_named_or_takes_its_torn_end() {
    flip_every_byte("log of several segments");
}

#[test]
fn a_flip_anywhere_in_a_store_of_large_values_is_named_or_harmless() {
    flip_every_byte("large values");
}

fn cut_every_file(kind: &str) {
    for store in store::all() {
        let cuts = damage::cuts(&store.image).filter(|d| d.what.contains(kind));
        sweep_capped(&store, cuts);
    }
}

#[test]
fn a_log_cut_at_any_length_keeps_what_is_known_to_be_durable() {
    cut_every_file(".log");
}

#[test]
fn a_manifest_cut_at_any_length_is_named_or_reads_as_an_earlier_one() {
    cut_every_file("MANIFEST");
}

#[test]
fn any_other_file_cut_at_any_length_is_named() {
    for store in store::all() {
        let other = |d: &Damage| !d.what.contains(".log") && !d.what.contains("MANIFEST");
        sweep_capped(&store, damage::cuts(&store.image).filter(other));
    }
}

#[test]
fn files_zeroed_removed_swapped_doubled_or_with_garbage_behind_are_named_or_harmless() {
    for store in store::all() {
        let count = sweep_capped(&store, damage::whole_files(&store.image, 1));
        assert!(count.refused > 0 && count.lost > 0, "{count:?}");
    }
}

#[test]
fn several_damages_at_once_to_a_drawn_store_are_named_or_harmless() {
    let mut tally = Tally::default();
    for seed in 0..60 {
        println!("seed {seed}");
        run(seed, &mut tally);
    }
    println!("{tally}");
}

/// `THERMOCLINE_SEED` and `THERMOCLINE_COUNT` choose others, and more.
#[test]
fn a_manifest_damaged_together_with_other_files_is_repaired_and_all_that_is_lost_is_told() {
    run_seeds(1000, 30, run_with_manifest);
}

/// The sweep is worth what its stores hold.
#[test]
fn the_small_stores_hold_every_kind_of_file_and_stay_small() {
    for store in store::all() {
        let bytes: usize = store.image.values().map(|b| b.len()).sum();
        let has = |end: &str| {
            let names = store.image.keys().map(|p| p.to_string_lossy().into_owned());
            names.filter(|n| n.contains(end)).count()
        };
        println!(
            "{}: {bytes} bytes in {} files",
            store.name,
            store.image.len()
        );
        assert!((2 << 10..20 << 10).contains(&bytes), "{bytes}");
        assert!(has(".log") > 0 && has("MANIFEST") == 1 && has("CURRENT") == 1);
        println!("{} events", store.record.count());
        assert!(store.record.count() > 2 || store.name.starts_with("l"));
        let tables = has(".meta");
        assert!(tables == has(".data") || store.name != "one tier");
        assert!(tables > 1 || store.name.starts_with("log"));
        if store.name.starts_with("log") {
            assert!(has(".log") >= 3);
        }
    }
}
