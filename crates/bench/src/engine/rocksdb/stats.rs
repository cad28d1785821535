//! Numbers out of the text of RocksDB's statistics, which its C interface offers
//! as text alone.

use crate::engine::Counted;

/// Merges and flushes, from the table of levels: every line has the columns of
/// its heading, except that a size is a number and a unit. So a column is found
/// by its distance from the last. Bytes are tenths of a GiB there.
pub(super) fn counted(text: &str) -> Vec<Counted> {
    let mut lines = text.lines();
    let heading = lines.find(|line| line.contains("Comp(cnt)"));
    let titles: Vec<&str> = heading.unwrap_or("").split_whitespace().collect();
    let column = |line: &str, title: &str| -> Option<f64> {
        let place = titles.iter().rev().position(|found| *found == title)?;
        line.split_whitespace().rev().nth(place)?.parse().ok()
    };
    let (mut flushes, mut merges, mut written_gib, mut moved_gib) = (0.0, 0.0, 0.0, 0.0);
    for line in lines.take_while(|line| !line.trim_start().starts_with("Sum")) {
        let line = line.trim_start();
        let Some(level) = line.strip_prefix('L') else {
            continue;
        };
        let count = column(line, "Comp(cnt)").unwrap_or(0.0);
        // What is written to level 0 comes from memory.
        match level.starts_with("0 ") {
            true => flushes += count,
            false => merges += count,
        }
        written_gib += column(line, "Write(GB)").unwrap_or(0.0);
        moved_gib += column(line, "Moved(GB)").unwrap_or(0.0);
    }
    let mib = |gib: f64| (gib * 1024.0) as u64;
    vec![
        Counted::new("flushes", flushes as u64),
        Counted::new("merges", merges as u64),
        Counted::new("flushed and merged MiB, about", mib(written_gib)),
        Counted::new("moved MiB, about", mib(moved_gib)),
    ]
}

/// The time that writers were slowed or waited, from the line
/// `Cumulative stall: HH:MM:SS.mmm H:M:S`. RocksDB counts the writer that leads a group, so that
/// those behind it count for nothing: it is the time in which somebody waited.
pub(super) fn stalled(text: &str) -> Option<Counted> {
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix("Cumulative stall:"))?;
    let mut parts = line.split_whitespace().next()?.split(':');
    let mut next = || parts.next()?.parse::<f64>().ok();
    let seconds = (next()? * 60.0 + next()?) * 60.0 + next()?;
    Some(Counted::new("stalled us", (seconds * 1e6).round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_and_merges_are_told_apart_by_level() {
        let text = "
** Compaction Stats [default] **
Level    Files   Size     Score Read(GB)  Rn(GB) Rnp1(GB) Write(GB) Wnew(GB) Moved(GB) W-Amp Rd(MB/s) Wr(MB/s) Comp(sec) CompMergeCPU(sec) Comp(cnt) Avg(sec) KeyIn KeyDrop Rblob(GB) Wblob(GB)
--------------------------------------------------
  L0      2/0   15.47 MB   0.5      0.0     0.0      0.0       0.5      0.5       0.0   1.0      0.0     88.0      2.0     1.50              17    0.1     0      0       0.0       0.0
  L1      5/0   64.31 MB   0.2      0.1     0.1      0.0       0.25     0.1       0.25   1.0     70.0     68.4      2.17    1.54         4    0.6   540K    31K       0.0       0.0
  L2      5/0   64.31 MB   0.2      0.1     0.1      0.0       0.25     0.1       0.0   1.0     70.0     68.4      2.17    1.54         3    0.6   540K    31K       0.0       0.0
 Sum      7/0   79.78 MB   0.0      0.1     0.1      0.0       1.0      0.6       0.0   2.0     35.0     78.2      4.2     3.0        24    0.2   540K    31K       0.0       0.0
";
        let counts: Vec<u64> = counted(text).iter().map(|c| c.count).collect();
        assert_eq!(counts, [17, 7, 1024, 256]);
    }

    #[test]
    fn stalls_are_in_a_line_of_hours_minutes_and_seconds() {
        let text = "** DB Stats **\nUptime(secs): 1.0 total\n\
                    Cumulative stall: 01:02:03.250 H:M:S, 4.5 percent\n";
        assert_eq!(stalled(text).unwrap().count, 3_723_250_000);
        assert!(stalled("** DB Stats **").is_none());
    }

    #[test]
    fn a_text_without_the_table_counts_nothing() {
        assert!(counted("no table").iter().all(|c| c.count == 0));
    }
}
