//! Names of unfinished copies.

use std::{
    hash::{BuildHasher, RandomState},
    process,
};

use crate::FileSpec;

/// Hidden suffix of unfinished copies; a tree copy leaves such names out.
pub(crate) const PARTIAL_SUFFIX: &str = ".posthaste-partial";
pub(crate) const LEDGER_SUFFIX: &str = ".posthaste-progress";

/// Start of the name of the directory in which a pull is put together.
const PULL_PREFIX: &str = ".posthaste-pull-";

/// Digits of a dataset in that name.
const PULL_DIGITS: usize = 16;

/// Part between the name of a stage-in and the digits of its draft.
const DRAFT_INFIX: &[u8] = b".posthaste-";

/// Digits in the name of a draft.
const DRAFT_DIGITS: usize = 12;

/// Suffix of the note that a draft lost written bytes.
const LOSS_SUFFIX: &str = ".lost";

/// Reason why an unfinished name is left out: nothing shows whether another copy continues it.
pub const UNFINISHED: &str = "it is named as what a copy left unfinished";

/// Returns whether a name is that of an unfinished copy, pull or stage-in of ours. No tree that is
/// copied, offloaded or staged in brings such names.
#[must_use]
pub fn is_unfinished(name: &[u8]) -> bool {
    name.starts_with(b".")
        && (name.ends_with(PARTIAL_SUFFIX.as_bytes())
            || name.ends_with(LEDGER_SUFFIX.as_bytes())
            || is_pull(name)
            || is_draft(name))
}

fn is_pull(name: &[u8]) -> bool {
    let digits = name.strip_prefix(PULL_PREFIX.as_bytes());
    digits.is_some_and(|digits| are_digits(digits, PULL_DIGITS))
}

fn is_draft(name: &[u8]) -> bool {
    let name = name.strip_suffix(LOSS_SUFFIX.as_bytes()).unwrap_or(name);
    let cut = name.len().saturating_sub(DRAFT_DIGITS);
    let (start, digits) = name.split_at(cut);
    start.ends_with(DRAFT_INFIX) && are_digits(digits, DRAFT_DIGITS)
}

fn are_digits(text: &[u8], count: usize) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == count && text.iter().all(is_digit)
}

/// Makes the name of the directory, inside its destination, in which a pull of the dataset with
/// this digest is put together.
#[must_use]
pub fn pull_name(digest: &str) -> String {
    format!("{PULL_PREFIX}{digest:.PULL_DIGITS$}")
}

/// Makes the hidden name beside `name` under which a stage-in with this token is put together.
#[must_use]
pub fn draft_name(name: &[u8], token: &str) -> Vec<u8> {
    let digits = token.get(..DRAFT_DIGITS).unwrap_or(token);
    [b".", name, DRAFT_INFIX, digits.as_bytes()].concat()
}

/// Makes the name of the note that a draft of this name lost written bytes.
#[must_use]
pub fn loss_name(draft: &[u8]) -> Vec<u8> {
    [draft, LOSS_SUFFIX.as_bytes()].concat()
}

/// Makes a unique word: 16 hexadecimal digits.
#[must_use]
pub fn new_word() -> String {
    // Its keys come from the operating system's source of random numbers.
    format!("{:016x}", RandomState::new().hash_one(process::id()))
}

/// Makes a hidden name with `name` in it, for a file that is made and removed to learn how a store
/// treats it. Its remainder counts as unfinished.
#[must_use]
pub fn trial_name(name: &[u8]) -> Vec<u8> {
    partial_name(name, &new_word())
}

/// Makes the hidden name under which a file `name` waits to be removed, the same each time.
#[must_use]
pub fn leaving_name(name: &[u8]) -> Vec<u8> {
    partial_name(name, "leaving")
}

/// Digits of the hash in the name of an unfinished copy.
const HASH_DIGITS: usize = 12;

/// Part of the name of a file by which a place is known again.
const MARK: &[u8] = b"posthaste-place";

/// Makes the hidden name of a file by which a place is known again, equal for every `word`.
#[must_use]
pub fn mark_name(word: &str) -> Vec<u8> {
    partial_name(MARK, word)
}

/// Returns whether a name is one of [`mark_name`], and no longer one that only begins so.
#[must_use]
pub fn is_mark(name: &[u8]) -> bool {
    let digits = name
        .strip_prefix(b".")
        .and_then(|name| name.strip_prefix(MARK))
        .and_then(|name| name.strip_prefix(b"."))
        .and_then(|name| name.strip_suffix(PARTIAL_SUFFIX.as_bytes()));
    digits.is_some_and(|digits| are_digits(digits, HASH_DIGITS))
}

/// Returns the name of the unfinished copy of `name` that all copies of `spec` share, as they write
/// the same bytes. It must not be truncated when it is opened: another may be about to give it its
/// final name.
#[must_use]
pub(crate) fn same_partial_name(name: &[u8], spec: &FileSpec) -> Vec<u8> {
    partial_name(name, &spec.identity())
}

/// Returns the name of the unfinished copy of `name`: hidden, beside it, equal in every run,
/// different for every origin. If nothing on the other side keeps two writers apart, `origin` is a
/// word of this writer's own.
#[must_use]
pub(crate) fn partial_name(name: &[u8], origin: &str) -> Vec<u8> {
    /// Longest piece of the final name kept, so that the whole stays under the 255 bytes of
    /// `NAME_MAX`.
    const KEPT_BYTES_MAX: usize = 200;
    let mut hasher = blake3::Hasher::new();
    hasher.update(name);
    hasher.update(origin.as_bytes());
    let hash = &hasher.finalize().to_hex()[..HASH_DIGITS];
    let mut cut = name.len().min(KEPT_BYTES_MAX);
    // Not inside a character: some file systems only accept UTF-8.
    while cut > 0 && name.get(cut).is_some_and(|byte| byte & 0xc0 == 0x80) {
        cut -= 1;
    }
    let kept = &name[..cut];
    [b".", kept, b".", hash.as_bytes(), PARTIAL_SUFFIX.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_names_fit_and_are_told_apart() {
        let long = vec![b'x'; 255];
        let name = partial_name(&long, "file:/a");
        assert!(name.len() <= 255 && is_unfinished(&name));
        assert_ne!(name, partial_name(&long, "file:/b"));
        assert!(!is_unfinished(b"results.posthaste-partial"));
        let draft = draft_name(b"run7", "0123456789abcdef");
        assert_eq!(draft, b".run7.posthaste-0123456789ab");
        assert!(is_unfinished(&draft) && is_unfinished(&loss_name(&draft)));
        assert!(is_unfinished(pull_name(&"a1".repeat(32)).as_bytes()));
        for name in [
            ".posthaste-pull-",
            ".run7.posthaste-keys",
            ".run7.posthaste-0123456789a",
            ".run7.posthaste-0123456789ab.txt",
            "run7.posthaste-0123456789ab",
        ] {
            assert!(!is_unfinished(name.as_bytes()), "{name}");
        }
        assert!(is_mark(&mark_name("word")) && !is_mark(&name) && !is_mark(b"posthaste-place"));
        for name in [
            ".posthaste-place-of-my-notes.posthaste-0123456789ab",
            ".posthaste-placebo-trial.csv.posthaste-partial",
            ".posthaste-place.posthaste-partial",
            ".posthaste-place.0123456789ab.posthaste-progress",
        ] {
            assert!(!is_mark(name.as_bytes()), "{name}");
        }
        assert_ne!(new_word(), new_word());
    }
}
