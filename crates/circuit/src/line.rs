//! What providers say, as it can be shown.

/// Longest text of a provider that is passed on, in characters.
const LENGTH_MAX: usize = 200;

/// A provider's text in one line, and not too long a one.
pub(crate) fn one(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let plain = words.join(" ");
    let plain = plain.chars().filter(|c| !posthaste_types::is_obeyed(*c));
    plain.take(LENGTH_MAX).collect()
}
