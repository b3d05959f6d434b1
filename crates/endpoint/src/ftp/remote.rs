//! Places on a server: names, queries and small commands.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use super::{
    facts::{Features, Told, is_early, show_time, told_of},
    host::Host,
    pool::{Lease, Pool},
    reply::Reply,
};
use crate::{
    Error, ErrorKind, FileTime, Locus, Result,
    endpoint::{Entry, FileSpec, Kind, base_name, beside, new_word, partial_name},
    posix::DraftRules,
    unkept::{Unkept, UnkeptCount},
};

/// Most directories made above a missing one: no path is deeper (`PATH_MAX` / 2).
const PARENTS_MAX: usize = 2048;

/// Command that sets a mode.
const CHMOD: &str = "SITE CHMOD";

/// Path on a server.
pub(super) struct Remote {
    pub(super) host: Arc<Host>,
    /// Root without a slash at the end: `/a/b`, empty for the server's root, `./a` or `.` below the
    /// login directory.
    pub(super) root: Vec<u8>,
    pub(super) rules: DraftRules,
    pub(super) pool: Arc<Pool>,
    pub(super) features: Features,
    pub(super) round_trip: Duration,
    /// Set while the server reads ranges as it announces.
    pub(super) reads_ranges: AtomicBool,
    /// Set while the server is assumed to set permission bits.
    pub(super) sets_modes: AtomicBool,
    /// Set while the server is assumed to set times.
    pub(super) sets_times: AtomicBool,
    /// Set once the server has set a time.
    pub(super) has_set_times: AtomicBool,
    /// Set while the server is assumed to set times and modes of directories.
    pub(super) dresses_folders: AtomicBool,
    /// Set once the server was seen to begin in the middle of a file.
    pub(super) is_restart_proven: AtomicBool,
    /// Counts of what files arrived without, because the server refuses what it announces.
    pub(super) unkept: UnkeptCount,
}

/// Returns the root of an address's path: `/~/x` is below the login directory, as with `sftp://`.
pub(super) fn root_of(path: &[u8]) -> Vec<u8> {
    match path.strip_prefix(b"/~") {
        Some(b"") => b".".to_vec(),
        Some(rest) if rest.starts_with(b"/") => [b".", rest].concat(),
        Some(_) | None => path.to_vec(),
    }
}

pub(super) fn parent_of(full: &[u8]) -> &[u8] {
    match full.iter().rposition(|&byte| byte == b'/') {
        Some(0) => b"/",
        Some(cut) => &full[..cut],
        None => b".",
    }
}

