//! Owners of unfinished copies, for file systems without locks that all hosts heed.

use std::{fmt, fs, process, sync::LazyLock};

use crate::clock;

/// Time since another host's last write during which it may still write a copy, in seconds.
const QUIET_S: i64 = 60;

/// Process on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    /// Boot of a machine, and the namespace of its processes.
    host: String,
    process: u32,
    /// Start time of the process, as the kernel counts: process ids are reused.
    began: String,
}

/// Claim of a writer on an unfinished copy that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// No other process writes it.
    Goes,
    /// Another process may write it.
    Waits,
    /// Another process may hold it open: only a copy of one's own is certain to be nobody else's.
    Anew,
}

impl Owner {
    /// Returns this process.
    pub(super) fn oneself() -> &'static Self {
        static ONESELF: LazyLock<Owner> = LazyLock::new(|| {
            let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
            // If processes are not visible, as in another container, their ids prove nothing.
            let seen = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
            let host = format!("{boot}{}", seen.display());
            Owner {
                host: host.chars().filter(char::is_ascii_alphanumeric).collect(),
                process: process::id(),
                began: began(process::id()).unwrap_or_default(),
            }
        });
        &ONESELF
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split('.');
        Some(Self {
            host: words.next()?.to_owned(),
            process: words.next()?.parse().ok()?,
            began: words.next()?.to_owned(),
        })
    }

    /// Returns whether this process may continue an unfinished copy. `owner` wrote it last, as its
    /// ledger says, at `written` in seconds since the epoch. `is_locked` says that this process
    /// holds a lock on it.
    pub(super) fn may_write(owner: Option<&str>, is_locked: bool, written: i64) -> Claim {
        let Some(owner) = owner.and_then(Self::parse) else {
            return Claim::Goes;
        };
        let oneself = Self::oneself();
        if owner.host == oneself.host {
            let is_free = is_locked || owner == *oneself || !owner.is_running();
            return if is_free { Claim::Goes } else { Claim::Waits };
        }
        let now = clock::unix_secs().cast_signed();
        match (now.saturating_sub(written) < QUIET_S, is_locked) {
            (true, _) => Claim::Waits,
            (false, true) => Claim::Goes,
            (false, false) => Claim::Anew,
        }
    }

    /// Returns whether the process still runs on this host.
    fn is_running(&self) -> bool {
        began(self.process).is_some_and(|began| began == self.began)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.host, self.process, self.began)
    }
}

/// Returns the start time of a process, in ticks since the host started.
fn began(process: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in brackets may hold anything; the time is the 22nd word, the 20th after it.
    let (_, words) = stat.rsplit_once(") ")?;
    Some(words.split(' ').nth(19)?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_whose_it_can_only_be() {
        let now = clock::unix_secs().cast_signed();
        let may_write = |owner: &Owner, is_locked, age_s| {
            Owner::may_write(Some(&owner.to_string()), is_locked, now - age_s)
        };
        let mine = Owner::oneself();
        assert_eq!(may_write(mine, false, 0), Claim::Goes);
        let parent = std::os::unix::process::parent_id();
        let other = Owner {
            process: parent,
            began: began(parent).unwrap(),
            ..mine.clone()
        };
        assert_eq!(may_write(&other, false, 3600), Claim::Waits);
        let ended = Owner {
            began: "0".to_owned(),
            ..other
        };
        assert_eq!(may_write(&ended, false, 0), Claim::Goes);
        let far = Owner {
            host: "elsewhere".to_owned(),
            ..ended
        };
        assert_eq!(may_write(&far, true, 0), Claim::Waits);
        assert_eq!(may_write(&far, true, 3600), Claim::Goes);
        assert_eq!(may_write(&far, false, 3600), Claim::Anew);
        // Written by older releases.
        assert_eq!(Owner::may_write(Some("-"), true, now), Claim::Goes);
    }
}
