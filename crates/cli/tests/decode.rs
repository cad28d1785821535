//! The readers of input files over the committed corpus and over mutations of
//! it; see `fuzz/README.md`.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::fs;
use std::path::PathBuf;

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as usize % n.max(1)
    }
}

fn decode(name: &str, run: fn(&[u8])) {
    const MUTATIONS: u32 = 2_000;
    const BYTES: &[u8] = b"\",\t\r\n :{}[]\\0129-idx\xff\x00";
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let entries = fs::read_dir(corpus.join(name)).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() > 2);
    for (path, seed) in paths.iter().zip(0..) {
        let input = fs::read(path).unwrap();
        run(&input);
        println!("{} seed {seed}", path.display());
        let mut dice = Dice(seed);
        for _ in 0..MUTATIONS {
            let mut bytes = input.clone();
            for _ in 0..1 + dice.below(6) {
                let at = dice.below(bytes.len());
                let end = bytes.len().min(at + dice.below(9));
                let other = BYTES[dice.below(BYTES.len())];
                match dice.below(4) {
                    0 => bytes.insert(at, other),
                    1 if !bytes.is_empty() => bytes[at] = other,
                    2 => drop(bytes.drain(at..end)),
                    _ => {
                        let piece = bytes[at..end].to_vec();
                        bytes.extend(piece);
                    }
                }
            }
            run(&bytes);
        }
    }
}

#[test]
fn any_records_are_read_or_refused() {
    decode("records", thermocline_cli::decode::records);
}

#[test]
fn any_trace_is_read_or_refused() {
    decode("trace", thermocline_cli::decode::trace);
}
