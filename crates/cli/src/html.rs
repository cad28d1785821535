//! The report as one HTML file: plots as inline SVG, tables, no script, nothing
//! that is fetched. It is readable in a browser without a network, in light and
//! in dark.
//!
//! What is drawn is plain data ([`Section`]); whoever measures fills it. Numbers
//! that are not finite are left out of a plot, as are those that a logarithmic
//! axis cannot show; a plot without a number says so. A line has at most
//! `POINTS_MAX` points; of more, the least and the greatest of each stretch
//! are drawn, so that no spike is lost.

use std::fmt::Write;

mod axis;

use axis::{Axis, short};

/// A part of the report with its plots.
#[derive(Clone, Default, Debug)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// Paragraphs below the heading.
    pub text: Vec<String>,
    /// Below the text, in this order.
    pub plots: Vec<Plot>,
}

/// Something drawn.
#[derive(Clone, Debug)]
pub enum Plot {
    /// Lines over a common horizontal axis.
    Series(Series),
    /// Groups of bars.
    Bars(Bars),
    /// Rows of text.
    Table(Rows),
}

/// Lines over a common horizontal axis.
#[derive(Clone, Default, Debug)]
pub struct Series {
    /// What is shown.
    pub title: String,
    /// The unit of the vertical axis.
    pub unit: String,
    /// The unit of the horizontal axis.
    pub across: String,
    /// Whether the vertical axis is logarithmic.
    pub logarithmic: bool,
    /// The lines, in the order of the legend.
    pub lines: Vec<Line>,
}

/// One line.
#[derive(Clone, Default, Debug)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Its points, in the order in which they are joined.
    pub points: Vec<(f64, f64)>,
}

/// Groups of bars, the bars of each group in the order of `names`.
#[derive(Clone, Default, Debug)]
pub struct Bars {
    /// What is shown.
    pub title: String,
    /// The unit of the vertical axis.
    pub unit: String,
    /// The names of the bars in the legend.
    pub names: Vec<String>,
    /// Each group with its name and a value for each of `names`; a bar that a
    /// group does not have is NaN or missing at the end.
    pub groups: Vec<(String, Vec<f64>)>,
}

/// A table; columns of numbers lean right.
#[derive(Clone, Default, Debug)]
pub struct Rows {
    /// The titles of the columns.
    pub titles: Vec<String>,
    /// The cells of each row.
    pub rows: Vec<Vec<String>>,
}

/// The most points of a line that are drawn.
const POINTS_MAX: usize = 1000;

/// The drawing, in units of the SVG, and the margins around what is plotted.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 18.0;
const BOTTOM: f64 = 40.0;

/// A bar at least so wide has its number above it.
const LABELLED_WIDTH: f64 = 34.0;

/// Colours that people with any colour vision tell apart (Okabe and Ito), in
/// both lights; after the last they begin again, dashed.
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c",
];

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1a1a1a;--paper:#fff;--faint:#d8d8d8;--soft:#666}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e6e6;--paper:#16181b;--faint:#3a3d42;--soft:#9a9a9a}}\
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);\
max-width:60rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.6rem}h2{font-size:1.25rem;margin-top:2.5rem}\
figure{margin:1.5rem 0}figcaption{font-weight:600;margin-bottom:.4rem}\
svg{width:100%;height:auto;display:block}svg text{font-size:12px;fill:var(--ink)}\
.grid{stroke:var(--faint);stroke-width:1}.axis{stroke:var(--soft);stroke-width:1}\
.line{fill:none;stroke-width:1.8;stroke-linejoin:round}.none{color:var(--soft);font-style:italic}\
ul.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;margin:.4rem 0;padding:0;\
font-size:.9rem}ul.legend svg{display:inline-block;width:24px;height:10px;margin-right:.4rem}\
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}\
th,td{padding:.25rem .7rem;border-bottom:1px solid var(--faint);text-align:left}\
.number{text-align:right}";

