//! Tiers and distributions as the arguments of `model` name them.

use std::path::PathBuf;

use crate::engine::DeviceProfile;
use crate::engine::cost_model::{Access, Shares, published};
use crate::human;

/// A tier of the arguments: `NAME[=DIR][,SETTING=VALUE]...`.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct TierSpec {
    pub(crate) name: String,
    /// Where it lies, if it is there to be measured.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) profile: Option<DeviceProfile>,
    pub(crate) data_share: Option<f64>,
    pub(crate) levels: Option<u32>,
    pub(crate) probes: Option<u32>,
}

impl TierSpec {
    /// The paper's LogStore: NVMe and HDD.
    pub(crate) fn of_the_paper() -> Vec<TierSpec> {
        let tier = |name: &str, profile| TierSpec {
            name: name.into(),
            profile: Some(profile),
            ..TierSpec::default()
        };
        vec![tier("nvme", published::NVME), tier("hdd", published::HDD)]
    }
}

/// Reads `NAME[=DIR][,device=..][,iops=..][,mbs=..][,share=..][,levels=..][,probes=..]`.
/// What does not look like one of the settings belongs to the directory, commas
/// included.
pub(crate) fn parse_tier(spec: &str) -> Result<TierSpec, String> {
    let mut tier = TierSpec::default();
    let (mut iops, mut mbs) = (None, None);
    let mut rest = spec;
    while let Some((before, setting)) = rest.rsplit_once(',') {
        match setting.split_once('=') {
            Some(("device", value)) => tier.profile = Some(device(value)?),
            Some(("iops", value)) => iops = Some(rate(value)?),
            Some(("mbs", value)) => mbs = Some(rate(value)?),
            Some(("share", value)) => tier.data_share = Some(part(value)?),
            Some(("levels", value)) => tier.levels = Some(count(value)?),
            Some(("probes", value)) => tier.probes = Some(count(value)?),
            _ => break,
        }
        rest = before;
    }
    match (iops, mbs) {
        (Some(random_read_iops), Some(sequential_mb_s)) => {
            tier.profile = Some(DeviceProfile {
                random_read_iops,
                sequential_mb_s,
            });
        }
        (None, None) => {}
        _ => return Err(format!("{spec:?}: iops and mbs are given together")),
    }
    let (name, directory) = match rest.split_once('=') {
        Some((name, "")) => return Err(format!("{spec:?}: tier {name:?} has no directory")),
        Some((name, directory)) => (name, Some(PathBuf::from(directory))),
        None => (rest, None),
    };
    if name.is_empty() {
        return Err(format!("{spec:?}: the tier has no name"));
    }
    // Otherwise a misspelt setting would be a part of the name.
    if name.contains(',') {
        return Err(format!(
            "{spec:?}: the settings of a tier are device, iops, mbs, share, levels and probes"
        ));
    }
    tier.name = name.into();
    tier.directory = directory;
    Ok(tier)
}

/// Reads `uniform`, `zipf=0.9` or `hotspot=95/5`.
pub(crate) fn parse_distribution(text: &str) -> Result<Access, String> {
    let number = |value: &str| {
        value
            .parse::<f64>()
            .map_err(|_| format!("{text:?}: {value:?} is not a number"))
    };
    match text.split_once('=') {
        None if text == "uniform" => Ok(Access::Uniform),
        Some(("zipf", skew)) => Ok(Access::Zipfian {
            skew: number(skew)?,
        }),
        Some(("hotspot", spot)) => {
            let (operations, records) = spot.split_once('/').ok_or_else(|| {
                format!("{text:?}: a hot spot is percent of operations / percent of records")
            })?;
            let spot = (number(operations)? / 100.0, number(records)? / 100.0);
            if spot.0 > 0.0 && spot.1 <= 0.0 {
                return Err(format!("{text:?}: operations on no records"));
            }
            Ok(Access::Hotspot {
                operations: spot.0,
                records: spot.1,
            })
        }
        _ => Err(format!(
            "{text:?} is not a distribution; write uniform, zipf=0.9 or hotspot=95/5"
        )),
    }
}

/// Reads `70%,22.7%,7.3%`: of memory, then of each tier.
pub(crate) fn parse_read_shares(text: &str) -> Result<Shares, String> {
    let mut shares = text.split(',').map(part);
    let memory = shares.next().unwrap_or_else(|| part(text))?;
    Ok(Shares {
        memory,
        tiers: shares.collect::<Result<_, _>>()?,
    })
}

/// Reads a share that may be nothing.
pub(crate) fn part(text: &str) -> Result<f64, String> {
    match text.trim() {
        "0" | "0%" => Ok(0.0),
        other => human::parse_share(other),
    }
}

fn device(name: &str) -> Result<DeviceProfile, String> {
    match name {
        "nvme" => Ok(published::NVME),
        "ssd" => Ok(published::SSD),
        "hdd" => Ok(published::HDD),
        _ => Err(format!(
            "{name:?} is not a device of the paper; those are nvme, ssd and hdd"
        )),
    }
}

/// Faster than anything that there is, and far from what numbers can hold.
const RATE_MAX: f64 = 1e12;

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value <= RATE_MAX => Ok(value),
        _ => Err(format!(
            "{text:?} is not a rate above 0 and up to {RATE_MAX:e}"
        )),
    }
}

fn count(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not a number of levels or probes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_is_a_name_and_what_is_known_of_it() {
        let tier = parse_tier("fast=/a,b,device=nvme,share=16%,levels=2,probes=1").unwrap();
        assert_eq!(tier.directory, Some(PathBuf::from("/a,b")));
        assert_eq!(tier.profile, Some(published::NVME));
        assert_eq!((tier.levels, tier.data_share), (Some(2), Some(0.16)));
        assert!(parse_tier("slow").unwrap().directory.is_none());
        assert_eq!(parse_tier("slow,share=0").unwrap().data_share, Some(0.0));
        for spec in [
            "",
            "=/a",
            "fast=",
            "fast,iops=100",
            "fast,iops=0,mbs=1",
            "fast,iops=nan,mbs=1",
            "fast,device=tape",
            "fast,share=2",
            "fast,levels=-1",
            "fast,speed=3",
            ",levels=1",
        ] {
            assert!(parse_tier(spec).is_err(), "{spec}");
        }
    }

    #[test]
    fn distributions_are_named() {
        assert_eq!(parse_distribution("uniform"), Ok(Access::Uniform));
        let zipf = Access::Zipfian { skew: 0.99 };
        assert_eq!(parse_distribution("zipf=0.99"), Ok(zipf));
        let spot = Access::Hotspot {
            operations: 0.95,
            records: 0.05,
        };
        assert_eq!(parse_distribution("hotspot=95/5"), Ok(spot));
        for text in [
            "",
            "zipf",
            "zipf=",
            "zipf=x",
            "hotspot=95",
            "hotspot=95/0",
            "uniform=1",
            "latest",
        ] {
            assert!(parse_distribution(text).is_err(), "{text}");
        }
    }

    #[test]
    fn read_shares_are_of_memory_and_then_of_the_tiers() {
        let shares = parse_read_shares("70%,22.7%,7.3%").unwrap();
        assert_eq!((shares.memory, shares.tiers.len()), (0.7, 2));
        assert!(parse_read_shares("").is_err());
        assert!(parse_read_shares("0,1").is_ok());
        assert!(parse_read_shares("70%,x").is_err());
    }
}
