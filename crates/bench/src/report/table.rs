//! A Markdown table whose columns line up in a terminal.

/// The lines of a table; the first column is text, the others numbers.
pub(crate) struct Table {
    titles: Vec<String>,
    lines: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(titles: Vec<String>) -> Table {
        Table {
            titles,
            lines: Vec::new(),
        }
    }

    /// Adds a line of as many cells as there are titles.
    pub(crate) fn push(&mut self, line: Vec<String>) {
        debug_assert_eq!(line.len(), self.titles.len());
        self.lines.push(line);
    }

    /// The table as text, or `None` if it has no line.
    pub(crate) fn finish(self) -> Option<String> {
        if self.lines.is_empty() {
            return None;
        }
        let widths: Vec<usize> = (0..self.titles.len())
            .map(|column| {
                let cells = self.lines.iter().map(|line| line[column].len());
                cells.chain([self.titles[column].len()]).max().unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        write_line(&mut text, &self.titles, &widths);
        let rules: Vec<String> = widths
            .iter()
            .enumerate()
            .map(|(column, &width)| match column {
                0 => "-".repeat(width),
                _ => format!("{}:", "-".repeat(width - 1)),
            })
            .collect();
        write_line(&mut text, &rules, &widths);
        for line in &self.lines {
            write_line(&mut text, line, &widths);
        }
        Some(text)
    }
}

fn write_line(text: &mut String, cells: &[String], widths: &[usize]) {
    for (column, (cell, &width)) in cells.iter().zip(widths).enumerate() {
        text.push_str(&match column {
            0 => format!("| {cell:<width$} |"),
            _ => format!(" {cell:>width$} |"),
        });
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_numbers_lean_right() {
        let mut table = Table::new(vec!["row".into(), "rate".into()]);
        table.push(vec!["scan".into(), "1".into()]);
        let expected = "| row  | rate |\n| ---- | ---: |\n| scan |    1 |\n";
        assert_eq!(table.finish().unwrap(), expected);
    }

    #[test]
    fn an_empty_table_is_left_out() {
        assert_eq!(Table::new(vec!["row".into()]).finish(), None);
    }
}
