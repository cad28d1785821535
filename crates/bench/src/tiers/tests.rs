//! The rig on this machine, for real: small images in a temporary directory, a
//! name of its own for each test. Without root or without cgroup version 1 the
//! tests say that they were skipped.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::*;
use crate::device::Counters;

const IMAGE_BYTES: u64 = 32 << 20;

/// A place for one test's rig. Whatever stands is taken down at the end.
struct Ground {
    directory: tempfile::TempDir,
    place: Place,
    controllers: Controllers,
}

impl Ground {
    /// `None`, with a printed word, where no rig can be made.
    fn new(name: &str) -> Option<Ground> {
        let controllers = match up::requirements() {
            Ok(controllers) => controllers,
            Err(words) => {
                println!("skipped: {words}");
                return None;
            }
        };
        let memory = Path::new("/dev/shm");
        let directory = match memory.is_dir() {
            true => tempfile::tempdir_in(memory).unwrap(),
            false => tempfile::tempdir().unwrap(),
        };
        let name = format!("test-{}-{name}", std::process::id());
        let place = Place::new(&name, &directory.path().join("state")).unwrap();
        Some(Ground {
            directory,
            place,
            controllers,
        })
    }

    fn plan(&self) -> Plan {
        let tier = |name: &str, profile| PlannedTier {
            name: name.to_string(),
            profile: Profile::named(profile).unwrap(),
            bytes: IMAGE_BYTES,
        };
        Plan {
            directory: self.directory.path().to_path_buf(),
            tiers: vec![tier("fast", "nvme"), tier("slow", "hdd-seek")],
            memory_bytes: Some(64 << 20),
            uncapped_time: Duration::from_millis(1),
        }
    }

    fn up(&self) -> Rig {
        up::up(&self.place, &self.controllers, &self.plan()).unwrap();
        found(&self.place).unwrap().unwrap()
    }

    fn home(&self) -> PathBuf {
        self.directory.path().join(&self.place.name)
    }

    fn memory_group(&self) -> PathBuf {
        self.controllers.memory.join(&self.place.name)
    }

    /// Asserts that nothing of the rig is left on this machine; `devices` are
    /// those it had.
    fn assert_nothing_left(&self, devices: &[(u32, u32)]) {
        assert!(!self.home().exists());
        assert!(!self.directory.path().join("state").exists());
        assert!(!self.memory_group().exists());
        for name in ["fast", "slow"] {
            let image = self.home().join(format!("{name}.image"));
            assert_eq!(image::attached(&image).unwrap(), Vec::<PathBuf>::new());
            let point = self.home().join(name);
            assert!(mounts::mounts().unwrap().iter().all(|m| m.point != point));
        }
        for &device in devices {
            let profile = Profile::named("hdd-seek").unwrap();
            for cap in cgroup::caps(&self.controllers, device, &profile) {
                assert!(!cap.holds().unwrap(), "{cap:?}");
            }
        }
        assert!(found(&self.place).unwrap().is_none());
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if let Err(error) = down::down(&self.place) {
            eprintln!("{}: {error}", self.place.name);
        }
    }
}

#[test]
fn a_rig_goes_up_as_planned_and_down_without_a_trace() {
    let Some(ground) = Ground::new("plain") else {
        return;
    };
    assert!(found(&ground.place).unwrap().is_none());
    let rig = ground.up();
    let names: Vec<_> = rig.tiers.iter().map(|tier| tier.name.as_str()).collect();
    assert_eq!(names, ["fast", "slow"]);
    for tier in &rig.tiers {
        assert_eq!(fs::read_dir(&tier.path).unwrap().count(), 0, "not empty");
        assert!(tier.bytes < IMAGE_BYTES && tier.bytes > IMAGE_BYTES / 5 * 4);
        let caps = cgroup::caps(&ground.controllers, tier.device, &tier.profile);
        assert!(caps.iter().all(|cap| cap.holds().unwrap()));
        let (major, minor) = tier.device;
        let read_ahead = format!("/sys/dev/block/{major}:{minor}/queue/read_ahead_kb");
        assert_eq!(fs::read_to_string(read_ahead).unwrap(), "128\n");
    }
    assert_eq!(rig.memory_group, Some(ground.memory_group()));

    let devices: Vec<_> = rig.tiers.iter().map(|tier| tier.device).collect();
    let undone = down::down(&ground.place).unwrap();
    assert!(
        undone.iter().any(|line| line.contains("unmounted")),
        "{undone:?}"
    );
    ground.assert_nothing_left(&devices);
    assert_eq!(down::down(&ground.place).unwrap(), Vec::<String>::new());
}

#[test]
fn down_restores_everything_after_a_death_before_or_after_any_step_of_up() {
    let Some(ground) = Ground::new("death") else {
        return;
    };
    let mut deaths = 0;
    // More steps than there are, lest a machine that refuses them all goes on.
    for at in 0..20 {
        let mut survived = false;
        for recorded in [false, true] {
            let lock = ground.place.lock().unwrap();
            let mut journal = state::Journal::new(&ground.place).unwrap();
            journal.dies = Some((at, recorded));
            let outcome = up::raise(
                &mut journal,
                &ground.place,
                &ground.controllers,
                &ground.plan(),
            );
            // What a process that died leaves is its record.
            drop((journal, lock));
            survived = outcome.is_ok();
            if !survived {
                deaths += 1;
                let words = found(&ground.place).unwrap_err().to_string();
                assert!(words.contains(&ground.place.name), "{words}");
                let again = up::up(&ground.place, &ground.controllers, &ground.plan());
                let words = again.unwrap_err().to_string();
                assert!(words.contains("did not finish"), "{words}");
            }
            down::down(&ground.place).unwrap();
            ground.assert_nothing_left(&[]);
        }
        if survived {
            break;
        }
    }
    // A directory, four steps for each of two tiers, their caps, the group.
    assert_eq!(deaths, 2 * (1 + 2 * 4 + 2 + 1));
}

