//! What a job is predicted to cost the devices, and what it is for: plain data beside its reason.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::job::rounded;

/// What a job is predicted to do.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Predicted {
    /// Bytes that it reads of devices; what is in memory already is none of them.
    pub read_bytes: u64,
    /// Bytes that it writes to devices: the most, as if nothing that it reads fell away.
    pub written_bytes: u64,
    /// Its cost: seconds that it takes the device of each tier, the first tier first.
    pub device_seconds: Vec<f64>,
    /// What it is for.
    pub benefits: Vec<Benefit>,
}

/// Something that a job is for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Benefit {
    /// What, and its unit, such as `memory_freed_bytes`.
    pub name: Cow<'static, str>,
    /// How much, more being better and less than 0 a loss; `None` where nobody can say, which is
    /// not the same as nothing.
    pub number: Option<f64>,
}

impl Predicted {
    /// Adds what the job is for.
    #[must_use]
    pub fn gaining(mut self, name: &'static str, number: f64) -> Predicted {
        let number = Some(number);
        let name = Cow::Borrowed(name);
        self.benefits.push(Benefit { name, number });
        self
    }

    /// Adds what the job is for where nobody can say how much of it there will be.
    #[must_use]
    pub fn gaining_unknown(mut self, name: &'static str) -> Predicted {
        let name = Cow::Borrowed(name);
        self.benefits.push(Benefit { name, number: None });
        self
    }

    /// Seconds of all devices together.
    #[must_use]
    pub fn cost_seconds(&self) -> f64 {
        self.device_seconds.iter().fold(0.0, |sum, s| sum + s)
    }

    /// The benefit of that name, if it is one and can be told.
    #[must_use]
    pub fn benefit(&self, name: &str) -> Option<f64> {
        self.benefits.iter().find(|b| b.name == name)?.number
    }

    /// Whether all its numbers are finite.
    #[must_use]
    pub fn is_finite(&self) -> bool {
        let benefits = self.benefits.iter().filter_map(|b| b.number);
        let mut all = benefits.chain(self.device_seconds.iter().copied());
        all.all(f64::is_finite)
    }
}

impl fmt::Display for Predicted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (read, written) = (self.read_bytes, self.written_bytes);
        let cost = rounded(self.cost_seconds());
        write!(
            f,
            "read_bytes {read}, written_bytes {written}, cost_device_seconds {cost}"
        )?;
        let busy = self.device_seconds.iter().enumerate();
        let busy: Vec<_> = busy.filter(|(_, seconds)| **seconds > 0.0).collect();
        for (i, (tier, seconds)) in busy.iter().enumerate() {
            let open = if i == 0 { " (" } else { ", " };
            write!(f, "{open}{} of tier {tier}", rounded(**seconds))?;
        }
        f.write_str(if busy.is_empty() { "" } else { ")" })?;
        for (i, Benefit { name, number }) in self.benefits.iter().enumerate() {
            let open = if i == 0 { "; benefit: " } else { ", " };
            match number {
                Some(number) => write!(f, "{open}{name} {}", rounded(*number))?,
                None => write!(f, "{open}{name} not known")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_named_and_is_no_zero() {
        let predicted = Predicted {
            read_bytes: 7,
            written_bytes: 5,
            device_seconds: vec![0.5, 0.0, 0.25],
            benefits: Vec::new(),
        };
        let told = "read_bytes 7, written_bytes 5, cost_device_seconds 0.75 (0.5 of tier 0, 0.25 of tier 2)";
        assert_eq!(predicted.to_string(), told);
        let predicted = predicted
            .gaining("runs_fewer", 2.0)
            .gaining_unknown("wait_us");
        let told = format!("{told}; benefit: runs_fewer 2, wait_us not known");
        assert_eq!(predicted.to_string(), told);
        assert_eq!(predicted.benefit("runs_fewer"), Some(2.0));
        assert_eq!(predicted.benefit("wait_us"), None);
        assert!(predicted.is_finite() && !predicted.gaining("odd", f64::NAN).is_finite());
        let nothing = "read_bytes 0, written_bytes 0, cost_device_seconds 0";
        assert_eq!(Predicted::default().to_string(), nothing);
    }
}