/// The whole file.
pub fn page(title: &str, sections: &[Section]) -> String {
    let title = escape(title);
    let mut text = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
    );
    for section in sections {
        put(
            &mut text,
            format_args!("<h2>{}</h2>\n", escape(&section.title)),
        );
        for paragraph in &section.text {
            put(&mut text, format_args!("<p>{}</p>\n", escape(paragraph)));
        }
        for plot in &section.plots {
            match plot {
                Plot::Series(series) => draw_series(&mut text, series),
                Plot::Bars(bars) => draw_bars(&mut text, bars),
                Plot::Table(rows) => draw_table(&mut text, rows),
            }
        }
    }
    text.push_str("</body>\n</html>\n");
    text
}

/// Text that stands for itself in an element and in an attribute.
fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // Not allowed in a document at all, not even as a number.
            control if control.is_control() && control != '\n' => safe.push('\u{fffd}'),
            other => safe.push(other),
        }
    }
    safe
}

fn put(text: &mut String, piece: std::fmt::Arguments<'_>) {
    text.write_fmt(piece).expect("a string takes everything");
}

fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// The dashes of line `index`; none in the first round of colours.
fn dashes(index: usize) -> &'static str {
    match index / COLOURS.len() {
        0 => "",
        1 => " stroke-dasharray=\"6 3\"",
        _ => " stroke-dasharray=\"2 3\"",
    }
}

fn begin_figure(text: &mut String, title: &str) {
    let title = escape(title);
    put(
        text,
        format_args!("<figure>\n<figcaption>{title}</figcaption>\n"),
    );
}

fn no_data(text: &mut String) {
    text.push_str("<p class=\"none\">no data</p>\n</figure>\n");
}

fn begin_svg(text: &mut String, title: &str) {
    put(
        text,
        format_args!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
            escape(title)
        ),
    );
}

/// Grid lines and numbers of the vertical axis.
fn draw_vertical(text: &mut String, axis: &Axis, unit: &str) {
    for tick in axis.ticks() {
        let y = axis.at(tick);
        put(
            text,
            format_args!(
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0,
                short(tick)
            ),
        );
    }
    let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
    put(
        text,
        format_args!(
            "<text transform=\"translate(13 {middle:.1}) rotate(-90)\" \
             text-anchor=\"middle\">{}</text>\n",
            escape(unit)
        ),
    );
}

fn draw_base(text: &mut String) {
    let y = HEIGHT - BOTTOM;
    put(
        text,
        format_args!(
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\n",
            WIDTH - RIGHT
        ),
    );
}

fn draw_legend(text: &mut String, names: &[&str]) {
    text.push_str("<ul class=\"legend\">");
    for (index, name) in names.iter().enumerate() {
        put(
            text,
            format_args!(
                "<li><svg viewBox=\"0 0 24 10\" aria-hidden=\"true\"><line x1=\"0\" x2=\"24\" \
                 y1=\"5\" y2=\"5\" stroke=\"{}\" stroke-width=\"4\"{}/></svg>{}</li>",
                colour(index),
                dashes(index),
                escape(name)
            ),
        );
    }
    text.push_str("</ul>\n");
}

fn draw_series(text: &mut String, series: &Series) {
    begin_figure(text, &series.title);
    let shown = |point: &(f64, f64)| {
        point.0.is_finite() && point.1.is_finite() && (!series.logarithmic || point.1 > 0.0)
    };
    let lines: Vec<Vec<(f64, f64)>> = series
        .lines
        .iter()
        .map(|line| line.points.iter().copied().filter(shown).collect())
        .collect();
    let all = || lines.iter().flatten();
    let across = Axis::linear(all().map(|point| point.0), LEFT, WIDTH - RIGHT);
    let ends = (HEIGHT - BOTTOM, TOP);
    let up = match series.logarithmic {
        true => Axis::logarithmic(all().map(|point| point.1), ends.0, ends.1),
        // From zero, so that heights compare.
        false => Axis::linear(all().map(|point| point.1).chain([0.0]), ends.0, ends.1),
    };
    let (false, Some(across), Some(up)) = (all().next().is_none(), across, up) else {
        return no_data(text);
    };
    begin_svg(text, &series.title);
    draw_vertical(text, &up, &series.unit);
    for tick in across.ticks() {
        let (x, y) = (across.at(tick), HEIGHT - BOTTOM + 16.0);
        put(
            text,
            format_args!(
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>\n",
                short(tick)
            ),
        );
    }
    put(
        text,
        format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 6.0,
            escape(&series.across)
        ),
    );
    draw_base(text);
    for (index, points) in lines.iter().enumerate() {
        draw_line(text, series, index, &thin(points), (&across, &up));
    }
    text.push_str("</svg>\n");
    let names: Vec<&str> = series.lines.iter().map(|line| line.name.as_str()).collect();
    draw_legend(text, &names);
    text.push_str("</figure>\n");
}

