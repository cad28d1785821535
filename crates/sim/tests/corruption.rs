//! Every byte flipped, every file cut, swapped, removed; see
//! `thermocline_sim::harness::corruption`.
//!
//! `THERMOCLINE_ALL_BITS=1` flips all eight bits of every byte, one by one.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use thermocline_sim::Tally;
use thermocline_sim::harness::corruption::{damage, run, store, sweep};

fn flip_all(index: usize) {
    let all_bits = std::env::var_os("THERMOCLINE_ALL_BITS").is_some();
    let store = &store::all()[index];
    let bytes: usize = store.image.values().map(|b| b.len()).sum();
    println!("{}: {} files, {bytes} bytes", store.name, store.image.len());
    let mut tally = Tally::default();
    let count = sweep(store, damage::flips(&store.image, all_bits, 1), &mut tally, &mut |_| {});
    println!("{count:?}, {tally}");
    assert!(count.noticed > count.cases / 4, "{count:?}");
}

#[test]
fn stores_are_small_and_have_everything() {
    for store in store::all() {
        let bytes: usize = store.image.values().map(|b| b.len()).sum();
        println!("{}: {bytes} bytes", store.name);
        for (path, bytes) in &store.image {
            println!("  {} {}", path.display(), bytes.len());
        }
    }
}

#[test]
fn f0() { flip_all(0); }
#[test]
fn f1() { flip_all(1); }
#[test]
fn f2() { flip_all(2); }
#[test]
fn f3() { flip_all(3); }
#[test]
fn f4() { flip_all(4); }

#[test]
fn cuts() {
    for store in store::all() {
        println!("{}: {:?}", store.name, sweep(&store, damage::cuts(&store.image), &mut Tally::default(), &mut |_| {}));
    }
}
#[test]
fn whole() {
    for store in store::all() {
        println!("{}: {:?}", store.name, sweep(&store, damage::whole_files(&store.image, 1), &mut Tally::default(), &mut |_| {}));
    }
}
#[test]
fn random() {
    let mut tally = Tally::default();
    let first = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let mut bad = 0;
    for seed in first..first + 400 { if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed, &mut tally))).is_err() { bad += 1; if bad == 3 { break; } } }
    println!("{tally}");
}
