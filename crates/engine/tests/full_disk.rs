//! A device that is really full: a small ext4 file system on a loop device.
//! Needs root; without, it says so and passes.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use thermocline::{Db, ErrorKind, Options, Tier};

const IMAGE_BYTES: u64 = 64 << 20;

/// A mounted file system; dropped, it is unmounted.
struct Mount {
    directory: PathBuf,
    _files: tempfile::TempDir,
}

fn run(program: &str, arguments: &[&str]) -> bool {
    let done = Command::new(program)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    done.is_ok_and(|status| status.success())
}

impl Mount {
    fn new() -> Option<Mount> {
        let files = tempfile::tempdir().unwrap();
        let image = files.path().join("image");
        std::fs::File::create(&image)
            .unwrap()
            .set_len(IMAGE_BYTES)
            .unwrap();
        let directory = files.path().join("mount");
        std::fs::create_dir(&directory).unwrap();
        let (image, at) = (image.to_str()?, directory.to_str()?);
        let mounted = run("mkfs.ext4", &["-q", "-F", "-m", "0", image])
            && run("mount", &["-o", "loop", image, at]);
        mounted.then_some(Mount {
            directory,
            _files: files,
        })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let at = self.directory.to_str().unwrap_or_default();
        // Lazily, if a failed test still holds files in it.
        if !run("umount", &[at]) {
            run("umount", &["-l", at]);
        }
    }
}

fn options(mount: &Path, mapped: bool) -> Options {
    Options::new()
        .tier(Tier::new("only", mount.join("store")))
        .write_buffer_bytes(2 << 20)
        .table_bytes(1 << 20)
        .first_level_bytes(4 << 20)
        .log_segment_bytes(1 << 20)
        .log_bytes_max(8 << 20)
        .log_mapped(mapped)
        .reserve_bytes(0)
        .background_threads(2)
}

fn value(i: u64) -> Vec<u8> {
    // Nothing that any layer could compress.
    let mut x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut byte = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..4000).map(|_| byte()).collect()
}

fn fill_free_and_resume(mapped: bool) {
    let Some(mount) = Mount::new() else {
        println!("skipped: no ext4 on a loop device can be mounted here");
        return;
    };
    let ballast = mount.directory.join("ballast");
    std::fs::write(&ballast, vec![1u8; 24 << 20]).unwrap();
    let db = Db::open(options(&mount.directory, mapped)).unwrap();
    let mut model = BTreeMap::new();
    let mut i = 0u64;
    let refused = loop {
        assert!(i < 100_000, "64 MiB hold more than 400 MB");
        i += 1;
        let key = (i % 20_000).to_be_bytes();
        match db.put(&key, &value(i)) {
            Ok(()) => model.insert(key, i),
            Err(e) => break e,
        };
    };
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    let check = |db: &Db, model: &BTreeMap<[u8; 8], u64>| {
        let mut found = db.iter().unwrap().forward();
        for (key, i) in model {
            let (k, v) = found.next().unwrap().unwrap();
            assert_eq!((&k[..], v == value(*i)), (&key[..], true));
        }
        assert!(found.next().is_none());
    };
    check(&db, &model);
    for (key, i) in model.iter().take(50) {
        assert!(db.get(key).unwrap().as_deref() == Some(&value(*i)[..]));
    }
    // Full remains full, and named.
    for _ in 0..5 {
        if let Err(e) = db.put(b"more", &value(0)) {
            assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
        } else {
            db.delete(b"more").ok();
        }
    }
    std::fs::remove_file(&ballast).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut resumed = 0;
    while resumed < 1000 {
        i += 1;
        let key = (i % 2000).to_be_bytes();
        match db.put(&key, &value(i)) {
            Ok(()) => {
                resumed += 1;
                model.insert(key, i);
            }
            Err(e) => {
                assert!(Instant::now() < deadline, "writing does not resume: {e}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
    db.delete(b"more").unwrap();
    check(&db, &model);
    db.flush().unwrap();
    check(&db, &model);
    drop(db);
    let db = Db::open(options(&mount.directory, mapped)).unwrap();
    check(&db, &model);
    drop(db);
}

#[test]
fn a_full_device_refuses_writes_serves_reads_and_resumes_when_freed() {
    fill_free_and_resume(true);
    fill_free_and_resume(false);
}
