//! Names that Azure can't hold, or would change ("Naming and referencing containers, blobs and
//! metadata").

/// Longest name of a blob, in characters.
const CHARS_MAX: usize = 1024;

/// Most components of a name.
const COMPONENTS_MAX: usize = 254;

/// Returns the reason why a blob can't have this name: it would not come back unchanged.
pub(super) fn refuses(key: &str) -> Option<&'static str> {
    if key
        .chars()
        .any(|letter| letter.is_control() || letter == '\\')
    {
        return Some("Azure keeps no names with a backslash or control characters");
    }
    if key.split('/').any(|component| component.ends_with('.')) {
        return Some("Azure keeps no names that end with a dot");
    }
    if key.chars().count() > CHARS_MAX || key.split('/').count() > COMPONENTS_MAX {
        return Some("Azure keeps no names as long as this");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_not_come_back_is_refused() {
        assert_eq!(refuses("a b/c+d/é%20.x"), None);
        let long = "x".repeat(CHARS_MAX + 1);
        let deep = "x/".repeat(COMPONENTS_MAX);
        for key in ["a\nb", "a\\b", "a.", "a./b", "../b", "\u{7f}", &long, &deep] {
            assert!(refuses(key).is_some(), "{key:?}");
        }
    }
}
