//! Modes and times, as far as a server and the file system behind it keep them.
//!
//! Version 3 has 32 bits for a time, without a sign (draft-ietf-secsh-filexfer-02, section 5).
//! OpenSSH sends the low 32 bits of any time, so that 1950 and 2086 look alike. A time far ahead of
//! now counts as the one before 1970. Files from before Unix exist, as do times of -1; none were
//! written in the years to come.

use super::{
    NO_SUCH_FILE, OK,
    file::FilePath,
    remote::Remote,
    session::Batch,
    wire::{Attributes, EXTENDED, Reply, Request, SETSTAT, STAT},
};
use crate::{
    FileTime, Locus, Result, clock,
    endpoint::{Entry, FileSpec},
    posix::hides,
    unkept::Unkept,
};

/// Most seconds by which a clock may be ahead of ours: a year.
const AHEAD_SECS_MAX: i64 = 366 * 86_400;

/// Largest difference, in seconds, at which a file system rounded a time rather than forgot it.
const ROUNDED_SECS_MAX: u32 = 1;

/// Returns the first and the last second since 1970 that are kept unchanged: as many as a signed
/// field would have, and from 2037 on as many as have passed.
pub(super) fn mtime_secs() -> [i64; 2] {
    let now = i64::try_from(clock::unix_secs()).unwrap_or(0);
    let last = i64::from(i32::MAX).max(now + AHEAD_SECS_MAX);
    [0, last.min(u32::MAX.into())]
}

/// Returns the second since 1970 that the server means.
pub(super) fn secs_of(field: u32) -> i64 {
    let secs = i64::from(field);
    let [_, last] = mtime_secs();
    if secs <= last { secs } else { secs - (1 << 32) }
}

/// Returns the attributes that the server is to keep. A time that it can't keep becomes the nearest
/// that it can.
pub(super) fn attributes_of(mode: Option<u32>, mtime: Option<FileTime>) -> Attributes {
    let [first, last] = mtime_secs();
    Attributes {
        size: None,
        mode,
        mtime: mtime.and_then(|mtime| u32::try_from(mtime.secs.clamp(first, last)).ok()),
    }
}

/// Counts a time that can't be expressed to the server.
fn untellable(mtime: Option<FileTime>) -> Unkept {
    let [first, last] = mtime_secs();
    let is_told = |mtime: FileTime| (first..=last).contains(&mtime.secs);
    Unkept {
        times: (!mtime.is_none_or(is_told)).into(),
        ..Unkept::default()
    }
}

impl Attributes {
    /// Returns what differs in the answer to a question about the file, though the server accepted
    /// it: some file systems accept each mode and keep their own.
    pub(super) fn not_in(&self, answer: &Reply) -> Unkept {
        let Reply::Attributes(found) = answer else {
            return Unkept::default();
        };
        let modes = self.mode.zip(found.mode);
        let times = self.mtime.zip(found.mtime);
        Unkept {
            modes: modes
                .is_some_and(|(mode, found)| (mode ^ found) & 0o7777 != 0)
                .into(),
            times: times
                .is_some_and(|(time, found)| time.abs_diff(found) > ROUNDED_SECS_MAX)
                .into(),
        }
    }
}

impl Remote {
    /// Counts the attributes that an entry arrived without.
    pub(super) fn note(&self, unkept: Unkept) {
        self.unkept.add(unkept);
    }

    /// Counts the time of an arrived file if it could not be expressed to the server.
    pub(super) fn note_time(&self, spec: &FileSpec) {
        self.note(untellable(spec.mtime));
    }

