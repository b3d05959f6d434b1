//! Final names: an unfinished copy gets its own, and is looked at under it.

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

/// What a server said to a rename, and whether a look right after it showed it done.
type Renamed = (Reply, bool);

impl Remote {
    /// Gives an unfinished copy its final name, replacing what has it; a file is looked for there with `size` bytes.
    pub(super) async fn publish(
        &self,
        from: &[u8],
        to: &[u8],
        spec: &FileSpec,
        size: Option<u64>,
    ) -> Result<()> {
        let session = self.session().await?;
        let renamed = if session.posix_rename {
            self.rename(&session, from, to, size).await
        } else {
            let replaced = self.replace(&session, from, to).await;
            replaced.map(|reply| (reply, false))
        };
        let published = match renamed {
            Ok((Reply::Status { code: OK, .. }, true)) => Ok(()),
            Ok((Reply::Status { code: OK, .. }, false)) => {
                match self.has_moved(from, to, size).await? {
                    true => Ok(()),
                    false => Err(Error::new(ErrorKind::Corrupt, "write", self.show(to))
                        .cause("the server says that it gave it its name, and did not")
                        .at(Locus::Destination)),
                }
            }
            Ok((reply, _)) => {
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
                    // Who copies the same wrote the same, and was first.
                    Some(there) if is_gone && is_copy(&there, spec) => Ok(()),
                    _ => Err(self.refusal(&reply, "write", to).at(Locus::Destination)),
                }
            }
            // The answer may be lost and not the deed.
            Err(error) => match self.has_moved(from, to, size).await {
                Ok(true) => Ok(()),
                Ok(false) | Err(_) => Err(error),
            },
        };
        published.map(|()| self.note_time(spec))
    }

    /// Renames, and looks at both names without waiting for the answer.
    async fn rename(
        &self,
        session: &Session,
        from: &[u8],
        to: &[u8],
        size: Option<u64>,
    ) -> Result<Renamed> {
        let mut batch = Batch::new(session);
        let renaming = Request::new(EXTENDED).string(b"posix-rename@openssh.com");
        let renamed = batch.add(renaming.string(from).string(to));
        let left = batch.add(Request::new(LSTAT).string(from));
        let there = batch.add(Request::new(LSTAT).string(to));
        batch.send().await?;
        let renamed = renamed.reply().await?;
        let (left, there) = (left.reply().await?, there.reply().await?);
        let is_left = !matches!(
            left,
            Reply::Status {
                code: NO_SUCH_FILE,
                ..
            }
        );
        let there = match there {
            Reply::Attributes(attributes) => self.entry(Vec::new(), &attributes, to).ok(),
            _ => None,
        };
        let is_moved = !is_left && there.is_some_and(|there| is_of_size(&there, size));
        Ok((renamed, is_moved))
    }

    /// Whether what was under a name that nobody else knows has its own now.
    async fn has_moved(&self, from: &[u8], to: &[u8], size: Option<u64>) -> Result<bool> {
        let (left, there) = tokio::join!(self.stat(from, false), self.stat(to, false));
        let is_there = there?.is_some_and(|there| is_of_size(&there, size));
        Ok(left?.is_none() && is_there)
    }

    /// Renames where the server's own rename never replaces: what has the name is kept until it is replaced.
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

/// Whether it is something other than a directory, and a file of this size where one is told.
fn is_of_size(there: &Entry, size: Option<u64>) -> bool {
    match size {
        Some(size) => there.kind == Kind::File && there.size == size,
        None => there.kind != Kind::Directory,
    }
}

/// Whether what is there looks like a copy of what `spec` says.
fn is_copy(there: &Entry, spec: &FileSpec) -> bool {
    let kept = attributes_of(None, spec.mtime).file_time();
    there.kind == Kind::File && there.size == spec.size && (kept.is_none() || there.mtime == kept)
}
