//! Plots on a terminal: lines of points over time.

use std::io;

/// Size of a plot, in characters, without its axes.
const WIDTH: usize = 72;
const HEIGHT: usize = 9;

/// A line of a plot.
pub(crate) struct Line<'a> {
    /// What it shows; empty where the title says it.
    pub(crate) name: &'a str,
    /// The character it is drawn with.
    pub(crate) mark: char,
    /// Its points, by time; those that are no numbers are left out.
    pub(crate) points: Vec<(f64, f64)>,
}

/// Draws `lines` over a common time, from 0 up. `moments` are marked below, each by
/// its letter; `label` says a number of the vertical axis in a few characters.
pub(crate) fn plot(
    out: &mut dyn io::Write,
    title: &str,
    lines: &[Line<'_>],
    moments: &[(f64, char)],
    label: impl Fn(f64) -> String,
) -> io::Result<()> {
    let points = || lines.iter().flat_map(|l| sound(&l.points));
    let end = points().map(|(x, _)| x).fold(0.0, f64::max);
    let top = points().map(|(_, y)| y).fold(0.0, f64::max);
    let named = lines.iter().filter(|l| !l.name.is_empty());
    let names = named.map(|l| format!("   {} {}", l.mark, l.name));
    writeln!(out, "{title}{}", names.collect::<String>())?;
    if points().next().is_none() || end <= 0.0 {
        return writeln!(out, "  nothing to show");
    }
    let top = if top > 0.0 { top } else { 1.0 };
    let place = |part: f64, whole: f64, cells: usize| {
        let cell = (part / whole * (cells - 1) as f64).round();
        (cell.max(0.0) as usize).min(cells - 1)
    };
    let mut cells = vec![[' '; WIDTH]; HEIGHT];
    // The first line stands in front.
    for line in lines.iter().rev() {
        for (x, y) in sound(&line.points) {
            let row = HEIGHT - 1 - place(y, top, HEIGHT);
            cells[row][place(x, end, WIDTH)] = line.mark;
        }
    }
    for (row, cells) in cells.iter().enumerate() {
        let text = match row {
            0 => label(top),
            _ if row == HEIGHT - 1 => label(0.0),
            _ if row == HEIGHT / 2 => label(top / 2.0),
            _ => String::new(),
        };
        let cells: String = cells.iter().collect();
        writeln!(out, "{text:>9} |{}", cells.trim_end())?;
    }
    let mut axis = ['-'; WIDTH];
    for &(x, letter) in moments.iter().filter(|(x, _)| (0.0..=end).contains(x)) {
        axis[place(x, end, WIDTH)] = letter;
    }
    writeln!(out, "          +{}", axis.iter().collect::<String>())?;
    let (from, to) = ("0 s", format!("{end:.0} s"));
    let gap = WIDTH + 1 - from.len() - to.len();
    writeln!(out, "          {from}{}{to}", " ".repeat(gap))
}

fn sound(points: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> {
    let finite = |(x, y): &&(f64, f64)| x.is_finite() && y.is_finite();
    points.iter().filter(finite).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(points: &[(f64, f64)]) -> String {
        let line = Line {
            name: "it",
            mark: '*',
            points: points.to_vec(),
        };
        let mut out = Vec::new();
        let label = |y: f64| format!("{y:.1}");
        plot(&mut out, "Title", &[line], &[(5.0, 'A')], label).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn points_stand_where_they_belong() {
        let text = drawn(&[(0.0, 0.0), (5.0, 2.0), (10.0, 4.0)]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + HEIGHT + 2);
        assert!(lines[1].starts_with("      4.0 |"), "{text}");
        assert_eq!(lines[1].chars().count(), 11 + WIDTH);
        assert!(lines[HEIGHT].starts_with("      0.0 |*"), "{text}");
        assert!(lines[HEIGHT + 1].contains('A'));
        assert!(lines[HEIGHT + 2].ends_with("10 s"), "{text}");
    }

    #[test]
    fn nothing_and_what_is_no_number_are_no_harm() {
        assert!(drawn(&[]).contains("nothing to show"));
        assert!(drawn(&[(f64::NAN, 1.0), (1.0, f64::INFINITY)]).contains("nothing"));
        assert!(drawn(&[(1.0, 0.0), (2.0, -5.0), (3.0, f64::NAN)]).contains('*'));
    }
}