impl Remote {
    /// Returns the path as the server gets it.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for names that FTP can't express.
    pub(super) fn full(&self, path: &[u8]) -> Result<Vec<u8>> {
        let full = match (&*self.root, path) {
            (b"", b"") => b"/".to_vec(),
            (root, b"") => root.to_vec(),
            (root, path) => [root, b"/", path].concat(),
        };
        let unsayable = |cause: &'static str| {
            Error::new(ErrorKind::Unsupported, "name", self.show_full(&full))
                .cause(cause)
                .hint("rename it")
        };
        if full.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return Err(unsayable("its name has a line break, which FTP can't say"));
        }
        if std::str::from_utf8(&full).is_err() {
            return Err(unsayable("its name is not UTF-8, which FTP needs"));
        }
        Ok(full)
    }

    pub(super) fn show(&self, path: &[u8]) -> String {
        let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
        self.show_full(&[&self.root, slash, path].concat())
    }

    pub(super) fn show_full(&self, full: &[u8]) -> String {
        let text = String::from_utf8_lossy(full);
        let text = match text.strip_prefix('.') {
            Some(below) => format!("/~{below}"),
            None if text.is_empty() => "/".to_owned(),
            None => text.into_owned(),
        };
        format!("{}{text}", self.host.show())
    }

    /// Returns the path at which the writer with this word writes the future `full`.
    pub(super) fn partial(&self, full: &[u8], word: &str) -> Vec<u8> {
        beside(full, &partial_name(base_name(full), word))
    }

    pub(super) async fn lease(&self) -> Result<Lease> {
        self.pool.lease().await
    }

    /// Returns the error for an answer that is a refusal.
    pub(super) fn refused(
        &self,
        reply: &Reply,
        operation: &'static str,
        full: &[u8],
        locus: Locus,
    ) -> Error {
        reply.refusal(operation, self.show_full(full), locus)
    }

    /// Sends a command about a path.
    pub(super) async fn ask(&self, command: &str, full: &[u8]) -> Result<Reply> {
        let mut lease = self.lease().await?;
        lease.session()?.ask(&line(command, full)).await
    }

    /// Returns the entry at a path; the server follows links.
    pub(super) async fn stat(&self, full: &[u8]) -> Result<Option<Entry>> {
        let mut lease = self.lease().await?;
        self.stat_with(&mut lease, full).await
    }

    pub(super) async fn stat_with(&self, lease: &mut Lease, full: &[u8]) -> Result<Option<Entry>> {
        let reply = lease.session()?.ask(&line("MLST", full)).await?;
        let Some(Told {
            entry, has_size, ..
        }) = self.found(&reply, full)?
        else {
            return Ok(None);
        };
        if has_size || entry.kind != Kind::File {
            return Ok(Some(entry));
        }
        let reply = lease.session()?.ask(&line("SIZE", full)).await?;
        let size = reply.text().parse().ok().filter(|_| reply.is_done());
        let size = size.ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "look at", self.show_full(full))
                .cause("the server doesn't say how long it is")
                .at(Locus::Source)
        })?;
        Ok(Some(Entry { size, ..entry }))
    }

    /// Returns the facts in the answer to MLST.
    pub(super) fn found(&self, reply: &Reply, full: &[u8]) -> Result<Option<Told>> {
        if reply.is_missing() {
            return Ok(None);
        }
        if !reply.is_done() {
            return Err(self.refused(reply, "look at", full, Locus::Source));
        }
        let facts = reply.lines.iter().find_map(|line| {
            let line = line.strip_prefix(b" ").unwrap_or(line);
            told_of(line)
        });
        let mut told = facts.ok_or_else(|| {
            Error::new(ErrorKind::Other, "look at", self.show_full(full))
                .cause("the server tells nothing of it that can be read")
        })?;
        told.entry.name.clear();
        Ok(Some(told))
    }

    /// Gives a directory its time and mode, if the server does that: some only know files.
    pub(super) async fn dress_folder(
        &self,
        full: &[u8],
        mode: Option<u32>,
        mtime: Option<FileTime>,
    ) -> Result<()> {
        let mtime = mtime.filter(|_| self.dresses_folders.load(Relaxed));
        let mut commands = self.dresses(full, mode, mtime);
        if commands.is_empty() {
            return Ok(());
        }
        let mut lease = self.lease().await?;
        let mut replies = lease.session()?.ask_all(&commands).await?;
        // A time comes last.
        let is_timed = commands
            .last()
            .is_some_and(|command| command.starts_with(b"MFMT"));
        let last = replies
            .last()
            .filter(|last| is_timed && last.is_final_refusal());
        // If files get their times, those of directories are no loss that anybody counts.
        if let Some(last) = last.filter(|_| self.has_set_times.load(Relaxed)) {
            self.dresses_folders.fetch_and(!last.is_unknown(), Relaxed);
            commands.pop();
            replies.pop();
        }
        self.dressed(full, &commands, &replies)
    }

    /// Returns the commands for a path's time and mode; mode first, as it may count as a change.
    fn dresses(&self, full: &[u8], mode: Option<u32>, mtime: Option<FileTime>) -> Vec<Vec<u8>> {
        let (modes, times) = (self.sets_modes.load(Relaxed), self.sets_times.load(Relaxed));
        let is_lost = mtime.is_some_and(|mtime| !times || is_early(mtime));
        self.note(Unkept {
            modes: (mode.is_some() && self.features.modes && !modes).into(),
            times: (is_lost && self.features.set_time).into(),
        });
        let mode = mode.filter(|_| modes);
        let mode = mode.map(|mode| format!("{CHMOD} {:03o}", mode & 0o7777));
        let mtime = mtime.filter(|_| times);
        let mtime = mtime.map(|mtime| format!("MFMT {}", show_time(mtime)));
        let commands = mode.into_iter().chain(mtime);
        commands.map(|command| line(&command, full)).collect()
    }

    /// Checks the effect of those commands. An attribute refused for good is dropped: the bytes are
    /// worth more. A command that the server does not know is not given again.
    fn dressed(&self, full: &[u8], commands: &[Vec<u8>], replies: &[Reply]) -> Result<()> {
        for (command, reply) in commands.iter().zip(replies) {
            if reply.is_final_refusal() {
                let is_mode = command.starts_with(CHMOD.as_bytes());
                let kept = match is_mode {
                    true => &self.sets_modes,
                    false => &self.sets_times,
                };
                // One refusal says nothing about the others.
                if reply.is_unknown() {
                    kept.store(false, Relaxed);
                }
                self.note(Unkept {
                    modes: is_mode.into(),
                    times: (!is_mode).into(),
                });
            } else if reply.is_done() {
                let is_time = command.starts_with(b"MFMT");
                self.has_set_times.fetch_or(is_time, Relaxed);
            } else {
                let doing = "set the attributes of";
                return Err(self.refused(reply, doing, full, Locus::Destination));
            }
        }
        Ok(())
    }

    /// Counts the attributes that an entry arrived without.
    fn note(&self, unkept: Unkept) {
        self.unkept.add(unkept);
    }

    /// Fails unless the server holds all bytes.
    pub(super) fn expect_size(&self, full: &[u8], found: u64, size: u64) -> Result<()> {
        if found == size {
            return Ok(());
        }
        let error = Error::new(ErrorKind::Corrupt, "write", self.show_full(full));
        Err(error
            .cause(format!("the server holds {found} bytes of {size}"))
            .at(Locus::Destination))
    }

    /// Gives a complete file its time, its mode and its name. All but the name is asked for at
    /// once: a hidden file that turns out to be wrong may as well have them.
    pub(super) async fn publish(&self, partial: &[u8], full: &[u8], spec: &FileSpec) -> Result<()> {
        let Err(error) = self.try_publish(partial, full, spec).await else {
            return Ok(());
        };
        if !error.is_temporary() {
            return Err(error);
        }
        // The answer may be lost although the rename succeeded.
        match self.has_moved(partial, full, spec).await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(Error::new(error.kind(), "write", self.show_full(full))
                .cause(error.to_string())
                .at(error.locus())),
        }
    }

    /// Returns whether the file under the hidden name, known to nobody else, has its own name now.
    async fn has_moved(&self, partial: &[u8], full: &[u8], spec: &FileSpec) -> Result<bool> {
        let mut lease = self.lease().await?;
        Ok(self.stat_with(&mut lease, partial).await?.is_none()
            && self.has_arrived(&mut lease, full, spec).await?)
    }

    async fn try_publish(&self, partial: &[u8], full: &[u8], spec: &FileSpec) -> Result<()> {
        let mut lease = self.lease().await?;
        let lease = &mut lease;
        let dresses = self.dresses(partial, spec.mode, spec.mtime);
        let mut commands = dresses.clone();
        commands.extend([line("MLST", partial), line("RNFR", partial)]);
        let replies = lease.session()?.ask_all(&commands).await?;
        let [dressed @ .., look, from] = &replies[..] else {
            return Err(Error::new(ErrorKind::Other, "write", self.show_full(full)));
        };
        let ours = match self.found(look, partial)? {
            Some(told) if told.has_size => {
                self.expect_size(full, told.entry.size, spec.size)?;
                told
            }
            Some(told) => {
                let found = self.stat_with(lease, partial).await?;
                self.expect_size(full, found.map_or(0, |found| found.size), spec.size)?;
                told
            }
            // An earlier answer may have been lost: then it has its name.
            None if self.has_arrived(lease, full, spec).await? => return Ok(()),
            None => {
                self.expect_size(full, 0, spec.size)?;
                return Err(self.only_said(full));
            }
        };
        self.dressed(partial, &dresses, dressed)?;
        self.count_unkept(&ours.entry, spec, dressed);
        self.rename(lease, from, (partial, full), &ours).await
    }

    /// Counts the attributes that the server falsely claims to have set, as far as it reports them.
    fn count_unkept(&self, there: &Entry, spec: &FileSpec, dressed: &[Reply]) {
        if dressed.iter().all(Reply::is_done) {
            let modes = self.sets_modes.load(Relaxed)
                && spec
                    .mode
                    .zip(there.mode)
                    .is_some_and(|(mode, kept)| mode & 0o777 != kept & 0o777);
            self.note(Unkept {
                modes: modes.into(),
                times: 0,
            });
        }
    }

    /// Returns whether a file is at its place with the size and the time that it was given.
    async fn has_arrived(&self, lease: &mut Lease, full: &[u8], spec: &FileSpec) -> Result<bool> {
        let Some(there) = self.stat_with(lease, full).await? else {
            return Ok(false);
        };
        let secs = |time: Option<FileTime>| time.map(|time| time.secs);
        let is_size = there.kind == Kind::File && there.size == spec.size;
        // The time alone distinguishes it from another file of that size.
        Ok(is_size && spec.mtime.is_some() && secs(there.mtime) == secs(spec.mtime))
    }

    /// Gives a file its name if the answer to RNFR is `reply`. Never replaces a directory.
    async fn rename(
        &self,
        lease: &mut Lease,
        reply: &Reply,
        (from, to): (&[u8], &[u8]),
        ours: &Told,
    ) -> Result<()> {
        if !reply.goes_on() {
            return Err(self.refused(reply, "write", from, Locus::Destination));
        }
        let asked = [line("RNTO", to), line("MLST", from), line("MLST", to)];
        let replies = lease.session()?.ask_all(&asked).await?;
        let [renamed, left, there] = &replies[..] else {
            return Err(Error::new(ErrorKind::Other, "write", self.show_full(to)));
        };
        if renamed.is_done() {
            let is_left = self.found(left, from)?.is_some();
            return match !is_left && self.found(there, to)?.is_some_and(|told| told.is(ours)) {
                true => Ok(()),
                false => Err(self.only_said(to)),
            };
        }
        match self.found(there, to)? {
            Some(there) if there.entry.kind == Kind::Directory => {
                let error = Error::new(ErrorKind::Conflict, "write", self.show_full(to));
                Err(error
                    .cause("a directory has that name")
                    .at(Locus::Destination))
            }
            Some(_) if !self.rules.replaces => {
                let error = Error::new(ErrorKind::Conflict, "write", self.show_full(to));
                Err(error
                    .cause("something else got this name meanwhile")
                    .at(Locus::Destination))
            }
            Some(_) => self.replace(lease, renamed, (from, to), ours).await,
            None => Err(self.refused(renamed, "write", to, Locus::Destination)),
        }
    }

    /// Renames if a server never renames over an existing file, which is kept until replaced.
    async fn replace(
        &self,
        lease: &mut Lease,
        refusal: &Reply,
        (from, to): (&[u8], &[u8]),
        ours: &Told,
    ) -> Result<()> {
        let aside = self.partial(to, &new_word());
        if !self.try_rename(lease, to, &aside).await?.is_done() {
            return Err(self.refused(refusal, "write", to, Locus::Destination));
        }
        let renamed = self.try_rename(lease, from, to).await?;
        let look = lease.session()?.ask(&line("MLST", to)).await?;
        let error = match renamed.is_done() {
            true if self.found(&look, to)?.is_some_and(|told| told.is(ours)) => {
                // The file is hidden, and whole elsewhere.
                let _ = lease.session()?.ask(&line("DELE", &aside)).await;
                return Ok(());
            }
            true => self.only_said(to),
            false => self.refused(&renamed, "write", to, Locus::Destination),
        };
        if self.try_rename(lease, &aside, to).await?.is_done() {
            return Err(error);
        }
        let aside = self.show_full(&aside);
        Err(error.hint(format!("what was there is {aside} now")))
    }

    fn only_said(&self, to: &[u8]) -> Error {
        Error::new(ErrorKind::Corrupt, "write", self.show_full(to))
            .cause("the server says that it gave it its name, and did not")
            .at(Locus::Destination)
    }

    async fn try_rename(&self, lease: &mut Lease, from: &[u8], to: &[u8]) -> Result<Reply> {
        let reply = lease.session()?.ask(&line("RNFR", from)).await?;
        if !reply.goes_on() {
            return Err(self.refused(&reply, "write", from, Locus::Destination));
        }
        lease.session()?.ask(&line("RNTO", to)).await
    }

    /// Makes a directory and those above it. Returns whether it is new.
    pub(super) async fn make_directory(&self, full: &[u8]) -> Result<bool> {
        let mut lease = self.lease().await?;
        let mut missing = vec![full.to_vec()];
        let mut made = false;
        while let Some(path) = missing.last().cloned() {
            let reply = lease.session()?.ask(&line("MKD", &path)).await?;
            made = reply.is_done();
            if !made {
                match self.stat_with(&mut lease, &path).await? {
                    Some(there) if there.kind == Kind::Directory => {}
                    Some(_) => {
                        let error = Error::new(
                            ErrorKind::Conflict,
                            "make directory",
                            self.show_full(&path),
                        );
                        return Err(error.cause("a file has that name").at(Locus::Destination));
                    }
                    None if reply.is_missing()
                        && missing.len() < PARENTS_MAX
                        && parent_of(&path) != &*path
                        && self
                            .stat_with(&mut lease, parent_of(&path))
                            .await?
                            .is_none() =>
                    {
                        missing.push(parent_of(&path).to_vec());
                        continue;
                    }
                    None => {
                        let doing = "make directory";
                        return Err(self.refused(&reply, doing, &path, Locus::Destination));
                    }
                }
            }
            missing.pop();
        }
        Ok(made)
    }

    pub(super) async fn remove(&self, full: &[u8]) -> Result<()> {
        let mut lease = self.lease().await?;
        let reply = lease.session()?.ask(&line("DELE", full)).await?;
        if reply.is_done() || self.stat_with(&mut lease, full).await?.is_none() {
            return Ok(());
        }
        Err(self.refused(&reply, "remove", full, Locus::Destination))
    }
}

/// Returns `COMMAND path`.
pub(super) fn line(command: &str, full: &[u8]) -> Vec<u8> {
    [command.as_bytes(), b" ", full].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_absolute_or_below_the_login() {
        for (path, root) in [
            ("", ""),
            ("/a/b", "/a/b"),
            ("/~", "."),
            ("/~/x", "./x"),
            ("/~x", "/~x"),
        ] {
            assert_eq!(root_of(path.as_bytes()), root.as_bytes());
        }
        assert_eq!(parent_of(b"/a/b"), b"/a");
        assert_eq!(parent_of(b"/a"), b"/");
        assert_eq!(parent_of(b"./a"), b".");
    }
}
