//! Compares the files at an address with those on scratch, before scratch releases them.

use std::{fs, io::Read, os::unix::fs::MetadataExt, path::Path};

use futures_util::{StreamExt, TryStreamExt, stream};
use posthaste_endpoint::{
    Actor, Checksum, Endpoint, Error, ErrorKind, Kind, Locus, Result, Summer,
    posix::{Lease, lies_in_memory, settle_mapped},
};
use posthaste_engine::dataset::{FileEntry, FileKind, FileList, changed_ns};

/// Files compared at once; also files of stores that report checksums, which take one answer each.
const AT_ONCE: usize = 4;
const ASKED_AT_ONCE: usize = 32;
/// Bytes read from scratch at once.
const BLOCK_BYTES: usize = 1 << 20;

/// Checks that each file, link and directory of a list at the destination matches the one here. If
/// the store keeps the checksums of what it was sent, and refuses bytes that have another, nothing
/// is read back.
///
/// # Errors
/// At [`Locus::Destination`]: [`ErrorKind::Corrupt`] where one differs or is missing, and the
/// endpoint's; and those of reading scratch.
pub(super) async fn verify(
    destination: &dyn Endpoint,
    actor: &Actor,
    root: &Path,
    list: &FileList,
) -> Result<()> {
    let tells = destination.refuses_damage().await;
    let at_once = match tells && destination.capabilities().stores_checksum() {
        true => ASKED_AT_ONCE,
        false => AT_ONCE,
    };
    stream::iter(0..list.files.len())
        .map(|place| async move {
            let file = &list.files[place];
            match file.kind {
                FileKind::Regular => verify_one((destination, tells), actor, root, file).await,
                FileKind::Symlink { ref target } => verify_link(destination, file, target).await,
                FileKind::Directory => verify_directory(destination, file).await,
                FileKind::LeftOut => Ok(()),
            }
        })
        .buffer_unordered(at_once)
        .try_collect::<()>()
        .await
}

/// Checks that files are at the destination, with these sizes in bytes.
///
/// # Errors
/// At [`Locus::Destination`]: [`ErrorKind::Corrupt`] for a file that is gone or has another size,
/// and the endpoint's.
pub(super) async fn look_for(destination: &dyn Endpoint, files: &[(Vec<u8>, u64)]) -> Result<()> {
    let looks = stream::iter(0..files.len()).map(|place| async move {
        let (path, size) = &files[place];
        let there = destination.stat(path, false).await;
        let there = there.map_err(|error| error.at(Locus::Destination))?;
        if there.is_some_and(|there| there.size == *size) {
            return Ok(());
        }
        Err(
            Error::new(ErrorKind::Corrupt, "find", destination.show(path))
                .cause("it came there, and is there no more as it came")
                .at(Locus::Destination),
        )
    });
    looks.buffer_unordered(ASKED_AT_ONCE).try_collect().await
}

async fn verify_link(destination: &dyn Endpoint, file: &FileEntry, target: &[u8]) -> Result<()> {
    let there = async {
        match destination.stat(&file.path, false).await? {
            Some(entry) if entry.kind == Kind::Link => {
                destination.read_link(&file.path).await.map(Some)
            }
            Some(_) | None => Ok(None),
        }
    };
    let there = there.await.map_err(|error| error.at(Locus::Destination))?;
    match there {
        Some(there) if there == target => Ok(()),
        Some(_) => Err(differs(destination, file, "the link there leads elsewhere")),
        None => Err(differs(destination, file, "no link is there")),
    }
}

/// Checks that a directory exists, if the store has directories.
async fn verify_directory(destination: &dyn Endpoint, file: &FileEntry) -> Result<()> {
    if !destination.capabilities().directories || file.path.is_empty() {
        return Ok(());
    }
    let there = destination.stat(&file.path, false).await;
    let there = there.map_err(|error| error.at(Locus::Destination))?;
    match there {
        Some(entry) if entry.kind == Kind::Directory => Ok(()),
        Some(_) | None => Err(differs(destination, file, "no directory is there")),
    }
}

fn differs(destination: &dyn Endpoint, file: &FileEntry, why: &str) -> Error {
    let shown = destination.show(&file.path);
    Error::new(ErrorKind::Corrupt, "verify", shown)
        .cause(why.to_owned())
        .at(Locus::Destination)
}

async fn verify_one(
    (destination, tells): (&dyn Endpoint, bool),
    actor: &Actor,
    root: &Path,
    file: &FileEntry,
) -> Result<()> {
    let (path, size) = (file.below(root), file.size);
    let then = Then::of(file);
    let here = actor.blocking(move || sum_of(&path, &then)).await?;
    // Files that changed meanwhile stay on scratch, whatever is at the destination.
    let Some(here) = here else {
        return Ok(());
    };
    let there = sum_there(destination, tells, &file.path).await;
    let there = there.map_err(|error| error.at(Locus::Destination))?;
    if there == Some((here, size)) {
        return Ok(());
    }
    let why = match there {
        None => "it is not there".to_owned(),
        Some((_, bytes)) if bytes != size => format!("{bytes} bytes are there, not {size}"),
        Some(_) => "what is there is not what is on scratch".to_owned(),
    };
    Err(differs(destination, file, &why))
}

