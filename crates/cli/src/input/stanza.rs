//! Stanzas as in Debian's package index: `Name: content` lines, continued by
//! lines that begin with a blank, ended by an empty line (RFC 822, deb822).

/// The content of field `name` of `stanza`, letter case aside. A continued
/// field comes with its line breaks, without the blanks around.
pub(crate) fn field<'a>(stanza: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut at = 0;
    while at < stanza.len() {
        let end = line_end(stanza, at);
        let line = &stanza[at..end];
        if let Some(colon) = line.iter().position(|&b| b == b':')
            && line[..colon].eq_ignore_ascii_case(name.as_bytes())
        {
            let start = at + colon + 1;
            let mut last = end;
            while stanza
                .get(last + 1)
                .is_some_and(|&b| b == b' ' || b == b'\t')
            {
                last = line_end(stanza, last + 1);
            }
            return Some(stanza[start..last].trim_ascii());
        }
        at = end + 1;
    }
    None
}

/// Whether `line` separates stanzas.
pub(crate) fn is_separator(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

fn line_end(text: &[u8], from: usize) -> usize {
    text[from..]
        .iter()
        .position(|&b| b == b'\n')
        .map_or(text.len(), |n| from + n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Dice;

    const STANZA: &[u8] = b"Package: 0ad\nVersion:0.0.26\nDescription: a game\n of war\n .\nTag:";

    #[test]
    fn fields_are_found_whatever_their_case_and_length() {
        assert_eq!(field(STANZA, "package"), Some(&b"0ad"[..]));
        assert_eq!(field(STANZA, "Version"), Some(&b"0.0.26"[..]));
        assert_eq!(
            field(STANZA, "Description"),
            Some(&b"a game\n of war\n ."[..])
        );
        assert_eq!(field(STANZA, "Tag"), Some(&b""[..]));
        assert_eq!(field(STANZA, "of war"), None);
        assert_eq!(field(b"", "x"), None);
    }

    #[test]
    fn random_bytes_never_panic() {
        let seed = 13;
        println!("seed {seed}");
        let mut dice = Dice::new(seed);
        for _ in 0..20_000 {
            let text: Vec<u8> = (0..dice.below(24))
                .map(|_| b"a: \n\t\xff"[dice.below(6) as usize])
                .collect();
            let _ = field(&text, "a");
        }
    }
}