    /// Sets a file's permission bits and time, as far as the file system there keeps them.
    pub(super) async fn dress(&self, path: &FilePath, wanted: Attributes) -> Result<()> {
        let mode = Attributes {
            mtime: None,
            ..wanted
        };
        let time = Attributes {
            mode: None,
            ..wanted
        };
        let (mut modes, mut times) = (wanted.mode.is_some(), wanted.mtime.is_some());
        for attributes in [wanted, mode, time] {
            match self.set(path, &attributes).await? {
                (Reply::Status { code: OK, .. }, unkept) if attributes == wanted => {
                    self.note(unkept);
                    return Ok(());
                }
                (
                    reply @ Reply::Status {
                        code: NO_SUCH_FILE, ..
                    },
                    _,
                ) => {
                    let error = self.refusal(&reply, "set the attributes of", &path.shown);
                    return Err(error.at(Locus::Destination));
                }
                (Reply::Status { code: OK, .. }, unkept) => {
                    modes &= attributes.mode.is_none() || unkept.modes > 0;
                    times &= attributes.mtime.is_none() || unkept.times > 0;
                }
                // The server may accept singly what it refuses together.
                _ => {}
            }
        }
        self.note(Unkept {
            modes: modes.into(),
            times: times.into(),
        });
        Ok(())
    }

    /// Sets attributes. Returns the answer, and the attributes that the file lacks all the same.
    async fn set(&self, path: &FilePath, wanted: &Attributes) -> Result<(Reply, Unkept)> {
        let session = self.session().await?;
        let mut batch = Batch::new(&session);
        let set = Request::new(SETSTAT).string(&path.full);
        let set = batch.add(set.attributes(wanted));
        let look = batch.add(Request::new(STAT).string(&path.full));
        batch.send().await?;
        let set = set.reply().await?;
        Ok((set, wanted.not_in(&look.reply().await?)))
    }

    /// Gives a directory the attributes of its source.
    pub(super) async fn dress_directory(&self, full: Vec<u8>, entry: &Entry) -> Result<()> {
        let attributes = attributes_of(entry.mode, entry.mtime);
        self.dress(&FilePath::of(full), attributes).await?;
        self.note(untellable(entry.mtime));
        Ok(())
    }

    /// Hides a directory as [`Endpoint::keep_private`](crate::Endpoint::keep_private) does.
    pub(super) async fn hide_directory(&self, full: Vec<u8>, mode: u32) {
        if hides(mode) {
            let wanted = attributes_of(Some(mode | 0o700), None);
            let request = Request::new(SETSTAT).string(&full).attributes(&wanted);
            // The directory gets its own mode in the end; a refusal is reported then.
            let _ = self.ask(request).await;
        }
    }

    /// Sets the time of a link.
    pub(super) async fn dress_link(&self, full: &[u8], spec: &FileSpec) -> Result<()> {
        let attributes = attributes_of(None, spec.mtime);
        if attributes.mtime.is_none() {
            return Ok(());
        }
        let session = self.session().await?;
        let is_set = session.lsetstat && {
            let request = Request::new(EXTENDED).string(b"lsetstat@openssh.com");
            let request = request.string(full).attributes(&attributes);
            matches!(session.ask(request).await?, Reply::Status { code: OK, .. })
        };
        self.note(Unkept {
            times: (!is_set).into(),
            ..Unkept::default()
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_far_ahead_are_those_before_1970() {
        let [first, last] = mtime_secs();
        assert_eq!(first, 0);
        for secs in [0, 1, 1_700_000_000, last] {
            assert_eq!(secs_of(u32::try_from(secs).unwrap()), secs);
        }
        for secs in [-1, -631_152_000] {
            let field = u32::try_from(secs + (1 << 32)).unwrap();
            assert_eq!(secs_of(field), secs);
        }
    }

    #[test]
    fn what_can_not_be_told_is_the_nearest_and_is_counted() {
        for (secs, told, times) in [(-631_152_000, 0, 1), (5, 5, 0)] {
            let mtime = Some(FileTime { secs, nanos: 0 });
            assert_eq!(attributes_of(None, mtime).mtime, Some(told));
            assert_eq!(untellable(mtime).times, times);
        }
        assert_eq!(untellable(None), Unkept::default());
    }
}