fn draw_line(
    text: &mut String,
    series: &Series,
    index: usize,
    points: &[(f64, f64)],
    (across, up): (&Axis, &Axis),
) {
    let name = escape(&series.lines[index].name);
    match points {
        [] => {}
        // A line of one point would not be seen.
        [(x, y)] => put(
            text,
            format_args!(
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{}\"><title>{name}: {}</title>\
                 </circle>\n",
                across.at(*x),
                up.at(*y),
                colour(index),
                short(*y)
            ),
        ),
        _ => {
            let mut path = String::new();
            for (x, y) in points {
                put(
                    &mut path,
                    format_args!("{:.1},{:.1} ", across.at(*x), up.at(*y)),
                );
            }
            put(
                text,
                format_args!(
                    "<polyline class=\"line\" stroke=\"{}\"{} points=\"{}\"><title>{name}</title>\
                     </polyline>\n",
                    colour(index),
                    dashes(index),
                    path.trim_end()
                ),
            );
        }
    }
}

/// At most [`POINTS_MAX`] points that look like all of them: the least and the
/// greatest of each stretch, in their order.
fn thin(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= POINTS_MAX {
        return points.to_vec();
    }
    let stretch = points.len().div_ceil(POINTS_MAX / 2);
    let mut kept = Vec::with_capacity(POINTS_MAX);
    for part in points.chunks(stretch) {
        let place = |greatest: bool| {
            let indices = 0..part.len();
            let compare = |a: &usize, b: &usize| part[*a].1.total_cmp(&part[*b].1);
            match greatest {
                true => indices.max_by(compare),
                false => indices.min_by(compare),
            }
        };
        if let (Some(least), Some(greatest)) = (place(false), place(true)) {
            kept.push(part[least.min(greatest)]);
            if least != greatest {
                kept.push(part[least.max(greatest)]);
            }
        }
    }
    kept
}

fn draw_bars(text: &mut String, bars: &Bars) {
    begin_figure(text, &bars.title);
    let values = || bars.groups.iter().flat_map(|group| &group.1);
    let finite = || values().copied().filter(|value| value.is_finite());
    let axis = Axis::linear(finite().chain([0.0]), HEIGHT - BOTTOM, TOP);
    let (false, Some(up)) = (finite().next().is_none(), axis) else {
        return no_data(text);
    };
    begin_svg(text, &bars.title);
    draw_vertical(text, &up, &bars.unit);
    let group_width = (WIDTH - LEFT - RIGHT) / bars.groups.len() as f64;
    // A fifth of a group is the gap to the next one.
    let bar_width = group_width * 0.8 / bars.names.len().max(1) as f64;
    for (group, (group_name, values)) in bars.groups.iter().enumerate() {
        let begin = LEFT + group_width * (group as f64 + 0.1);
        for (index, name) in bars.names.iter().enumerate() {
            let Some(&value) = values.get(index).filter(|value| value.is_finite()) else {
                continue;
            };
            let (top, zero) = (up.at(value.max(0.0)), up.at(value.min(0.0)));
            put(
                text,
                format_args!(
                    "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
                     fill=\"{}\"><title>{}, {}: {} {}</title></rect>\n",
                    begin + bar_width * index as f64,
                    bar_width * 0.92,
                    (zero - top).max(0.5),
                    colour(index),
                    escape(group_name),
                    escape(name),
                    short(value),
                    escape(&bars.unit)
                ),
            );
            if bar_width >= LABELLED_WIDTH {
                put(
                    text,
                    format_args!(
                        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
                        begin + bar_width * (index as f64 + 0.46),
                        top - 4.0,
                        short(value)
                    ),
                );
            }
        }
        put(
            text,
            format_args!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
                begin + group_width * 0.4,
                HEIGHT - BOTTOM + 16.0,
                escape(group_name)
            ),
        );
    }
    draw_base(text);
    text.push_str("</svg>\n");
    let names: Vec<&str> = bars.names.iter().map(String::as_str).collect();
    draw_legend(text, &names);
    text.push_str("</figure>\n");
}

