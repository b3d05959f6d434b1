//! Publication: an unfinished copy gets its final name, and is examined under it.

use super::{
    NO_SUCH_FILE, OK,
    attributes::attributes_of,
    remote::Remote,
    session::{Batch, Session},
    wire::{EXTENDED, LSTAT, REMOVE, RENAME, Reply, Request},
};
use crate::{
    Error, ErrorKind, Locus, Result,
    endpoint::{Entry, FileSpec, Kind, new_word},
};

/// Server's answer to a rename, the former entry under the hidden name, and whether a look right
/// after it showed that the file moved.
type Renamed = (Reply, Option<Entry>, bool);

impl Remote {
    /// Gives an unfinished copy its final name, and replaces a file there. The file must have
    /// `size` bytes then.
    pub(super) async fn publish(
        &self,
        from: &[u8],
        to: &[u8],
        spec: &FileSpec,
        size: Option<u64>,
    ) -> Result<()> {
        let session = self.session().await?;
        let renamed = if !self.rules.replaces {
            let ours = self.stat(from, false).await?;
            let renaming = Request::new(RENAME).string(from).string(to);
            let renamed = session.ask(renaming).await;
            renamed.map(|reply| (reply, ours, false))
        } else if session.posix_rename {
            self.rename(&session, from, to, size).await
        } else {
            let ours = self.stat(from, false).await?;
            let replaced = self.replace(&session, from, to).await;
            replaced.map(|reply| (reply, ours, false))
        };
        let is_ours = |there: &Entry, ours: Option<&Entry>| match (ours, size) {
            (Some(ours), _) => is_same(there, ours, size),
            (None, Some(_)) => is_copy(there, spec),
            (None, None) => there.kind != Kind::Directory,
        };
        let published = match renamed {
            Ok((Reply::Status { code: OK, .. }, _, true)) => Ok(()),
            Ok((Reply::Status { code: OK, .. }, ours, false)) => {
                match self
                    .has_moved(from, to, |there| is_ours(there, ours.as_ref()))
                    .await?
                {
                    true => Ok(()),
                    false => Err(Error::new(ErrorKind::Corrupt, "write", self.show(to))
                        .cause("the server says that it gave it its name, and did not")
                        .at(Locus::Destination)),
                }
            }
            Ok((reply, ..)) => {
                let is_gone = matches!(
                    reply,
                    Reply::Status {
                        code: NO_SUCH_FILE,
                        ..
                    }
                );
                match self.stat(to, false).await? {
                    Some(there) if there.kind == Kind::Directory => {
                        Err(Error::new(ErrorKind::Conflict, "write", self.show(to))
                            .cause("a directory has that name")
                            .at(Locus::Destination))
                    }
                    // Another copier of the same file wrote the same bytes, and was first.
                    Some(there) if is_gone && is_copy(&there, spec) => Ok(()),
                    Some(_) if !is_gone && !self.rules.replaces => {
                        Err(Error::new(ErrorKind::Conflict, "write", self.show(to))
                            .cause("something else got this name meanwhile")
                            .at(Locus::Destination))
                    }
                    _ => Err(self.refusal(&reply, "write", to).at(Locus::Destination)),
                }
            }
            // The answer may be lost although the rename succeeded.
            Err(error) => match self.has_moved(from, to, |there| is_ours(there, None)).await {
                Ok(true) => Ok(()),
                Ok(false) | Err(_) => Err(error),
            },
        };
        published.map(|()| self.note_time(spec))
    }

    /// Renames, with a check before and after, without waiting for answers in between.
    async fn rename(
        &self,
        session: &Session,
        from: &[u8],
        to: &[u8],
        size: Option<u64>,
    ) -> Result<Renamed> {
        let mut batch = Batch::new(session);
        let ours = batch.add(Request::new(LSTAT).string(from));
        let renaming = Request::new(EXTENDED).string(b"posix-rename@openssh.com");
        let renamed = batch.add(renaming.string(from).string(to));
        let left = batch.add(Request::new(LSTAT).string(from));
        let there = batch.add(Request::new(LSTAT).string(to));
        batch.send().await?;
        let (ours, renamed) = (ours.reply().await?, renamed.reply().await?);
        let (left, there) = (left.reply().await?, there.reply().await?);
        let is_left = !matches!(
            left,
            Reply::Status {
                code: NO_SUCH_FILE,
                ..
            }
        );
        let entry = |reply| match reply {
            Reply::Attributes(attributes) => self.entry(Vec::new(), &attributes, to).ok(),
            _ => None,
        };
        let (ours, there) = (entry(ours), entry(there));
        let both = ours.as_ref().zip(there.as_ref());
        let is_moved = !is_left && both.is_some_and(|(ours, there)| is_same(there, ours, size));
        Ok((renamed, ours, is_moved))
    }

    /// Returns whether the file under a name that nobody else knows has its own name now.
    async fn has_moved(
        &self,
        from: &[u8],
        to: &[u8],
        is_ours: impl Fn(&Entry) -> bool,
    ) -> Result<bool> {
        let (left, there) = tokio::join!(self.stat(from, false), self.stat(to, false));
        Ok(left?.is_none() && there?.as_ref().is_some_and(is_ours))
    }

    /// Renames if the server's own rename never replaces: the old file is kept until it is
    /// replaced.
    async fn replace(&self, session: &Session, from: &[u8], to: &[u8]) -> Result<Reply> {
        let rename = |from: &[u8], to: &[u8]| Request::new(RENAME).string(from).string(to);
        let there = self.stat(to, false).await?;
        if there.is_none_or(|there| there.kind == Kind::Directory) {
            return session.ask(rename(from, to)).await;
        }
        let aside = self.partial(to, &new_word());
        let moved = session.ask(rename(to, &aside)).await?;
        if !matches!(moved, Reply::Status { code: OK, .. }) {
            return Ok(moved);
        }
        let renamed = session.ask(rename(from, to)).await;
        let is_done = matches!(renamed, Ok(Reply::Status { code: OK, .. }));
        if is_done && self.stat(to, false).await?.is_some() {
            let _ = session.ask(Request::new(REMOVE).string(&aside)).await;
            return renamed;
        }
        let undone = session.ask(rename(&aside, to)).await;
        if matches!(undone, Ok(Reply::Status { code: OK, .. })) {
            return renamed;
        }
        let error = match &renamed {
            Ok(reply) => self.refusal(reply, "write", to),
            Err(error) => Error::new(error.kind(), "write", self.show(to)).cause(error.to_string()),
        };
        let aside = self.show(&aside);
        Err(error
            .at(Locus::Destination)
            .hint(format!("what was there is {aside} now")))
    }
}

/// Returns whether the entry is `ours` from under its hidden name, of `size` bytes if it is a file.
/// A rename changes no time.
fn is_same(there: &Entry, ours: &Entry, size: Option<u64>) -> bool {
    let told = |entry: &Entry| (entry.kind, entry.size, entry.mtime);
    told(there) == told(ours) && size.is_none_or(|size| there.size == size)
}

/// Returns whether the present entry looks like a copy that matches `spec`.
fn is_copy(there: &Entry, spec: &FileSpec) -> bool {
    let kept = attributes_of(None, spec.mtime).file_time();
    there.kind == Kind::File && there.size == spec.size && (kept.is_none() || there.mtime == kept)
}
