//! What parts by default cost and gain by the order of keys: so many puts of 100 bytes,
//! ascending, all to one key, uniform, or skewed with hot keys side by side.
//!
//! `write_orders ORDER PARTS [PUTS] [THREADS] [MiB] [PRESET] [verify]`: PARTS is `auto` or a
//! number, THREADS those of the background, MiB the write buffer; the preset is `leveled`; with
//! `verify` what is written is read back. Without threads the same is done every time, for
//! `valgrind --tool=callgrind --toggle-collect='*put_all*'` to count the instructions of.

use std::time::Instant;

use thermocline::{Db, Options, Result};

const KEYS: u64 = 500_000;

fn next(dice: &mut u64) -> u64 {
    *dice = dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *dice;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The number of the key that put `n` writes.
fn number(order: &str, n: u64, dice: &mut u64) -> u64 {
    match order {
        "ascending" => n,
        "hot" => 7,
        "uniform" => next(dice) % KEYS,
        // As many for each power of ten: Zipf's law, about.
        "skewed" => {
            let share = (next(dice) % 1_000_000) as f64 / 1e6;
            ((KEYS as f64).powf(share) as u64).min(KEYS - 1)
        }
        other => panic!("ascending, hot, uniform or skewed, found {other}"),
    }
}

/// Everything that valgrind is to count.
#[inline(never)]
fn put_all(db: &Db, order: &str, puts: u64) -> Result<()> {
    let (mut dice, mut value) = (7, [0; 100]);
    for n in 0..puts {
        let key = format!("{:016}", number(order, n, &mut dice));
        value[..8].copy_from_slice(&n.to_le_bytes());
        db.put(key.as_bytes(), &value)?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let given = |at: usize| arguments.get(at).and_then(|n| n.parse::<u64>().ok());
    let order = arguments.first().map_or("uniform", |order| order);
    let puts = given(2).unwrap_or(5_000_000);
    let directory = tempfile::tempdir().expect("a directory can be made");
    let options = Options::at(directory.path())
        .background_threads(given(3).unwrap_or(2) as usize)
        .write_buffer_bytes(given(4).unwrap_or(64) << 20)
        .preset(arguments.get(5).map_or("leveled", |preset| preset))
        .verify_outputs(arguments.get(6).is_some_and(|word| word == "verify"));
    let options = match given(1) {
        Some(1) => options.moving_cuts(false),
        Some(parts) => options.moving_cuts(true).partitions(parts as usize),
        None => options,
    };
    let db = Db::open(options)?;
    let begun = Instant::now();
    put_all(&db, order, puts)?;
    let took = begun.elapsed().as_secs_f64();
    let stats = db.stats();
    println!(
        "{order}: {:.0} puts a second, {} parts, {} flushes, {} merges, {} MiB flushed, {} MiB merged, \
         {:.2} s stalled",
        puts as f64 / took,
        stats.keyspaces[0].parts,
        stats.flushes,
        stats.merges,
        stats.flushed_bytes >> 20,
        stats.merge_out_bytes >> 20,
        stats.stall_us as f64 / 1e6,
    );
    Ok(())
}
