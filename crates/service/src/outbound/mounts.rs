//! Names of directories that are mounted elsewhere too: each has one.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

/// A line of the table of mounts: a directory of a file system, and where it is seen.
struct Mount {
    device: String,
    directory: PathBuf,
    seen_at: PathBuf,
}

impl Mount {
    /// Parses a line of `/proc/self/mountinfo` (proc(5)): two numbers, device, directory, place.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ').skip(2);
        Some(Self {
            device: fields.next()?.to_owned(),
            directory: unescaped(fields.next()?),
            seen_at: unescaped(fields.next()?),
        })
    }
}

/// Returns a path without its octal escapes, as in `\040`.
fn unescaped(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let escape = match (first, after) {
            (b'\\', [a, b, c, ..]) => std::str::from_utf8(&[*a, *b, *c])
                .ok()
                .and_then(|digits| u8::from_str_radix(digits, 8).ok()),
            _ => None,
        };
        bytes.push(escape.unwrap_or(*first));
        rest = match escape {
            Some(_) => &after[3..],
            None => after,
        };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Returns the name of a path, without links in it, by the first mount that shows it.
pub(super) fn by_first_mount(path: &Path) -> PathBuf {
    let table = std::fs::read_to_string("/proc/self/mountinfo");
    table.map_or_else(|_| path.to_owned(), |table| named_in(&table, path))
}

fn named_in(table: &str, path: &Path) -> PathBuf {
    let mounts: Vec<Mount> = table.lines().filter_map(Mount::parse).collect();
    // Of mounts in one place the last is seen.
    let above = mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.seen_at));
    let Some(mount) = above.max_by_key(|mount| mount.seen_at.as_os_str().len()) else {
        return path.to_owned();
    };
    let Ok(rest) = path.strip_prefix(&mount.seen_at) else {
        return path.to_owned();
    };
    let inside = mount.directory.join(rest);
    let mut shown = mounts.iter().filter(|one| one.device == mount.device);
    let first = shown.find_map(|one| Some((one, inside.strip_prefix(&one.directory).ok()?)));
    first.map_or_else(|| path.to_owned(), |(one, rest)| one.seen_at.join(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_mounted_elsewhere_too_has_one_name() {
        let table = "\
            22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
            23 22 0:21 / /proc rw - proc proc rw\n\
            30 22 254:16 / /scratch rw - xfs /dev/vdb rw\n\
            31 22 254:0 /srv/P/A /srv/P/bA rw - ext4 /dev/vda rw\n\
            32 22 254:16 /a\\040b /mnt rw - xfs /dev/vdb rw\n\
            33 22 254:32 /home /home rw - ext4 /dev/vdc rw\n\
            34 22 254:32 / /all rw - ext4 /dev/vdc rw\n";
        for (path, name) in [
            ("/srv/P/bA", "/srv/P/A"),
            ("/srv/P/bA/x/y", "/srv/P/A/x/y"),
            ("/srv/P/bAx", "/srv/P/bAx"),
            ("/srv/P/A", "/srv/P/A"),
            ("/mnt/c", "/scratch/a b/c"),
            ("/scratch/a b/c", "/scratch/a b/c"),
            ("/all/home/u", "/home/u"),
            ("/all/etc", "/all/etc"),
            ("/", "/"),
        ] {
            assert_eq!(named_in(table, Path::new(path)), Path::new(name), "{path}");
        }
        assert_eq!(named_in("no table", Path::new("/x")), Path::new("/x"));
    }
}
