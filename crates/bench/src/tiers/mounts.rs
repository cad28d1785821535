//! What is mounted where, as the kernel tells it.

use std::fs;
use std::io;
use std::path::PathBuf;

/// One line of `/proc/self/mountinfo`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Mount {
    /// Where.
    pub point: PathBuf,
    /// The type of file system.
    pub kind: String,
    /// The device, or a name.
    pub source: String,
    /// Options of the file system itself; with cgroup v1, its controllers.
    pub options: String,
}

/// Everything that is mounted, oldest first.
pub(super) fn mounts() -> io::Result<Vec<Mount>> {
    Ok(parse(&fs::read_to_string("/proc/self/mountinfo")?))
}

fn parse(text: &str) -> Vec<Mount> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Mount> {
    // Optional fields stand before the dash, as many as there are.
    let (head, tail) = line.split_once(" - ")?;
    let point = head.split(' ').nth(4)?;
    let mut tail = tail.split(' ');
    Some(Mount {
        point: PathBuf::from(unescape(point)),
        kind: tail.next()?.to_string(),
        source: unescape(tail.next()?),
        options: tail.next()?.to_string(),
    })
}

/// Blanks and backslashes are written as a backslash and three octal digits.
fn unescape(text: &str) -> String {
    let escapes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    escapes
        .iter()
        .fold(text.to_string(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_with_and_without_optional_fields() {
        let text = "36 35 98:0 / /mnt rw,noatime master:1 shared:2 - ext4 /dev/loop0 rw\n\
                    40 30 0:30 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n\
                    50 30 0:31 / /a\\040b rw - tmpfs tmpfs rw\n\
                    broken\n";
        let found = parse(text);
        assert_eq!(found.len(), 3);
        assert_eq!(found[0].source, "/dev/loop0");
        assert_eq!(found[0].point, PathBuf::from("/mnt"));
        assert_eq!(found[1].options, "rw,blkio");
        assert_eq!(found[2].point, PathBuf::from("/a b"));
    }
}
