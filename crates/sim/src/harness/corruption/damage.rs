//! Damage to the files of a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::truth::{Image, file_name};
use crate::Dice;

/// Some files, changed, added or removed.
#[derive(Clone, Debug)]
pub struct Damage {
    /// In words.
    pub what: String,
    /// The new bytes of each; none removes it.
    pub changes: Vec<(PathBuf, Option<Arc<[u8]>>)>,
}

impl Damage {
    pub(super) fn one(what: String, path: &Path, bytes: Option<Vec<u8>>) -> Damage {
        Damage {
            what,
            changes: vec![(path.to_path_buf(), bytes.map(Arc::from))],
        }
    }

    /// The files with the damage done.
    #[must_use]
    pub fn to(&self, image: &Image) -> Image {
        let mut damaged = image.clone();
        for (path, bytes) in &self.changes {
            match bytes {
                Some(bytes) => damaged.insert(path.clone(), Arc::clone(bytes)),
                None => damaged.remove(path),
            };
        }
        damaged
    }
}

/// Every byte of every file with one bit of it, or with each of the eight,
/// turned over.
pub fn flips(image: &Image, all_bits: bool, seed: u64) -> impl Iterator<Item = Damage> {
    let mut dice = Dice(seed);
    let bytes = image.iter().flat_map(|(path, bytes)| {
        let length = bytes.len();
        (0..length).map(move |at| (path, bytes, at))
    });
    bytes.flat_map(move |(path, bytes, at)| {
        let drawn = dice.below(8);
        let bits = if all_bits { 0..8 } else { drawn..drawn + 1 };
        bits.map(move |bit| {
            let mut bytes = bytes.to_vec();
            bytes[at] ^= 1 << bit;
            let what = format!("{} with bit {bit} of byte {at} flipped", path.display());
            Damage::one(what, path, Some(bytes))
        })
    })
}

/// Every file cut at every length.
pub fn cuts(image: &Image) -> impl Iterator<Item = Damage> {
    image.iter().flat_map(|(path, bytes)| {
        (0..bytes.len()).map(move |length| {
            let what = format!("{} cut to {length} of {}", path.display(), bytes.len());
            Damage::one(what, path, Some(bytes[..length].to_vec()))
        })
    })
}

/// What happens to whole files: garbage behind them, zeros, removal, another
/// file of the kind in their place, a second one under another name.
#[must_use]
pub fn whole_files(image: &Image, seed: u64) -> Vec<Damage> {
    let mut dice = Dice(seed);
    let mut all = Vec::new();
    for (path, bytes) in image {
        let words = path.display();
        let mut push = |what: &str, bytes: Option<Vec<u8>>| {
            all.push(Damage::one(format!("{words} {what}"), path, bytes));
        };
        for length in [1, 7, 8, 64, 512, 5000] {
            let garbage = (0..length).map(|_| dice.next() as u8);
            let longer = bytes.iter().copied().chain(garbage).collect();
            push(
                &format!("with {length} bytes of garbage behind"),
                Some(longer),
            );
            let zeros = std::iter::repeat_n(0, length);
            let longer = bytes.iter().copied().chain(zeros).collect();
            push(&format!("with {length} zeros behind"), Some(longer));
        }
        for sector in (0..bytes.len()).step_by(512) {
            let mut torn = bytes.to_vec();
            let end = torn.len().min(sector + 512);
            torn[sector..end].fill(0);
            push(&format!("with zeros from {sector}"), Some(torn.clone()));
            torn[sector..end].fill_with(|| dice.next() as u8);
            push(&format!("with garbage from {sector}"), Some(torn));
            let mut torn = bytes.to_vec();
            torn[sector..].fill(0);
            push(&format!("with zeros from {sector} to the end"), Some(torn));
        }
        push("zeroed", Some(vec![0; bytes.len()]));
        push("empty", Some(Vec::new()));
        push("all garbage", {
            Some((0..bytes.len()).map(|_| dice.next() as u8).collect())
        });
        push("removed", None);
        push("written twice", Some([&bytes[..], &bytes[..]].concat()));
        let others = image
            .iter()
            .filter(|(p, _)| *p != path && kind(p) == kind(path));
        for (other, bytes) in others {
            push(
                &format!("replaced by {}", other.display()),
                Some(bytes.to_vec()),
            );
        }
        for name in other_names(&file_name(path)) {
            let twin = path.with_file_name(&name);
            if !image.contains_key(&twin) {
                let what = format!("{words} again as {name}");
                all.push(Damage::one(what, &twin, Some(bytes.to_vec())));
            }
        }
    }
    all.extend(swaps(image));
    all
}

/// Two files of a kind, each in the other's place.
fn swaps(image: &Image) -> Vec<Damage> {
    let mut all = Vec::new();
    for (path, bytes) in image {
        for (other, theirs) in image.range(path.clone()..).skip(1) {
            if kind(path) == kind(other) && bytes != theirs {
                all.push(Damage {
                    what: format!("{} and {} swapped", path.display(), other.display()),
                    changes: vec![
                        (path.clone(), Some(Arc::clone(theirs))),
                        (other.clone(), Some(Arc::clone(bytes))),
                    ],
                });
            }
        }
    }
    all
}

