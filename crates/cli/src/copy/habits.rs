//! Options of cp(1) that people type by habit, and their replacements here.

/// Returns the replacement for an option of cp(1) that `cp` does not have here.
pub fn instead_of(option: &str) -> Option<&'static str> {
    let option = option.split('=').next().unwrap_or(option);
    Some(match option {
        "-i" | "--interactive" => {
            "nothing is asked: --dry-run shows what would be copied, --update leaves newer files alone"
        }
        "--no-clobber" => "--update leaves files alone that are as new; -n is --dry-run here",
        "-T" | "--no-target-directory" => "write the destination without a slash at its end",
        "-l" | "--link" | "-s" | "--symbolic-link" => {
            "files are copied, and never linked: cp or ln makes links"
        }
        "-b" | "--backup" | "-S" | "--suffix" => {
            "no backups are made: name a destination where nothing is yet"
        }
        "-x" | "--one-file-system" => "leave other file systems out with --exclude",
        "-H" => "--links follow copies what links point to",
        "--no-preserve" => {
            "leave it out: modes and times are kept where the destination keeps them"
        }
        "--parents" => "name the directory below which the path is to be",
        "--sparse" | "--reflink" => {
            "leave it out: holes stay, and extents are shared where that can be"
        }
        "-c" => "leave it out: extents are shared where that can be",
        "-Z" | "--context" | "--attributes-only" => "cp(1) does that, between local paths",
        "--remove-destination" => "leave it out: what is there is replaced",
        _ => return None,
    })
}

/// Returns whether everything that a `--preserve` list names is always kept: modes and times.
pub fn are_kept(list: &str) -> bool {
    list.split(',')
        .all(|what| matches!(what.trim(), "mode" | "timestamps" | "time" | "times" | ""))
}

/// Words in a list of `--preserve` that nobody knows; none where there is no such thing.
pub fn unknown_in(list: &str) -> Option<&str> {
    let known = |what: &&str| {
        let more = ["ownership", "links", "xattr", "context", "all"];
        are_kept(what) || more.contains(&what.trim())
    };
    list.split(',').find(|what| !known(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_always_kept_is_told_from_what_is_not() {
        assert!(are_kept("mode,timestamps") && are_kept(""));
        for list in ["all", "mode,ownership", "links", "xattr"] {
            assert!(!are_kept(list), "{list}");
        }
        assert_eq!(unknown_in("mode,garbage,all"), Some("garbage"));
        assert_eq!(unknown_in("mode, ownership,xattr,"), None);
        assert!(instead_of("--backup=numbered").is_some() && instead_of("--nonsense").is_none());
    }
}
