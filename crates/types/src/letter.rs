//! Characters that change how others look.

/// Returns whether a terminal, a browser or an editor obeys a character instead of showing it.
///
/// These are control characters, and those that change the direction of the text after them: a name
/// then reads as another one (Unicode Standard Annex 9, table 5).
#[must_use]
pub fn is_obeyed(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_not_obeyed() {
        for letter in ['\n', '\u{1b}', '\u{9b}', '\u{61c}', '\u{202e}', '\u{2066}'] {
            assert!(is_obeyed(letter), "{letter:?}");
        }
        for letter in ['a', ' ', '\u{e9}', '\u{5d0}', '\u{200d}', '\u{2026}'] {
            assert!(!is_obeyed(letter), "{letter:?}");
        }
    }
}
