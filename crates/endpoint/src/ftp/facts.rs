//! Features of servers (RFC 2389) and their facts about files (RFC 3659, section 7).

use crate::{
    FileTime, dates,
    endpoint::{Entry, Kind},
};

use super::{CAPABILITIES, reply::Reply};

/// Features that a server announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Features {
    /// MLST and MLSD, with sizes.
    pub(super) facts: bool,
    /// MFMT (draft-somers-ftp-mfxx), which sets times.
    pub(super) set_time: bool,
    /// REST, which begins in the middle of a file.
    pub(super) restart: bool,
    /// RANG (draft-bryan-ftp-range), which reads a range.
    pub(super) range: bool,
    /// Set if the server reports permission bits.
    pub(super) modes: bool,
    /// UTF8.
    pub(super) utf8: bool,
}

impl Features {
    pub(super) fn read(reply: &Reply) -> Self {
        let mut features = Self::default();
        if !reply.is_done() {
            return features;
        }
        for line in &reply.lines {
            let line = String::from_utf8_lossy(line).to_ascii_uppercase();
            let (name, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
            match name {
                "MLST" | "MLSD" => {
                    features.facts = true;
                    let facts = || rest.split(';').map(|fact| fact.trim_end_matches('*'));
                    features.modes |= facts().any(|fact| fact == "UNIX.MODE");
                }
                "MFMT" => features.set_time = true,
                "REST" => features.restart |= rest.contains("STREAM"),
                "RANG" => features.range |= rest.contains("STREAM"),
                "UTF8" => features.utf8 = true,
                _ => {}
            }
        }
        features
    }
}

/// Contents of a line of facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) entry: Entry,
    /// Set if a size is reported: an unreported size is not zero.
    pub(super) has_size: bool,
    /// Set for the directory that was asked for, or the one above it.
    pub(super) is_itself: bool,
}

impl Told {
    /// Returns whether the file is the one that was `ours` under its hidden name, as far as is
    /// reported. A rename changes no time.
    pub(super) fn is(&self, ours: &Self) -> bool {
        let facts = |told: &Self| (told.entry.size, told.entry.mtime, told.has_size);
        self.entry.kind == Kind::File && facts(self) == facts(ours)
    }
}

/// Reads a line of facts: `type=file;size=3;modify=20260102030405; name`. Returns `None` for any
/// other line.
pub(super) fn told_of(line: &[u8]) -> Option<Told> {
    let cut = line.iter().position(|&byte| byte == b' ')?;
    let (facts, name) = (std::str::from_utf8(&line[..cut]).ok()?, &line[cut + 1..]);
    let mut entry = Entry::bare(name.to_vec(), Kind::Special);
    let (mut is_typed, mut has_size, mut is_itself) = (false, false, false);
    for fact in facts.split(';').filter(|fact| !fact.is_empty()) {
        let (key, value) = fact.split_once('=')?;
        if key.eq_ignore_ascii_case("type") {
            is_typed = true;
            entry.kind = kind_of(value);
            is_itself = ["cdir", "pdir"]
                .iter()
                .any(|itself| value.eq_ignore_ascii_case(itself));
        } else if key.eq_ignore_ascii_case("size") {
            // A value that is no number counts as not reported.
            if let Ok(size) = value.parse() {
                (entry.size, has_size) = (size, true);
            }
        } else if key.eq_ignore_ascii_case("modify") {
            entry.mtime = time_of(value);
        } else if key.eq_ignore_ascii_case("unix.mode") {
            let mode = u32::from_str_radix(value, 8).ok();
            entry.mode = mode.map(|mode| mode & 0o7777);
        }
    }
    if entry.kind != Kind::File {
        entry.size = 0;
    }
    is_typed.then_some(Told {
        entry,
        has_size,
        is_itself,
    })
}

fn kind_of(value: &str) -> Kind {
    let value = value.to_ascii_lowercase();
    match &*value {
        "file" => Kind::File,
        "dir" | "cdir" | "pdir" => Kind::Directory,
        // Servers name links differently, and some add the target.
        other if other.starts_with("os.unix=slink") || other.starts_with("os.unix=symlink") => {
            Kind::Link
        }
        _ => Kind::Special,
    }
}

/// Parses a time: `YYYYMMDDHHMMSS` in UTC, perhaps with a fraction.
fn time_of(text: &str) -> Option<FileTime> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.len() != 14 || !whole.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = |from: usize, to: usize| whole[from..to].parse().unwrap_or(0);
    let digits = fraction.chars().chain("000000000".chars()).take(9);
    let nanos = digits.collect::<String>().parse().ok()?;
    dates::moment(
        [number(0, 4), number(4, 6), number(6, 8)],
        [number(8, 10), number(10, 12), number(12, 14)],
        nanos,
    )
}

/// Returns whether a time is one that many servers don't take: it is set to the first that they do.
pub(super) fn is_early(time: FileTime) -> bool {
    let [first, _] = CAPABILITIES.mtime_secs;
    time.secs < first
}

/// Writes a time, to the second: every server accepts that.
pub(super) fn show_time(time: FileTime) -> String {
    let [first, _] = CAPABILITIES.mtime_secs;
    let secs = time.secs.max(first);
    let (days, second) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
    let [year, month, day] = dates::civil_from_days(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_whatever_their_order() {
        let line = b"modify=20200102030405;perm=adfrw;size=3000;type=file;unique=FE00U9;UNIX.mode=0640;  x y";
        let entry = told_of(line).unwrap().entry;
        assert_eq!(
            (entry.kind, entry.size, entry.mode),
            (Kind::File, 3000, Some(0o640))
        );
        assert_eq!(entry.name, b" x y");
        assert_eq!(entry.mtime.unwrap().secs, 1_577_934_245);
        let entry = told_of(b"Type=dir;Modify=20200102030405.5;size=4096; d");
        let entry = entry.unwrap().entry;
        assert_eq!((entry.kind, entry.size), (Kind::Directory, 0));
        assert_eq!(entry.mtime.unwrap().nanos, 500_000_000);
        let link = told_of(b"type=OS.unix=slink:/x;size=1; l").unwrap();
        assert_eq!((link.entry.kind, link.has_size), (Kind::Link, true));
        for unsized_ in [&b"type=file; n"[..], b"type=file;size=x; n"] {
            assert!(!told_of(unsized_).unwrap().has_size);
        }
        for other in [&b"total 3"[..], b"size=3; untyped", b""] {
            assert_eq!(told_of(other), None);
        }
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        for secs in [0, 1_577_934_245, 1_709_164_800, 4_102_444_799] {
            let time = FileTime { secs, nanos: 0 };
            assert_eq!(time_of(&show_time(time)), Some(time));
        }
        for text in [
            "",
            "2020",
            "20201302000000",
            "2020010203040x",
            "99999999999999",
        ] {
            assert_eq!(time_of(text), None, "{text}");
        }
    }

    #[test]
    fn features_are_known_by_their_lines() {
        let lines = [
            "Features:",
            " MFMT",
            " MLST modify*;size*;type*;UNIX.mode*;",
            " rest stream",
            " RANG STREAM",
            "End",
        ];
        let reply = Reply {
            about: Vec::new(),
            code: 211,
            lines: lines.iter().map(|line| line.as_bytes().to_vec()).collect(),
        };
        let features = Features::read(&reply);
        assert!(features.facts && features.set_time && features.restart && features.modes);
        assert!(features.range && !features.utf8);
        let unknown = Reply { code: 502, ..reply };
        assert_eq!(Features::read(&unknown), Features::default());
    }
}
