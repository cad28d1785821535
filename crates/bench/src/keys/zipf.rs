//! Zipf's law over the records, exact for any exponent above 0, by rejection
//! and inversion: W. Hörmann and G. Derflinger, "Rejection-inversion to generate
//! variates from monotone discrete distributions", ACM TOMACS 6(3), 1996.
//! A draw costs the same whatever the number of records.

use crate::dice::Dice;

/// Ranks by Zipf's law.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    items: f64,
    exponent: f64,
    /// The integral up to half a rank before the first and behind the last.
    ends: [f64; 2],
    /// Within this distance of a rank a draw is accepted without more.
    near: f64,
}

impl Zipf {
    /// Ranks of `items` items, at least 1; `exponent` is above 0.
    pub(crate) fn new(items: u64, exponent: f64) -> Zipf {
        let mut zipf = Zipf {
            items: items as f64,
            exponent,
            ends: [0.0; 2],
            near: 0.0,
        };
        zipf.ends = [zipf.area(1.5) - 1.0, zipf.area(zipf.items + 0.5)];
        zipf.near = 2.0 - zipf.inverse(zipf.area(2.5) - zipf.height(2.0));
        zipf
    }

    /// The next rank; 0 is the most frequent.
    #[inline]
    pub(crate) fn draw(&self, dice: &mut Dice) -> u64 {
        let [low, high] = self.ends;
        loop {
            let area = high + dice.unit() * (low - high);
            let place = self.inverse(area);
            let rank = (place + 0.5).floor().clamp(1.0, self.items);
            if rank - place <= self.near || area >= self.area(rank + 0.5) - self.height(rank) {
                return rank as u64 - 1;
            }
        }
    }

    fn height(&self, x: f64) -> f64 {
        x.powf(-self.exponent)
    }

    /// The integral of `height` from 1 to `x`: (x^(1-e) - 1) / (1 - e), written
    /// so that it stays exact around e = 1, where it is the logarithm.
    fn area(&self, x: f64) -> f64 {
        let log = x.ln();
        over((1.0 - self.exponent) * log, f64::exp_m1) * log
    }

    /// The `x` whose `area` is given.
    fn inverse(&self, area: f64) -> f64 {
        // Rounding may lead below the domain of the logarithm.
        let scaled = (area * (1.0 - self.exponent)).max(-1.0);
        (over(scaled, f64::ln_1p) * area).exp()
    }
}

/// `function(x) / x` for a function like x near 0.
#[inline]
fn over(x: f64, function: impl Fn(f64) -> f64) -> f64 {
    match x.abs() < 1e-12 {
        true => 1.0,
        false => function(x) / x,
    }
}
