//! Record of what a copy wrote, kept over its runs. Everything else at the destination is somebody
//! else's, however similar it looks.

use std::{
    collections::HashSet,
    fs::{File, OpenOptions},
    io::Write,
    path::Path,
    sync::{Mutex, PoisonError},
};

use posthaste_endpoint::{Error, Result};

/// Bytes of a path's digest.
const MARK_BYTES: usize = 16;

type Mark = [u8; MARK_BYTES];

/// Paths below the destination that this copy wrote. A path lost with the machine costs a
/// comparison of bytes, and nothing else.
#[derive(Debug)]
pub struct Written {
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    marks: HashSet<Mark>,
    file: File,
}

impl Written {
    /// Opens what earlier runs kept in `path`, or begins it. Blocking.
    ///
    /// # Errors
    /// The operating system's.
    pub fn open(path: &Path) -> Result<Self> {
        let failed = |cause| Error::io("keep", path.display().to_string(), cause);
        let whole = match std::fs::read(path) {
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            read => read.map_err(failed)?,
        };
        let options = OpenOptions::new().append(true).create(true).clone();
        let file = options.open(path).map_err(failed)?;
        let (marks, torn) = whole.as_chunks::<MARK_BYTES>();
        // A line that a crash cut off does not count.
        let length = (whole.len() - torn.len()) as u64;
        file.set_len(length).map_err(failed)?;
        let marks = marks.iter().copied().collect();
        Ok(Self {
            kept: Mutex::new(Kept { marks, file }),
        })
    }

    /// Returns whether this copy wrote `path`, or found it there with the same bytes.
    #[must_use]
    pub fn has(&self, path: &[u8]) -> bool {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.marks.contains(&mark(path))
    }

    /// Notes that this copy wrote `path`, or found it there with the same bytes. Blocks while it
    /// appends a line.
    pub(super) fn note(&self, path: &[u8]) {
        let mark = mark(path);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.marks.insert(mark) {
            // A path that is not kept is compared next time.
            let _ = kept.file.write_all(&mark);
        }
    }
}

fn mark(path: &[u8]) -> Mark {
    let mut mark = Mark::default();
    mark.copy_from_slice(&blake3::hash(path).as_bytes()[..MARK_BYTES]);
    mark
}

#[cfg(test)]
pub(super) mod tests {
    use std::{collections::BTreeMap, fs, sync::Arc, time::SystemTime};

    use posthaste_endpoint::posix::{DraftRules, Posix};
    use posthaste_plan::tuner::Method;

    use super::{
        super::{Ending, Filter, Links, Options, Place, Source, Throttle, copy},
        *,
    };

    #[test]
    fn what_was_written_is_known_in_the_next_run_whatever_a_crash_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("written");
        let written = Written::open(&path).unwrap();
        written.note(b"a/b");
        written.note(b"a/b");
        assert!(written.has(b"a/b") && !written.has(b"a/c"));
        drop(written);
        let mut whole = std::fs::read(&path).unwrap();
        assert_eq!(whole.len(), MARK_BYTES);
        whole.extend_from_slice(b"torn");
        std::fs::write(&path, whole).unwrap();
        let written = Written::open(&path).unwrap();
        assert!(written.has(b"a/b"));
        written.note(b"a/c");
        drop(written);
        let written = Written::open(&path).unwrap();
        assert!(written.has(b"a/b") && written.has(b"a/c"));
    }

    /// Returns the options of a plain copy.
    pub fn options(rules: DraftRules, written: Option<Arc<Written>>) -> Options {
        Options {
            filter: Filter::default(),
            method: Method::Auto,
            history: BTreeMap::new(),
            throttle: Throttle::default(),
            links: Links::Keep,
            rules,
            again: false,
            update: false,
            modes: false,
            verify: false,
            dry_run: false,
            continues: true,
            has_begun: false,
            written,
            transfer_max: None,
            duration_max: None,
            help: None,
            on_notice: Arc::new(|_| {}),
        }
    }

    /// Copies the tree at `from` to a destination where nothing may be replaced.
    async fn copied(from: &Path, to: &Path, is_local: bool, written: &Arc<Written>) -> Ending {
        let rules = DraftRules {
            replaces: false,
            ..DraftRules::default()
        };
        let options = options(rules, Some(Arc::clone(written)));
        let end = |path: &Path| {
            let files = Posix::new(path, rules);
            match is_local {
                true => Place::local(files),
                false => Place::remote(Arc::new(files)),
            }
        };
        let source = Source {
            place: end(from),
            name: Vec::new(),
            content: true,
        };
        copy(vec![source], end(to), false, options, Arc::default()).await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_only_looks_like_ones_own_is_somebody_elses() {
        for is_local in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
            for (root, bytes) in [(&from, "mine!"), (&to, "other")] {
                fs::create_dir(root).unwrap();
                fs::write(root.join("a"), bytes).unwrap();
                fs::write(root.join("same"), "same").unwrap();
                for name in ["a", "same"] {
                    let file = File::options().write(true).open(root.join(name)).unwrap();
                    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
                }
            }
            let written = Written::open(&folder.path().join("written")).unwrap();
            let written = Arc::new(written);
            let ending = copied(&from, &to, is_local, &written).await;
            assert_eq!(ending.last_code, Some("conflict"), "{ending:?}");
            assert_eq!((ending.left_out, ending.figures.unchanged), (1, 1));
            assert_eq!(fs::read(to.join("a")).unwrap(), b"other");
            // A file it wrote itself is recognised by its size and time.
            written.note(b"a");
            let ending = copied(&from, &to, is_local, &written).await;
            assert_eq!((ending.left_out, ending.figures.unchanged), (0, 2));
            fs::remove_file(to.join("a")).unwrap();
            fs::write(from.join("b"), "b").unwrap();
            let ending = copied(&from, &to, is_local, &written).await;
            assert_eq!((ending.left_out, ending.figures.files), (0, 2));
            assert!(written.has(b"b"));
        }
    }
}