fn draw_table(text: &mut String, rows: &Rows) {
    let numbers: Vec<bool> = (0..rows.titles.len())
        .map(|column| {
            let mut cells = rows.rows.iter().filter_map(|row| row.get(column));
            cells.all(|cell| begins_a_number(cell))
        })
        .collect();
    let row = |text: &mut String, cells: &[String], tag: &str| {
        text.push_str("<tr>");
        for (column, cell) in cells.iter().enumerate() {
            let class = match numbers.get(column) {
                Some(true) => " class=\"number\"",
                _ => "",
            };
            put(text, format_args!("<{tag}{class}>{}</{tag}>", escape(cell)));
        }
        text.push_str("</tr>\n");
    };
    text.push_str("<div class=\"wide\"><table>\n<thead>");
    row(text, &rows.titles, "th");
    text.push_str("</thead>\n<tbody>\n");
    for cells in &rows.rows {
        row(text, cells, "td");
    }
    text.push_str("</tbody>\n</table></div>\n");
}

/// Whether a cell stands in a column of numbers: it begins with one, perhaps of
/// money, or says nothing.
fn begins_a_number(cell: &str) -> bool {
    let first = cell.trim_start_matches(['-', '$', '~']).chars().next();
    first.is_none_or(|letter| letter.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(points: Vec<(f64, f64)>) -> Series {
        Series {
            title: "rate".into(),
            unit: "operations a second".into(),
            across: "seconds".into(),
            logarithmic: false,
            lines: vec![Line {
                name: "engine".into(),
                points,
            }],
        }
    }

    fn page_of(plot: Plot) -> String {
        let section = Section {
            title: "a section".into(),
            text: vec!["words".into()],
            plots: vec![plot],
        };
        page("a report", &[section])
    }

    /// Every element that is opened is closed, in order.
    fn assert_balanced(html: &str) {
        let mut open = Vec::new();
        for piece in html.split('<').skip(1) {
            let tag = piece.split('>').next().unwrap();
            let name = tag
                .trim_start_matches('/')
                .split([' ', '/'])
                .next()
                .unwrap();
            if tag.starts_with('!') || tag.ends_with('/') || name == "meta" {
                continue;
            }
            match tag.starts_with('/') {
                true => assert_eq!(open.pop(), Some(name), "{tag}"),
                false => open.push(name),
            }
        }
        assert_eq!(open, Vec::<&str>::new());
    }

    #[test]
    fn names_cannot_leave_their_place() {
        let evil = "<script>alert(\"1\")</script> & 'x' \u{1}";
        let mut plot = series(vec![(0.0, 1.0), (1.0, 2.0)]);
        plot.title = evil.into();
        plot.unit = evil.into();
        plot.across = evil.into();
        plot.lines[0].name = evil.into();
        let bars = Bars {
            title: evil.into(),
            unit: evil.into(),
            names: vec![evil.into()],
            groups: vec![(evil.into(), vec![1.0])],
        };
        let rows = Rows {
            titles: vec![evil.into()],
            rows: vec![vec![evil.into()]],
        };
        let section = Section {
            title: evil.into(),
            text: vec![evil.into()],
            plots: vec![Plot::Series(plot), Plot::Bars(bars), Plot::Table(rows)],
        };
        let html = page(evil, &[section]);
        assert!(!html.contains("<script") && !html.contains('\u{1}'));
        assert!(html.contains("&lt;script&gt;alert(&quot;1&quot;)"));
        assert!(html.contains("&amp; &#39;x&#39; \u{fffd}"));
        assert_balanced(&html);
    }

    #[test]
    fn columns_of_numbers_lean_right_and_words_do_not() {
        let cells = |row: [&str; 4]| row.map(str::to_string).to_vec();
        let html = page_of(Plot::Table(Rows {
            titles: cells(["engine", "rate", "price", "note"]),
            rows: vec![
                cells(["a", "1,234", "$0.1", ""]),
                cells(["b", "-5", "", "3 runs failed"]),
                cells(["c", "60-70", "~2", "x"]),
            ],
        }));
        for title in ["rate", "price"] {
            assert!(
                html.contains(&format!("<th class=\"number\">{title}")),
                "{html}"
            );
        }
        for title in ["engine", "note"] {
            assert!(html.contains(&format!("<th>{title}")), "{html}");
        }
        assert_balanced(&html);
    }

    #[test]
    fn nothing_is_fetched() {
        let html = page_of(Plot::Series(series(vec![(0.0, 1.0), (1.0, 2.0)])));
        for word in ["http:", "https:", "src=", "href=", "@import", "url("] {
            assert!(!html.contains(word), "{word}");
        }
    }

    #[test]
    fn a_plot_without_a_number_says_so() {
        let empty = [
            Plot::Series(Series::default()),
            Plot::Series(series(Vec::new())),
            Plot::Series(series(vec![(0.0, f64::NAN), (f64::INFINITY, 1.0)])),
            Plot::Bars(Bars::default()),
            Plot::Bars(Bars {
                names: vec!["a".into()],
                groups: vec![("b".into(), vec![f64::NAN])],
                ..Bars::default()
            }),
        ];
        for plot in empty {
            let html = page_of(plot);
            assert!(html.contains("no data"), "{html}");
            assert_balanced(&html);
        }
    }

    #[test]
    fn one_point_is_a_dot() {
        let html = page_of(Plot::Series(series(vec![(3.0, 5.0)])));
        assert!(html.contains("<circle") && !html.contains("<polyline"));
        assert_balanced(&html);
    }

    #[test]
    fn numbers_that_cannot_be_drawn_are_left_out_and_the_rest_is_drawn() {
        let nan = f64::NAN;
        let points = vec![
            (0.0, 1.0),
            (1.0, nan),
            (nan, 2.0),
            (2.0, f64::INFINITY),
            (3.0, 4.0),
        ];
        let html = page_of(Plot::Series(series(points)));
        assert!(!html.contains("NaN") && !html.contains("inf"), "{html}");
        let line = html.split("points=\"").nth(1).unwrap();
        assert_eq!(line.split('"').next().unwrap().split(' ').count(), 2);
    }

    #[test]
    fn a_logarithmic_axis_leaves_out_what_is_not_above_zero() {
        let mut plot = series(vec![(0.0, 0.0), (1.0, -3.0), (2.0, 10.0), (3.0, 1e6)]);
        plot.logarithmic = true;
        let html = page_of(Plot::Series(plot));
        let line = html.split("points=\"").nth(1).unwrap();
        assert_eq!(line.split('"').next().unwrap().split(' ').count(), 2);
        assert!(!html.contains("NaN") && !html.contains("inf"), "{html}");
    }

    #[test]
    fn a_long_line_is_thinned_and_keeps_its_spikes() {
        let mut points: Vec<_> = (0..100_000).map(|x| (f64::from(x), 1.0)).collect();
        points[70_001].1 = 99.0;
        points[70_002].1 = -99.0;
        let kept = thin(&points);
        assert!(kept.len() <= POINTS_MAX);
        assert!(kept.contains(&(70_001.0, 99.0)) && kept.contains(&(70_002.0, -99.0)));
        assert!(kept.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!(thin(&points[..POINTS_MAX]).len(), POINTS_MAX);
    }

    #[test]
    fn more_lines_than_colours_are_told_apart_by_dashes() {
        let looks: std::collections::BTreeSet<_> = (0..2 * COLOURS.len())
            .map(|i| (colour(i), dashes(i)))
            .collect();
        assert_eq!(looks.len(), 2 * COLOURS.len());
    }

    #[test]
    fn a_group_with_a_bar_too_few_has_a_gap() {
        let html = page_of(Plot::Bars(Bars {
            title: "bytes".into(),
            unit: "MiB".into(),
            names: vec!["read".into(), "written".into()],
            groups: vec![("a".into(), vec![1.0, 2.0]), ("b".into(), vec![3.0])],
        }));
        assert_eq!(html.matches("<rect").count(), 3);
        assert_balanced(&html);
    }
}
