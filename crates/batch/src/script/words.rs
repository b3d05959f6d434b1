//! Words of a line; quotes keep text with spaces together.

use super::Complaint;

/// Longest directive, in bytes.
const LINE_BYTES_MAX: usize = 8192;

/// Splits a line at white space outside quotes, and removes the quotes.
pub(super) fn split(line: usize, text: &str) -> Result<Vec<String>, Complaint> {
    if text.len() > LINE_BYTES_MAX {
        let most = format!("a directive has {LINE_BYTES_MAX} bytes at most");
        return Err(Complaint::new(line, most));
    }
    if text.contains(|c: char| c.is_control() && c != '\t') {
        return Err(Complaint::new(line, "there is a control character in it"));
    }
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut quote = None;
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '"' || c == '\'' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            Some(_) | None => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(Complaint::new(line, "a quote is opened and not closed"));
    }
    words.extend(word);
    Ok(words)
}
