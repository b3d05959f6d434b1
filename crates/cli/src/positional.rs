//! Sources followed by a destination: options may stand anywhere between them.

use crate::failure::Failure;

/// Removes the last of the names, which is the destination.
///
/// # Errors
/// Returns a [`Failure`] with the usage if there is no other.
pub fn take_last<T>(named: &mut Vec<T>, usage: &str) -> Result<T, Failure> {
    let last = named.pop().filter(|_| !named.is_empty());
    last.ok_or_else(|| Failure::usage(format!("nothing says where it goes: {usage}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_is_where_the_rest_goes() {
        let mut named = vec!["one", "two", "there"];
        assert_eq!(take_last(&mut named, "cp").ok(), Some("there"));
        assert_eq!(named, ["one", "two"]);
        assert!(take_last(&mut vec!["one"], "cp").is_err());
    }
}
