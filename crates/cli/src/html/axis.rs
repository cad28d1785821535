//! Where a number lies on an axis, and which numbers stand beside it.

/// About how many numbers stand beside an axis.
const TICKS: f64 = 6.0;

/// Decades that a logarithmic axis shows at least and numbers beside it at most.
const DECADES_LEAST: f64 = 1.0;
const DECADE_TICKS_MAX: f64 = 8.0;

/// An axis from its least number at `begin` to its greatest at `end`, in units of
/// the drawing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    least: f64,
    most: f64,
    begin: f64,
    end: f64,
    logarithmic: bool,
}

impl Axis {
    /// A linear axis that holds all numbers; `None` if there are none. All must
    /// be finite.
    pub(super) fn linear(numbers: impl Iterator<Item = f64>, begin: f64, end: f64) -> Option<Axis> {
        let (mut least, mut most) = ends(numbers)?;
        // Half of it, lest the difference of the ends be beyond all numbers.
        if !(most - least).is_finite() {
            (least, most) = (least.max(f64::MIN / 4.0), most.min(f64::MAX / 4.0));
        }
        if most <= least {
            let around = match least == 0.0 {
                true => 1.0,
                false => least.abs() * 0.1,
            };
            most += around;
            // Zero stays the foot of an axis that begins there.
            if least != 0.0 {
                least -= around;
            }
        }
        Some(Axis {
            least,
            most,
            begin,
            end,
            logarithmic: false,
        })
    }

    /// A logarithmic axis of whole decades; `None` if there are no numbers. All
    /// must be finite and above zero.
    pub(super) fn logarithmic(
        numbers: impl Iterator<Item = f64>,
        begin: f64,
        end: f64,
    ) -> Option<Axis> {
        let (least, most) = ends(numbers)?;
        let least = least.log10().floor();
        let most = most.log10().ceil().max(least + DECADES_LEAST);
        Some(Axis {
            least,
            most,
            begin,
            end,
            logarithmic: true,
        })
    }

    /// The place of `number` in the drawing, at most at the ends of the axis.
    pub(super) fn at(&self, number: f64) -> f64 {
        let number = match self.logarithmic {
            true => number.log10(),
            false => number,
        };
        let share = ((number - self.least) / (self.most - self.least)).clamp(0.0, 1.0);
        self.begin + share * (self.end - self.begin)
    }

    /// The numbers that stand beside the axis.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let step = match self.logarithmic {
            true => ((self.most - self.least) / DECADE_TICKS_MAX).ceil(),
            false => round_step((self.most - self.least) / TICKS),
        };
        let first = (self.least / step).ceil();
        let last = (self.most / step).floor();
        // At most some tens by the choice of the step; numbers so large that a
        // step does not change them would otherwise never end.
        let count = (last - first).clamp(0.0, 4.0 * TICKS) as u32;
        (0..=count)
            .map(|tick| {
                let number = (first + f64::from(tick)) * step;
                match self.logarithmic {
                    true => 10_f64.powf(number),
                    false => number,
                }
            })
            .collect()
    }
}

fn ends(numbers: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    numbers.fold(None, |ends, number| match ends {
        None => Some((number, number)),
        Some((least, most)) => Some((f64::min(least, number), f64::max(most, number))),
    })
}

/// The next of 1, 2, 5, 10, ... from `step` up.
fn round_step(step: f64) -> f64 {
    let decade = 10_f64.powf(step.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    let chosen = factors.iter().find(|factor| *factor * decade >= step);
    chosen.unwrap_or(&10.0) * decade
}

/// A number with its thousands as a letter, three digits of it.
pub(super) fn short(number: f64) -> String {
    let size = number.abs();
    let (scaled, letter) = match size {
        _ if size >= 1e15 || (size > 0.0 && size < 1e-3) => return format!("{number:.1e}"),
        _ if size >= 1e12 => (number / 1e12, "T"),
        _ if size >= 1e9 => (number / 1e9, "G"),
        _ if size >= 1e6 => (number / 1e6, "M"),
        _ if size >= 1e4 => (number / 1e3, "k"),
        _ => (number, ""),
    };
    let digits = match scaled.abs() {
        scaled if scaled >= 100.0 => 0,
        scaled if scaled >= 10.0 => 1,
        scaled if scaled >= 1.0 => 2,
        _ => 4,
    };
    let text = format!("{scaled:.digits$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    match text {
        "-0" => "0".to_string(),
        _ => format!("{text}{letter}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_on_the_axis() {
        let axis = Axis::linear([0.0, 87.0].into_iter(), 0.0, 100.0).unwrap();
        assert_eq!(axis.ticks(), [0.0, 20.0, 40.0, 60.0, 80.0]);
        let axis = Axis::logarithmic([3.0, 4e4].into_iter(), 0.0, 100.0).unwrap();
        assert_eq!(axis.ticks(), [1.0, 10.0, 100.0, 1e3, 1e4, 1e5]);
        assert_eq!(axis.at(1.0), 0.0);
        assert_eq!(axis.at(1e5), 100.0);
    }

    #[test]
    fn an_axis_of_one_number_has_room_on_it() {
        for number in [0.0, 5.0, -5.0, 1e300, 1e-300] {
            let axis = Axis::linear([number].into_iter(), 0.0, 100.0).unwrap();
            assert!(axis.at(number).is_finite(), "{number}");
            assert!(axis.ticks().iter().all(|tick| tick.is_finite()), "{number}");
            assert!(axis.ticks().len() < 40);
        }
        assert!(Axis::linear(std::iter::empty(), 0.0, 1.0).is_none());
        let axis = Axis::logarithmic([10.0].into_iter(), 0.0, 100.0).unwrap();
        assert_eq!(axis.ticks(), [10.0, 100.0]);
    }

    #[test]
    fn the_greatest_numbers_do_not_break_an_axis() {
        let axis = Axis::linear([f64::MIN, 0.0, f64::MAX].into_iter(), 0.0, 100.0).unwrap();
        let places = [f64::MIN, 0.0, f64::MAX].map(|number| axis.at(number));
        assert_eq!(places, [0.0, 50.0, 100.0]);
        assert!(axis.ticks().len() < 40);
        let axis = Axis::logarithmic([f64::MIN_POSITIVE, f64::MAX].into_iter(), 0.0, 1.0).unwrap();
        assert!(axis.ticks().len() < 40);
    }

    #[test]
    fn numbers_are_short() {
        let numbers = [
            0.0, -0.0, 0.25, 1.5, 100.0, 1234.0, 12_345.0, 150_000.0, 2.5e6, 3e9,
        ];
        let expected = [
            "0", "0", "0.25", "1.5", "100", "1234", "12.3k", "150k", "2.5M", "3G",
        ];
        assert_eq!(numbers.map(short), expected);
        assert_eq!(short(1e-9), "1.0e-9");
    }
}