/// Returns checksum and size of a file at an address; none if it is not there. It is read unless the
/// address `tells` what it holds.
async fn sum_there(
    destination: &dyn Endpoint,
    tells: bool,
    path: &[u8],
) -> Result<Option<(Checksum, u64)>> {
    let Some(entry) = destination.stat(path, false).await? else {
        return Ok(None);
    };
    let reader = destination.open(path, &entry).await?;
    if let Some(sum) = reader.checksum().filter(|_| tells) {
        return Ok(Some((sum, entry.size)));
    }
    let mut summer = Summer::default();
    let mut bytes = reader.read(0..entry.size).await?;
    while let Some(some) = bytes.next().await {
        summer.add(&some?);
    }
    Ok(Some((summer.sum(), entry.size)))
}

/// Attributes of a file when it was listed.
struct Then {
    size: u64,
    mtime: (i64, i64),
    /// Last change of anything about it; 0 in a list of a former release.
    changed_ns: i64,
}

impl Then {
    fn of(file: &FileEntry) -> Self {
        Self {
            size: file.size,
            mtime: (file.mtime_s, i64::from(file.mtime_ns)),
            changed_ns: file.changed_ns,
        }
    }

    fn is_still(&self, about: &fs::Metadata) -> bool {
        let is_touched = self.changed_ns != 0 && self.changed_ns != changed_ns(about);
        let now = (about.len(), (about.mtime(), about.mtime_nsec()));
        now == (self.size, self.mtime) && !is_touched
    }
}

/// Returns the checksum of a file on scratch; none if it changed since it was listed.
fn sum_of(path: &Path, then: &Then) -> Result<Option<Checksum>> {
    let failed = |cause| Error::io("read", path.display().to_string(), cause).at(Locus::Source);
    let mut file = match fs::File::open(path) {
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let about = file.metadata().map_err(failed)?;
    if !then.is_still(&about) {
        return Ok(None);
    }
    // Stores through a mapping show in its times from here on; in memory they never do.
    if lies_in_memory(path) && matches!(Lease::take(path), Lease::InUse) {
        return Err(crate::release::in_use(path.display().to_string()));
    }
    settle_mapped(&file, 0, then.size);
    let (mut summer, mut block) = (Summer::default(), vec![0; BLOCK_BYTES]);
    loop {
        match file.read(&mut block).map_err(failed)? {
            0 => {
                let about = file.metadata().map_err(failed)?;
                return Ok(then.is_still(&about).then(|| summer.sum()));
            }
            read => summer.add(&block[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use posthaste_endpoint::posix::{DraftRules, Posix};
    use posthaste_engine::{
        copy::Filter,
        dataset::{Root, scan_passing},
    };

    use super::*;

    /// Description of a change, and the change.
    type Change = (&'static str, fn(&Path));

    fn tree(root: &Path) {
        fs::create_dir_all(root.join("deep/empty")).unwrap();
        fs::write(root.join("deep/file"), "bytes").unwrap();
        symlink("file", root.join("deep/link")).unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn links_and_directories_are_compared_before_scratch_lets_go() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().join("here");
        tree(&here);
        let root = Root::open(&here, false).unwrap();
        let list = scan_passing(&root, &Filter::default()).unwrap();
        let changes: [Change; 6] = [
            ("", |_| {}),
            ("no link is there", |there| {
                fs::remove_file(there.join("deep/link")).unwrap();
            }),
            ("the link there leads elsewhere", |there| {
                fs::remove_file(there.join("deep/link")).unwrap();
                symlink("empty", there.join("deep/link")).unwrap();
            }),
            ("no link is there", |there| {
                fs::remove_file(there.join("deep/link")).unwrap();
                fs::write(there.join("deep/link"), "bytes").unwrap();
            }),
            ("no directory is there", |there| {
                fs::remove_dir(there.join("deep/empty")).unwrap();
            }),
            ("no directory is there", |there| {
                fs::remove_dir(there.join("deep/empty")).unwrap();
                symlink(".", there.join("deep/empty")).unwrap();
            }),
        ];
        for (number, (why, change)) in changes.into_iter().enumerate() {
            let there = folder.path().join(number.to_string());
            tree(&there);
            change(&there);
            let files = Posix::new(there, DraftRules::default());
            match verify(&files, &Actor::oneself(), &here, &list).await {
                Ok(()) => assert_eq!(why, "", "{number}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                    assert!(
                        !why.is_empty() && error.to_string().contains(why),
                        "{error}"
                    );
                }
            }
        }
    }
}
