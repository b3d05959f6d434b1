//! Names of the exports' paths, by their ends.

use posthaste_journal::RequestRecord;

use super::{onward, submit::is_far};
use crate::{credentials::apart, inbound::way_of};

/// Name of the centre as the start of a path, and the separator between both ends.
const HERE: &str = "here";
const BETWEEN: &str = " to ";

/// Returns the name of the path that it takes.
pub(super) fn way(record: &RequestRecord) -> String {
    let (from, to) = ends(record);
    format!("{}{BETWEEN}{to}", from.as_deref().unwrap_or(HERE))
}

/// Returns the name of the path from here to an end.
pub(super) fn way_to(end: &str) -> String {
    format!("{HERE}{BETWEEN}{end}")
}

/// Returns both ends of the path with this name, as the mind's sources are named: none is the
/// centre.
pub(crate) fn ends_of(way: &str) -> (Option<String>, Option<String>) {
    let between = way.split_once(BETWEEN).filter(|_| !way.starts_with('/'));
    let Some((from, to)) = between else {
        return (Some(way.to_owned()), None);
    };
    let from = (from != HERE).then(|| from.to_owned());
    (from, Some(to.to_owned()))
}

/// Returns the names of both ends: none if it begins here.
pub(crate) fn ends(record: &RequestRecord) -> (Option<String>, String) {
    let source = String::from_utf8_lossy(&record.source);
    let end = |address: &str| apart(&record.wishes.owner, &way_of(address));
    let of_depots = onward::of(record).map(|_| "depots".to_owned());
    let from = is_far(&source).then(|| end(&source)).or(of_depots);
    (from, end(&record.destination))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_a_path_are_in_its_name() {
        let ends = |from: Option<&str>, to: Option<&str>| {
            (from.map(ToOwned::to_owned), to.map(ToOwned::to_owned))
        };
        assert_eq!(ends_of("s3://runs"), ends(Some("s3://runs"), None));
        assert_eq!(
            ends_of("/home/up to now"),
            ends(Some("/home/up to now"), None)
        );
        assert_eq!(ends_of("here to s3://runs"), ends(None, Some("s3://runs")));
        assert_eq!(
            ends_of("depots to s3://runs"),
            ends(Some("depots"), Some("s3://runs"))
        );
    }
}
