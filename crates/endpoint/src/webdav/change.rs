//! Changes on a WebDAV server. Their answers may be lost or incomplete.

use std::time::Duration;

use http::StatusCode;
use tokio::time::sleep;

use super::{SERVER_WORKS_FOR, Shelf, multistatus::refused_member};
use crate::{
    Error, ErrorKind, Result,
    endpoint::{Entry, FileTime, Kind},
    web::{About, Call, drain, kind_of_status, read_refusal},
};

/// Returns whether a change may have happened although its request failed: the answer was lost, or
/// came from a gateway that did not wait for the server's.
pub(super) fn is_lost(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Unreachable | ErrorKind::TimedOut | ErrorKind::Busy
    )
}

/// Returns the facts that distinguish versions of a file.
fn told(there: &Entry) -> (Option<&str>, Option<FileTime>, Option<FileTime>) {
    (there.version.as_deref(), there.mtime, there.stored)
}

fn is_file_of(there: &Entry, size: u64) -> bool {
    there.kind == Kind::File && there.size == size
}

impl Shelf {
    /// Makes a request that changes something, and returns the status of its success. A server may
    /// only have accepted the request, or an intermediary may have answered.
    ///
    /// # Errors
    /// Fails also if only some of it was done (RFC 4918, section 11.1).
    pub(super) async fn command(&self, call: Call) -> Result<StatusCode> {
        let about = call.about.clone();
        let response = self.place().ask(call).await?;
        match response.status() {
            StatusCode::MULTI_STATUS => {
                let answer = read_refusal(response.into_body()).await;
                let Some((path, status)) = refused_member(&answer) else {
                    let error = about.fail(ErrorKind::Other);
                    return Err(error.cause("the server does not say what it did"));
                };
                let member = self.place().show_full(&path);
                let error = about.fail(kind_of_status(status).0);
                Err(error.cause(format!("the server answered {status} for {member}")))
            }
            status => {
                drain(response.into_body()).await;
                Ok(status)
            }
        }
    }

    /// Gives the file under the hidden name its own. A directory is never replaced: the server
    /// would remove all its content.
    pub(super) async fn publish(&self, partial: &[u8], full: &[u8], size: u64) -> Result<()> {
        let moved = |overwrite: &'static str| {
            let mut call = self.call("MOVE", partial, "write");
            call.about.subject = self.place().show_full(full);
            call.header("destination", self.address(full))
                .header("overwrite", overwrite)
                .patience(SERVER_WORKS_FOR)
        };
        let first = self.command(moved("F")).await;
        let mut was_lost = first.as_ref().is_err_and(is_lost);
        let is_taken = match &first {
            // 412: something has the name.
            Err(error) if error.kind() == ErrorKind::Changed => true,
            // The change whose answer was lost may have caused this.
            Err(_) if was_lost => {
                let moved = self.has_moved(partial, full, size, None).await;
                !moved.unwrap_or(true)
            }
            _ => false,
        };
        let mut replaced = None;
        let ended = if is_taken {
            let (left, there) = tokio::join!(self.look_at(partial), self.look_at(full));
            let there = there?;
            if (there.as_ref()).is_some_and(|there| there.kind == Kind::Directory) {
                let about = About::writing("write", self.place().show_full(full));
                let error = about.fail(ErrorKind::Conflict);
                return Err(error.cause("a directory has that name"));
            }
            let left = left?;
            if !self.rules.replaces && left.is_some() && there.is_some() {
                let about = About::writing("write", self.place().show_full(full));
                let error = about.fail(ErrorKind::Conflict);
                return Err(error.cause("something else got this name meanwhile"));
            }
            match left {
                // Two files written within one second are reported alike.
                Some(ours) => replaced = there.filter(|there| told(there) != told(&ours)),
                // No other writer knows the hidden name: the file was moved, whatever the answer
                // said.
                None if there.as_ref().is_some_and(|it| is_file_of(it, size)) => return Ok(()),
                // The file at this name may be ours: an earlier answer was lost.
                None => was_lost = true,
            }
            self.command(moved("T")).await
        } else {
            first
        };
        match ended {
            // Check the result, whatever the server says.
            Ok(status) => {
                for pause_s in [0, 1, 2, 4, 8] {
                    sleep(Duration::from_secs(pause_s)).await;
                    if self
                        .has_moved(partial, full, size, replaced.as_ref())
                        .await?
                    {
                        return Ok(());
                    }
                    // A server that has only accepted the request carries it out later.
                    if status != StatusCode::ACCEPTED {
                        break;
                    }
                }
                let about = About::writing("write", self.place().show_full(full));
                let error = about.fail(ErrorKind::Busy);
                Err(error.cause("the server has not given it its name yet"))
            }
            // On a retry after a lost answer, a server finds nothing to move.
            Err(error) if is_lost(&error) || was_lost && error.kind() == ErrorKind::NotFound => {
                match self.has_moved(partial, full, size, replaced.as_ref()).await {
                    Ok(true) => Ok(()),
                    Ok(false) | Err(_) => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Returns whether the file under the hidden name, which nobody else knows, has its own name
    /// now and replaced what was there.
    async fn has_moved(
        &self,
        partial: &[u8],
        full: &[u8],
        size: u64,
        replaced: Option<&Entry>,
    ) -> Result<bool> {
        let (left, there) = tokio::join!(self.look_at(partial), self.look_at(full));
        let is_ours = there?.is_some_and(|there| {
            let is_old = replaced.is_some_and(|old| told(old) == told(&there));
            is_file_of(&there, size) && !is_old
        });
        Ok(left?.is_none() && is_ours)
    }
}
