//! Texts of providers, in a form that can be shown.

/// Longest text of a provider that is passed on, in characters.
const LENGTH_MAX: usize = 200;

/// Shortens a provider's text to one line.
pub(crate) fn one(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let plain = words.join(" ");
    let plain = plain.chars().filter(|c| !posthaste_types::is_obeyed(*c));
    plain.take(LENGTH_MAX).collect()
}