/// One damage for each way that a repair can take: to the pointer, the manifest,
/// an identity, the parts of tables and the log, one by one and together.
#[must_use]
pub fn each_way(image: &Image) -> Vec<Damage> {
    let kinds = ["CURRENT", "MANIFEST", "TIER", ".data", ".meta", ".log"];
    let mut singles = Vec::new();
    for path in kinds.iter().flat_map(|kind| of_kind(image, kind)) {
        let bytes = &image[path];
        let mut push = |what: &str, bytes| {
            singles.push(Damage::one(
                format!("{} {what}", path.display()),
                path,
                bytes,
            ));
        };
        let mut flipped = bytes.to_vec();
        if let Some(byte) = flipped.get_mut(bytes.len() / 2) {
            *byte ^= 0x10;
        }
        push("with a bit flipped", Some(flipped));
        push("removed", None);
        if file_name(path).starts_with("MANIFEST") {
            push("cut", Some(bytes[..bytes.len() * 2 / 3].to_vec()));
        }
    }
    let mut all = singles.clone();
    for (one, other) in [
        ("CURRENT", ".data"),
        ("CURRENT", "MANIFEST"),
        ("MANIFEST", ".data"),
        ("MANIFEST", ".log"),
        (".data", ".log"),
    ] {
        let first = |kind: &str| singles.iter().find(|d| d.what.contains(kind));
        if let (Some(one), Some(other)) = (first(one), first(other)) {
            all.push(Damage {
                what: format!("{}, {}", one.what, other.what),
                changes: [&one.changes[..], &other.changes[..]].concat(),
            });
        }
    }
    all
}

/// The first and the last file of a kind.
fn of_kind<'a>(image: &'a Image, kind: &str) -> Vec<&'a PathBuf> {
    let mut paths: Vec<_> = image
        .keys()
        .filter(|path| file_name(path).contains(kind))
        .collect();
    if paths.len() > 2 {
        paths.drain(1..paths.len() - 1);
    }
    paths
}

/// What a file is for, by its name.
pub(super) fn kind(path: &Path) -> String {
    file_name(path)
        .chars()
        .filter(|c| !c.is_ascii_digit())
        .collect()
}

/// Names that a file could have as well.
fn other_names(name: &str) -> Vec<String> {
    let digits: String = name.chars().filter(char::is_ascii_digit).collect();
    let Ok(number) = digits.parse::<u64>() else {
        return [".new", ".tmp", ".bak", ".old"]
            .map(|e| format!("{name}{e}"))
            .into();
    };
    [
        0,
        1,
        number.saturating_sub(1),
        number + 1,
        number + 1000,
        u64::MAX,
    ]
    .map(|n| name.replace(&digits, &format!("{n:06}")))
    .into()
}

/// Damage of several kinds at once, drawn.
#[must_use]
pub fn drawn(image: &Image, earlier: &Image, dice: &mut Dice) -> Damage {
    let mut damage = Damage {
        what: String::new(),
        changes: Vec::new(),
    };
    let mut damaged = image.clone();
    for _ in 0..=dice.below(3) {
        let paths: Vec<&PathBuf> = damaged.keys().collect();
        if paths.is_empty() {
            break;
        }
        let path = paths[dice.below(paths.len() as u64) as usize].clone();
        let bytes = damaged[&path].to_vec();
        let (what, bytes) = draw_one(&path, bytes, &damaged, earlier, dice);
        damage.what += &format!("{} {what}; ", path.display());
        match &bytes {
            Some(bytes) => damaged.insert(path.clone(), Arc::from(&bytes[..])),
            None => damaged.remove(&path),
        };
        damage.changes.push((path, bytes.map(Arc::from)));
    }
    damage
}

fn draw_one(
    path: &Path,
    mut bytes: Vec<u8>,
    image: &Image,
    earlier: &Image,
    dice: &mut Dice,
) -> (String, Option<Vec<u8>>) {
    let size = bytes.len() as u64;
    let at = dice.below(size.max(1)) as usize;
    let end = bytes.len().min(at + 1 + dice.below(600) as usize);
    match dice.below(10) {
        0..3 => {
            let count = 1 + dice.below(4);
            for _ in 0..count.min(size) {
                let at = dice.below(size) as usize;
                bytes[at] ^= 1 << dice.below(8);
            }
            (format!("with {count} bits flipped"), Some(bytes))
        }
        3 => {
            bytes[at.min(end)..end].fill(0);
            (format!("with zeros from {at} to {end}"), Some(bytes))
        }
        4 => {
            bytes[at.min(end)..end].fill_with(|| dice.next() as u8);
            (format!("with garbage from {at} to {end}"), Some(bytes))
        }
        5 => {
            // A read or a write that went to another place.
            let from = dice.below(size.max(1)) as usize;
            let piece = bytes[from.min(bytes.len())..]
                .iter()
                .take(end - at.min(end))
                .copied()
                .collect::<Vec<u8>>();
            bytes[at.min(end)..at.min(end) + piece.len()].copy_from_slice(&piece);
            (format!("with {from} on at {at}"), Some(bytes))
        }
        6 => {
            bytes.truncate(at);
            (format!("cut to {at} of {size}"), Some(bytes))
        }
        7 => match earlier.get(path) {
            Some(earlier) => ("as it was before".to_string(), Some(earlier.to_vec())),
            None => ("removed".to_string(), None),
        },
        8 => {
            let like: Vec<_> = image
                .iter()
                .filter(|(p, _)| kind(p) == kind(path))
                .collect();
            let (other, theirs) = like[dice.below(like.len() as u64) as usize];
            (
                format!("replaced by {}", other.display()),
                Some(theirs.to_vec()),
            )
        }
        _ => {
            bytes.extend((0..dice.below(700)).map(|_| dice.next() as u8));
            ("with garbage behind".to_string(), Some(bytes))
        }
    }
}
