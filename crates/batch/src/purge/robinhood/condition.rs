//! Conditions in Robinhood's language.

use super::{
    super::{
        Age, Clock, Condition, Kind, Pattern, Stamp, owner_condition,
        tokens::{Compare, Cursor, bytes, size_from},
    },
    Reader,
};
use crate::script::Complaint;

/// Attributes that this program can't see, or that only Robinhood uses.
const UNSEEN: [&str; 14] = [
    "group",
    "depth",
    "dircount",
    "ost_pool",
    "ost_index",
    "status",
    "last_archive",
    "last_restore",
    "last_copyout",
    "stripe_count",
    "gid",
    "blocks",
    "nlink",
    "fileclass",
];

impl Reader<'_> {
    /// Reads a condition, without the braces around it.
    pub(super) fn condition(&mut self, cursor: &mut Cursor<'_>) -> Result<Condition, Complaint> {
        cursor.condition(&mut |cursor| self.atom(cursor))
    }

    fn atom(&mut self, cursor: &mut Cursor<'_>) -> Result<Condition, Complaint> {
        let line = cursor.line();
        let Some(field) = cursor.next() else {
            return Err(Complaint::new(line, "a condition ends too early"));
        };
        let name = &*field.text;
        let Some(compare) = Compare::take(cursor) else {
            return match name {
                "true" => Ok(Condition::All(Vec::new())),
                "false" => Ok(Condition::Any(Vec::new())),
                _ => self.class(line, name),
            };
        };
        let Some(value) = cursor.next() else {
            return Err(Complaint::new(
                line,
                format!("`{name}` is compared with nothing"),
            ));
        };
        let value = &*value.text;
        let read = match name {
            "last_access" => age(Stamp::Accessed, value, compare),
            "last_mod" | "last_modification" => age(Stamp::Modified, value, compare),
            "last_mdchange" => age(Stamp::Changed, value, compare),
            "creation" => age(Stamp::Born, value, compare),
            "size" => bytes(value).map(|size| compare.with(i128::from(size), &size_from)),
            "type" => kind(value).and_then(|kind| compare.with_equal(kind)),
            "owner" | "user" | "uid" => {
                let owner = if value.contains(['*', '?', '[']) {
                    self.unseen(line, "owners by a pattern")
                } else {
                    owner_condition(value, line, self.owners, &mut self.remarks)
                };
                compare.with_equal(owner)
            }
            "name" | "path" | "tree" => {
                let pattern = self.pattern(name, value);
                let pattern = pattern.map_err(|cause| {
                    Complaint::new(line, format!("`{value}` is no pattern: {cause}"))
                })?;
                compare.with_equal(pattern)
            }
            _ if UNSEEN.contains(&name) || name.starts_with("xattr.") || name.contains('.') => {
                Some(self.unseen(line, &format!("`{name}`")))
            }
            _ => {
                let known = [
                    "last_access",
                    "last_mod",
                    "last_mdchange",
                    "creation",
                    "size",
                    "type",
                    "owner",
                    "name",
                    "path",
                    "tree",
                ];
                return Err(Complaint::unknown(line, name, "attribute", &known));
            }
        };
        read.ok_or_else(|| {
            Complaint::new(
                line,
                format!("`{name}` can't be compared with `{value}` so"),
            )
        })
    }

    fn unseen(&mut self, line: usize, what: &str) -> Condition {
        let text = format!("{what} can't be seen here: whether it holds stays open");
        self.remark_once(line, text);
        Condition::Unknown
    }

    /// Reads a pattern; one that is not a whole path begins at the mount point. With `**` in it,
    /// every `*` matches across names.
    fn pattern(&self, name: &str, value: &str) -> Result<Condition, String> {
        if name == "name" {
            return Pattern::free(value).map(Condition::Name);
        }
        let whole = match &self.root {
            Some(root) if !value.starts_with('/') => format!("{root}/{value}"),
            Some(_) | None => value.to_owned(),
        };
        let pattern = if name == "tree" {
            Pattern::tree(&whole)
        } else if value.contains("**") {
            Pattern::free(&whole)
        } else {
            Pattern::path(&whole)
        };
        pattern.map(Condition::Path)
    }
}

/// Reads the value of `type`. Directories are not removed by age, so no file matches `directory`.
fn kind(value: &str) -> Option<Condition> {
    Some(match value {
        "file" => Condition::Kind(Kind::File),
        "symlink" => Condition::Kind(Kind::Link),
        "fifo" | "socket" | "chr" | "blk" => Condition::Kind(Kind::Other),
        "directory" => Condition::Any(Vec::new()),
        _ => return None,
    })
}

fn age(stamp: Stamp, value: &str, compare: Compare) -> Option<Condition> {
    let seconds = seconds(value)?;
    let clock = Clock::from(stamp);
    Some(compare.with(i128::from(seconds), &|from| {
        let from = i64::try_from(from).unwrap_or(i64::MAX);
        Condition::Age(clock.clone(), Age::Seconds(from))
    }))
}

/// Reads a span such as `30d`, in seconds.
fn seconds(text: &str) -> Option<i64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit_s = match unit {
        "" | "s" | "sec" => 1,
        "m" | "min" => 60,
        "h" | "hour" => 3_600,
        "d" | "day" => 86_400,
        "w" | "week" => 604_800,
        "y" | "year" => 31_536_000,
        _ => return None,
    };
    number.parse::<i64>().ok()?.checked_mul(unit_s)
}
