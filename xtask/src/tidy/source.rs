//! A reader of Rust source that knows words, texts and comments apart, and nothing more.
//!
//! Enough for house rules: a forbidden word in a text is the wire's business, in a comment it is
//! prose, in a name it is ours.

/// Kind of a piece of source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An identifier or keyword, without a leading `r#`.
    Word,
    /// A string or byte string literal; the text is what stands between the quotes, as written.
    Text,
    /// A line, block or doc comment, with its marks.
    Comment,
    /// A number, a character, a lifetime.
    Literal,
    /// Character of punctuation; `::` is one piece.
    Mark,
}

/// A piece of source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Its kind.
    pub kind: Kind,
    /// Its text in the source.
    pub text: &'a str,
    /// Its first line, from 1.
    pub line: usize,
}

impl Piece<'_> {
    /// Returns whether it is this word or this mark.
    pub fn is(&self, text: &str) -> bool {
        matches!(self.kind, Kind::Word | Kind::Mark) && self.text == text
    }
}

/// Cuts Rust source into pieces and drops white space. Total: anything but Rust becomes marks.
pub fn pieces(source: &str) -> Vec<Piece<'_>> {
    let mut reader = Reader {
        source,
        at: 0,
        line: 1,
    };
    let mut found = Vec::new();
    while let Some(piece) = reader.next_piece() {
        found.push(piece);
    }
    found
}

struct Reader<'a> {
    source: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    /// Takes `len` bytes as a piece whose text leaves out `head` bytes in front and `tail` behind.
    fn take(&mut self, kind: Kind, len: usize, head: usize, tail: usize) -> Piece<'a> {
        let whole = &self.source[self.at..self.at + len];
        let line = self.line;
        self.line += whole.matches('\n').count();
        self.at += len;
        Piece {
            kind,
            text: whole
                .get(head..whole.len().saturating_sub(tail))
                .unwrap_or_default(),
            line,
        }
    }

    fn next_piece(&mut self) -> Option<Piece<'a>> {
        let space = self.rest().len() - self.rest().trim_start().len();
        self.take(Kind::Mark, space, 0, 0);
        let rest = self.rest();
        let first = rest.chars().next()?;
        if rest.starts_with("//") {
            let len = rest.find('\n').unwrap_or(rest.len());
            return Some(self.take(Kind::Comment, len, 0, 0));
        }
        if rest.starts_with("/*") {
            return Some(self.take(Kind::Comment, block_comment_len(rest), 0, 0));
        }
        if let Some((len, head, tail)) = text_len(rest) {
            return Some(self.take(Kind::Text, len, head, tail));
        }
        if first == '\'' || rest.starts_with("b'") {
            let len = quote_len(rest);
            return Some(self.take(Kind::Literal, len, 0, 0));
        }
        if first.is_ascii_digit() {
            let len = word_len(rest);
            return Some(self.take(Kind::Literal, len, 0, 0));
        }
        if is_word(first) {
            let raw = if rest.starts_with("r#") { 2 } else { 0 };
            let len = raw + word_len(&rest[raw..]);
            return Some(self.take(Kind::Word, len, raw, 0));
        }
        let len = if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        Some(self.take(Kind::Mark, len, 0, 0))
    }
}

fn is_word(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

fn word_len(rest: &str) -> usize {
    rest.find(|character| !is_word(character))
        .unwrap_or(rest.len())
}

/// Returns the length of a block comment; they nest.
fn block_comment_len(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// Returns the length of a string literal, and of its opening and closing marks; none if no string
/// starts here.
fn text_len(rest: &str) -> Option<(usize, usize, usize)> {
    let prefix = rest.find(|mark| !matches!(mark, 'b' | 'c' | 'r'))?;
    let after = &rest[prefix..];
    if prefix > 2 {
        return None;
    }
    if rest[..prefix].contains('r') {
        let hashes = after.len() - after.trim_start_matches('#').len();
        let body = after[hashes..].strip_prefix('"')?;
        let close = format!("\"{}", "#".repeat(hashes));
        let head = prefix + hashes + 1;
        let inside = body.find(&close).unwrap_or(body.len());
        let end = (head + inside + close.len()).min(rest.len());
        return Some((end, head, end - head - inside));
    }
    let body = after.strip_prefix('"')?;
    let head = prefix + 1;
    let mut escaped = false;
    for (at, character) in body.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some((head + at + 1, head, 1)),
            _ => {}
        }
    }
    Some((rest.len(), head, 0))
}

/// Returns the length of a character literal or a lifetime.
fn quote_len(rest: &str) -> usize {
    let open = rest.find('\'').unwrap_or(0) + 1;
    let mut inside = rest[open..].chars();
    match (inside.next(), inside.next()) {
        (Some('\\'), Some(escaped)) => {
            let from = open + 1 + escaped.len_utf8();
            rest[from..]
                .find('\'')
                .map_or(rest.len(), |close| from + close + 1)
        }
        (Some(character), Some('\'')) => open + character.len_utf8() + 1,
        _ => open + word_len(&rest[open..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(source: &str) -> Vec<(Kind, &str, usize)> {
        pieces(source)
            .iter()
            .map(|piece| (piece.kind, piece.text, piece.line))
            .collect()
    }

    #[test]
    fn words_texts_and_comments_are_told_apart() {
        assert_eq!(
            shown("let r#type = \"a \\\" b\"; // why\nfoo::bar"),
            [
                (Kind::Word, "let", 1),
                (Kind::Word, "type", 1),
                (Kind::Mark, "=", 1),
                (Kind::Text, "a \\\" b", 1),
                (Kind::Mark, ";", 1),
                (Kind::Comment, "// why", 1),
                (Kind::Word, "foo", 2),
                (Kind::Mark, "::", 2),
                (Kind::Word, "bar", 2),
            ]
        );
    }

    #[test]
    fn raw_and_byte_strings_end_where_they_end() {
        assert_eq!(
            shown("r#\"a\"b\"# br\"c\" b\"\\\"\" x"),
            [
                (Kind::Text, "a\"b", 1),
                (Kind::Text, "c", 1),
                (Kind::Text, "\\\"", 1),
                (Kind::Word, "x", 1),
            ]
        );
    }

    #[test]
    fn lifetimes_and_characters_do_not_open_strings() {
        assert_eq!(
            shown("&'a str '\"' '\\'' b'x' '\\u{41}' y"),
            [
                (Kind::Mark, "&", 1),
                (Kind::Literal, "'a", 1),
                (Kind::Word, "str", 1),
                (Kind::Literal, "'\"'", 1),
                (Kind::Literal, "'\\''", 1),
                (Kind::Literal, "b'x'", 1),
                (Kind::Literal, "'\\u{41}'", 1),
                (Kind::Word, "y", 1),
            ]
        );
    }

    #[test]
    fn block_comments_nest_and_count_lines() {
        assert_eq!(
            shown("/* a /* b\n */ c */ d"),
            [
                (Kind::Comment, "/* a /* b\n */ c */", 1),
                (Kind::Word, "d", 2)
            ]
        );
    }

    #[test]
    fn any_text_is_read_to_its_end() {
        for source in [
            "\"open",
            "r#\"open\"",
            "/* open",
            "'",
            "b'",
            "'\\",
            "é\u{1f600}'",
            "'é'",
        ] {
            let _read = pieces(source);
        }
    }
}