#[test]
fn a_second_rig_is_refused_by_its_name_and_leaves_the_first_alone() {
    let Some(ground) = Ground::new("second") else {
        return;
    };
    ground.up();
    let error = up::up(&ground.place, &ground.controllers, &ground.plan()).unwrap_err();
    let words = error.to_string();
    assert!(
        words.contains(&ground.place.name) && words.contains("up already"),
        "{words}"
    );
    assert!(found(&ground.place).unwrap().is_some());
}

#[test]
fn a_plan_without_room_is_refused_before_anything_is_made() {
    let Some(ground) = Ground::new("room") else {
        return;
    };
    let mut plan = ground.plan();
    plan.tiers[1].bytes = 1 << 50;
    let error = up::up(&ground.place, &ground.controllers, &plan).unwrap_err();
    assert!(error.to_string().contains("MiB free"), "{error}");
    assert!(!ground.home().exists());
    ground.assert_nothing_left(&[]);
}

#[test]
fn an_up_that_fails_takes_back_what_it_made_and_nothing_else() {
    let Some(ground) = Ground::new("fails") else {
        return;
    };
    // Somebody else's, in the way of the last step.
    fs::create_dir(ground.memory_group()).unwrap();
    let outcome = up::up(&ground.place, &ground.controllers, &ground.plan());
    let spared = fs::remove_dir(ground.memory_group());
    let error = outcome.unwrap_err();
    assert!(error.to_string().contains("is undone"), "{error}");
    spared.unwrap();
    assert!(!ground.home().exists());
    assert!(ground.place.load().unwrap().is_none());
}

#[test]
fn down_names_who_holds_a_tier_and_goes_on_when_asked_again() {
    let Some(ground) = Ground::new("busy") else {
        return;
    };
    let rig = ground.up();
    let held = File::create(rig.tiers[1].path.join("held")).unwrap();
    let words = down::down(&ground.place).unwrap_err().to_string();
    let holder = format!("in use by {}", std::process::id());
    assert!(words.contains(&holder), "{words}");
    assert!(words.contains("could not be undone"), "{words}");
    assert!(!ground.memory_group().exists(), "the rest is undone");
    let words = found(&ground.place).unwrap_err().to_string();
    assert!(words.contains("did not finish"), "{words}");
    drop(held);
    down::down(&ground.place).unwrap();
    let devices: Vec<_> = rig.tiers.iter().map(|tier| tier.device).collect();
    ground.assert_nothing_left(&devices);
}

#[test]
fn a_worker_joins_the_caps_of_devices_and_of_memory() {
    let Some(ground) = Ground::new("join") else {
        return;
    };
    let rig = ground.up();
    let mut worker = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    rig.join(worker.id()).unwrap();
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", worker.id())).unwrap();
    let memory = format!("memory:/{}", ground.place.name);
    assert!(
        groups.lines().any(|line| line.ends_with(&memory)),
        "{groups}"
    );
    assert!(
        groups.lines().any(|line| line.ends_with("blkio:/")),
        "{groups}"
    );

    // `down` gets rid of the group though the worker is in it.
    let undone = down::down(&ground.place).unwrap().join("\n");
    assert!(undone.contains("moved the 1 processes"), "{undone}");
    drop(worker.stdin.take());
    worker.wait().unwrap();
}

/// What the device counted since `before`, asked until it is `enough`, or for ten seconds. The
/// kernel wakes who waits for a request before it counts that request, so that the last one may be
/// missing for a moment.
fn counted_since(path: &Path, before: Counters, enough: impl Fn(&Counters) -> bool) -> Counters {
    let begun = Instant::now();
    loop {
        let counted = Counters::of(path).unwrap() - before;
        if enough(&counted) || begun.elapsed() > Duration::from_secs(10) {
            return counted;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn counters_of_a_device_are_the_bytes_and_requests_of_direct_io() {
    let Some(ground) = Ground::new("counters") else {
        return;
    };
    let rig = ground.up();
    let tier = &rig.tiers[0];
    let probe = probe::Probe::with_bytes(&tier.path, 8 << 20).unwrap();
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(probe.path())
        .unwrap();
    let mut memory = vec![7; 8192];
    let at = memory.as_ptr().align_offset(4096);
    let page = &mut memory[at..at + 4096];
    // The journal of the file's making shall not count.
    file.sync_all().unwrap();
    rustix::fs::syncfs(&file).unwrap();

    let before = Counters::of(&tier.path).unwrap();
    for block in 0..100 {
        file.write_all_at(page, block * 4096).unwrap();
    }
    let written = counted_since(&tier.path, before, |counted| counted.writes >= 100);
    assert!(
        written.writes >= 100 && written.written_bytes >= 100 * 4096,
        "{written:?}"
    );
    assert!(
        written.writes < 120 && written.written_bytes < 150 * 4096,
        "{written:?}"
    );

    let before = Counters::of(&tier.path).unwrap();
    for block in 0..200 {
        file.read_exact_at(page, block * 8192).unwrap();
    }
    let read = counted_since(&tier.path, before, |counted| counted.reads >= 200);
    assert_eq!((read.reads, read.read_bytes), (200, 200 * 4096));
    // Counted by device, not by file system: the other one did nothing.
    let other = Counters::of(&rig.tiers[1].path).unwrap();
    assert_eq!(
        Counters::of(&rig.tiers[1].path).unwrap() - other,
        Counters::default()
    );
    drop(file);
}
