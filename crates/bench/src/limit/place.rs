//! The best placement of records, and of tables, by their weights.

/// The share of the accesses that each place gets, if the records lie in the
/// order of their weights: the first `rooms[0]` in the first place, and so on;
/// the rest in one place more. `weights` need no order.
pub(crate) fn shares(weights: &[f64], rooms: &[u64]) -> Vec<f64> {
    let mut sorted = weights.to_vec();
    sorted.sort_unstable_by(|a, b| b.total_cmp(a));
    split(&sorted, rooms)
}

/// The same where records in memory, the first of `rooms`, are placed one by
/// one and those on tiers by whole tables of `records_per_table` neighbours.
/// `weights` are in the order of keys.
pub(crate) fn table_shares(weights: &[f64], rooms: &[u64], records_per_table: u64) -> Vec<f64> {
    let (&memory, tiers) = match rooms.split_first() {
        Some(split) => split,
        None => return vec![weights.iter().sum()],
    };
    let grain = usize::try_from(records_per_table.max(1)).unwrap_or(usize::MAX);
    let mut order: Vec<u32> = (0..weights.len() as u32).collect();
    order.sort_unstable_by(|&a, &b| weights[b as usize].total_cmp(&weights[a as usize]));
    let mut left = weights.to_vec();
    let mut in_memory = 0.0;
    for &record in order.iter().take(memory.min(u64::from(u32::MAX)) as usize) {
        in_memory += std::mem::take(&mut left[record as usize]);
    }
    let tables: Vec<f64> = left.chunks(grain).map(|table| table.iter().sum()).collect();
    let rooms: Vec<u64> = tiers.iter().map(|room| room / grain as u64).collect();
    let mut all = vec![in_memory];
    all.extend(shares(&tables, &rooms));
    all
}

/// The weights of records read, if reads begin with `weights` (in the order of keys)
/// and each goes on over neighbours, to a number of records drawn evenly from
/// `entries`, both included. They have the same sum, but for what would be read
/// behind the last record.
pub(crate) fn spread(weights: &[f64], entries: [u32; 2]) -> Vec<f64> {
    let [least, most] = entries.map(|count| count.max(1) as usize);
    // How likely a read goes on to the record that is so many behind its first.
    let lengths = (most - least.min(most) + 1) as f64;
    let reaches: Vec<f64> = (0..most)
        .map(|behind| (most - behind.max(least - 1)) as f64 / lengths)
        .collect();
    let mean: f64 = reaches.iter().sum();
    let of = |at: usize| {
        let from = weights[..=at].iter().rev();
        let read: f64 = from.zip(&reaches).map(|(w, reach)| w * reach).sum();
        read / mean
    };
    (0..weights.len()).map(of).collect()
}

fn split(sorted: &[f64], rooms: &[u64]) -> Vec<f64> {
    let mut start = 0;
    let mut shares = Vec::new();
    for &room in rooms {
        let end = (start as u64 + room).min(sorted.len() as u64) as usize;
        shares.push(sum(&sorted[start..end]));
        start = end;
    }
    shares.push(sum(&sorted[start..]));
    shares
}

/// The sum; that of nothing is 0 and not -0, as the standard library has it.
fn sum(weights: &[f64]) -> f64 {
    weights.iter().fold(0.0, |sum, weight| sum + weight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    /// The least weight in the last place over every way to put items in two
    /// places with room for `rooms` and a last one without end.
    fn brute(items: &[f64], rooms: [u64; 2]) -> f64 {
        let mut least = f64::INFINITY;
        for mut way in 0..3_u32.pow(items.len() as u32) {
            let mut counts = [0; 3];
            let mut last = 0.0;
            for item in items {
                let place = (way % 3) as usize;
                way /= 3;
                counts[place] += 1;
                if place == 2 {
                    last += item;
                }
            }
            if counts[0] <= rooms[0] && counts[1] <= rooms[1] {
                least = least.min(last);
            }
        }
        least
    }

    fn random(count: usize, dice: &mut Dice) -> Vec<f64> {
        let raw: Vec<f64> = (0..count).map(|_| dice.unit().powi(3)).collect();
        let sum: f64 = raw.iter().sum();
        raw.iter().map(|weight| weight / sum).collect()
    }

    #[test]
    fn no_placement_of_records_sends_less_to_the_slow_tier() {
        let seed = 11;
        println!("seed {seed}");
        let mut dice = Dice::new(seed);
        for _ in 0..40 {
            let weights = random(1 + dice.below(8) as usize, &mut dice);
            let rooms = [dice.below(4), dice.below(5)];
            let found = shares(&weights, &rooms);
            assert!((found.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            assert!((found[2] - brute(&weights, rooms)).abs() < 1e-9);
        }
    }

    #[test]
    fn no_placement_of_tables_sends_less_to_the_slow_tier() {
        let seed = 12;
        println!("seed {seed}");
        let mut dice = Dice::new(seed);
        for _ in 0..40 {
            let weights = random(12, &mut dice);
            let (memory, fast) = (dice.below(4), dice.below(13));
            let found = table_shares(&weights, &[memory, fast], 3);
            // Memory takes the most used records; of the four tables the fast
            // tier takes as many as fit.
            let mut left = weights.clone();
            let mut order: Vec<usize> = (0..12).collect();
            order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]));
            for &record in &order[..memory as usize] {
                left[record] = 0.0;
            }
            let tables: Vec<f64> = left.chunks(3).map(|table| table.iter().sum()).collect();
            let least = brute(&tables, [0, fast / 3]);
            assert!((found[2] - least).abs() < 1e-9);
            assert!((found.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn records_that_scans_read_are_those_counted_one_by_one() {
        let mut dice = Dice::new(14);
        for [least, most] in [[1, 1], [3, 3], [1, 4], [2, 5]] {
            let weights = random(20, &mut dice);
            let mut counted = [0.0; 20];
            let mut records = 0.0;
            for (first, weight) in weights.iter().enumerate() {
                for length in least..=most {
                    for at in first..first + length {
                        if let Some(count) = counted.get_mut(at) {
                            *count += weight;
                        }
                        records += weight;
                    }
                }
            }
            let found = spread(&weights, [least as u32, most as u32]);
            for (counted, found) in counted.iter().zip(&found) {
                assert!(
                    (counted / records - found).abs() < 1e-9,
                    "{least} to {most}"
                );
            }
        }
    }

    #[test]
    fn a_place_without_records_gets_nothing_and_not_less() {
        let found = shares(&[1.0], &[1, 5]);
        assert!(found[1].is_sign_positive() && found[2].is_sign_positive());
    }

    #[test]
    fn tables_of_one_record_are_records() {
        let mut dice = Dice::new(13);
        let weights = random(50, &mut dice);
        let (by_record, by_table) = (
            shares(&weights, &[5, 20]),
            table_shares(&weights, &[5, 20], 1),
        );
        for (a, b) in by_record.iter().zip(&by_table) {
            assert!((a - b).abs() < 1e-9);
        }
    }
}
