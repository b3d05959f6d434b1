//! Signatures in addresses that were sealed before they were written down: how they look, and that nobody is shown them.

use std::borrow::Cow;

/// Prefix of a sealed signature, behind the `?` of its address.
pub const SEALED: &str = "~sealed-";

/// Returns a text with addresses in it as it may be shown to anybody: each sealed signature is `?…`.
#[must_use]
pub fn shown_sealed(text: &str) -> Cow<'_, str> {
    let mark = format!("?{SEALED}");
    if !text.contains(&mark) {
        return Cow::Borrowed(text);
    }
    let mut rests = text.split(&mark);
    let first = rests.next().unwrap_or_default().to_owned();
    let is_sealed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    Cow::Owned(rests.fold(first, |shown, rest| {
        shown + "?…" + rest.trim_start_matches(is_sealed)
    }))
}
