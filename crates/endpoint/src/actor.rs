//! Accounts with whose rights files are touched: the user who runs this or, if that is root, the
//! requester's account.
//!
//! A single thread assumes an account's rights, for one piece of work that only waits for the file
//! system, and gives them back after it. So the kernel decides about access, whatever route a path
//! takes, and whoever changes that route meanwhile.

use std::{
    collections::HashMap,
    fmt,
    process::Command,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rustix::{
    process::{Gid, Uid, getegid, geteuid, getgroups},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};

use crate::{Error, ErrorKind, Result, clock};

/// Time for which the name service's answer about an account is valid.
const KNOWN_FOR: Duration = Duration::from_secs(60);
/// Most accounts remembered.
const KNOWN_MAX: usize = 4096;
/// Most bytes of an account's name.
const NAME_BYTES_MAX: usize = 64;

/// Account that this machine knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    name: String,
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl Account {
    /// Looks up the local account of this name in this machine's name service. Blocks.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none; [`ErrorKind::PermissionDenied`] for root, as which
    /// nobody may act.
    pub fn named(name: &str) -> Result<Self> {
        let fail = |kind| {
            Error::new(
                kind,
                "act for",
                format!("the account {name:.NAME_BYTES_MAX$}"),
            )
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-@+$".contains(c);
        let is_name =
            !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_plain);
        // A name of digits only would be read as a number.
        let is_number = name.chars().all(|c| c.is_ascii_digit());
        if !is_name || is_number || name.starts_with(['-', '+']) {
            return Err(fail(ErrorKind::NotFound).cause("that is no account's name"));
        }
        let missing = || {
            fail(ErrorKind::NotFound)
                .cause("this machine knows none of that name")
                .hint("`getent passwd NAME` says whom it knows")
        };
        let entry = ask(Command::new("getent").args(["passwd", name]))?.ok_or_else(missing)?;
        let mut fields = entry.trim_end().split(':');
        let known = fields.next();
        let [uid, gid] = [fields.nth(1), fields.next()].map(|field| field?.parse::<u32>().ok());
        let (Some(uid), Some(gid)) = (uid.filter(|_| known == Some(name)), gid) else {
            return Err(missing());
        };
        if uid == 0 {
            return Err(fail(ErrorKind::PermissionDenied)
                .cause("it is root's, who may everything")
                .hint("let somebody else own the request"));
        }
        let groups = ask(Command::new("id").args(["-G", "--", name]))?.ok_or_else(missing)?;
        let groups = groups.split_whitespace().map(str::parse);
        let groups = groups.collect::<std::result::Result<Vec<u32>, _>>();
        let groups = groups.map_err(|_| missing())?;
        Ok(Self {
            name: name.to_owned(),
            uid,
            gid,
            groups,
        })
    }

    /// Looks up the local account of this number. Blocks.
    ///
    /// # Errors
    /// Errors of [`Self::named`].
    pub fn numbered(uid: u32) -> Result<Self> {
        let entry = ask(Command::new("getent").args(["passwd", &uid.to_string()]))?;
        let name = entry.as_deref().and_then(|entry| entry.split(':').next());
        let account = name.map(Self::named).transpose()?;
        // Two names of one number may have different groups.
        account.filter(|account| account.uid == uid).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "act for", format!("the user {uid}"))
                .cause("this machine knows no account of that number")
                .hint("`getent passwd NUMBER` says whom it knows")
        })
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Returns the output of a system program; none if it reports that no such entry exists.
fn ask(command: &mut Command) -> Result<Option<String>> {
    let program = command.get_program().to_string_lossy().into_owned();
    let said = command
        .output()
        .map_err(|cause| Error::io("run", program, cause))?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    Ok((said.status.success() && !text.is_empty()).then_some(text))
}

/// Account with whose rights files are touched.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Actor(Option<Arc<Account>>);

impl fmt::Debug for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.as_deref().map_or("oneself", Account::name);
        f.debug_tuple("Actor").field(&name).finish()
    }
}

impl Actor {
    /// Returns the actor for the user who runs this.
    #[must_use]
    pub const fn oneself() -> Self {
        Self(None)
    }

    /// Returns the actor for this account. Only root can act for it.
    #[must_use]
    pub fn account(account: Account) -> Self {
        Self(Some(Arc::new(account)))
    }

    /// Returns whether it is the user who runs this.
    #[must_use]
    pub fn is_oneself(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the account's name, if it is one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.as_deref().map(Account::name)
    }

    /// Runs work with these rights. It blocks this thread, and must not start other work that
    /// outlives it: that would keep these rights.
    ///
    /// # Errors
    /// Errors of the work, and [`ErrorKind::PermissionDenied`] if these rights can't be assumed:
    /// then it did not start.
    pub fn run<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some(account) = &self.0 else {
            return work();
        };
        let _rights = Rights::take(account).map_err(|cause| {
            Error::io("act for", format!("the account {}", account.name), cause)
                .hint("only root can act for others")
        })?;
        work()
    }

    /// Runs work with these rights on one of the runtime's blocking threads.
    ///
    /// # Errors
    /// Errors of [`Self::run`].
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let actor = self.clone();
        match tokio::task::spawn_blocking(move || actor.run(work)).await {
            Ok(done) => done,
            Err(cause) => {
                Err(Error::new(ErrorKind::Other, "finish", "a blocking call").cause(cause))
            }
        }
    }
}

/// Accounts that were looked up recently.
#[derive(Debug, Default)]
pub struct Accounts {
    known: Mutex<HashMap<String, (Actor, Instant)>>,
}

impl Accounts {
    /// Returns the actor for the account of this name. Blocks if the name service is asked.
    ///
    /// # Errors
    /// Errors of [`Account::named`].
    pub fn actor(&self, name: &str) -> Result<Actor> {
        self.known_as(name, || Account::named(name))
    }

    /// Returns the actor for the account of this number. Blocks if the name service is asked.
    ///
    /// # Errors
    /// Errors of [`Account::numbered`].
    pub fn numbered(&self, uid: u32) -> Result<Actor> {
        // No name begins with this.
        self.known_as(&format!("#{uid}"), || Account::numbered(uid))
    }

    fn known_as(&self, key: &str, look_up: impl FnOnce() -> Result<Account>) -> Result<Actor> {
        let now = clock::now();
        let locked = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((actor, at)) = locked().get(key)
            && now.duration_since(*at) < KNOWN_FOR
        {
            return Ok(actor.clone());
        }
        let actor = Actor::account(look_up()?);
        let mut known = locked();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(key.to_owned(), (actor.clone(), now));
        Ok(actor)
    }
}

/// Rights that this thread has assumed, until this is dropped.
struct Rights {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl Rights {
    fn take(account: &Account) -> std::io::Result<Self> {
        let (uid, gid, groups) = (geteuid(), getegid(), getgroups()?);
        let theirs: Vec<Gid> = account.groups.iter().copied().map(Gid::from_raw).collect();
        set_thread_groups(&theirs)?;
        // From here on every change is undone, even if the rest fails.
        let before = Self { uid, gid, groups };
        let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
        set_thread_res_gid(before.gid, gid, before.gid)?;
        set_thread_res_uid(before.uid, uid, before.uid)?;
        Ok(before)
    }
}

impl Drop for Rights {
    fn drop(&mut self) {
        let given_back = set_thread_res_uid(self.uid, self.uid, self.uid)
            .and_then(|()| set_thread_res_gid(self.gid, self.gid, self.gid))
            .and_then(|()| set_thread_groups(&self.groups));
        if given_back.is_err() {
            // Later work on this thread would act for the wrong account.
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs,
        os::unix::fs::{MetadataExt, PermissionsExt},
        path::Path,
    };

    /// Returns an account that exists on every machine and is not root.
    fn somebody() -> Actor {
        Actor::account(Account::named("nobody").unwrap())
    }

    fn read(path: &Path) -> Result<Vec<u8>> {
        fs::read(path).map_err(|cause| Error::io("read", path.display().to_string(), cause))
    }

    #[test]
    fn an_account_is_looked_up_and_root_s_is_refused() {
        let account = Account::named("nobody").unwrap();
        assert!(account.name() == "nobody" && account.uid > 0 && !account.groups.is_empty());
        let kind = |name: &str| Account::named(name).unwrap_err().kind();
        assert_eq!(kind("root"), ErrorKind::PermissionDenied);
        for wrong in [
            "",
            "0",
            "no such account",
            "-x",
            "+",
            "no-such-account",
            "a:b",
            "../x",
        ] {
            assert_eq!(kind(wrong), ErrorKind::NotFound, "{wrong:?}");
        }
    }

    #[test]
    fn only_what_the_account_may_is_done_and_then_all_is_as_before() {
        if !geteuid().is_root() {
            let error = somebody().run(|| Ok(())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            return;
        }
        let groups = getgroups().unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let secret = folder.path().join("secret");
        fs::write(&secret, "root's").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let (actor, made) = (somebody(), folder.path().join("made"));
        let refused = actor.run(|| read(&secret)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        // A link to it does not help.
        std::os::unix::fs::symlink(&secret, folder.path().join("way")).unwrap();
        assert!(actor.run(|| read(&folder.path().join("way"))).is_err());
        let write = || fs::write(&made, "x").map_err(|cause| Error::io("write", "it", cause));
        actor.run(write).unwrap();
        let about = fs::metadata(&made).unwrap();
        let account = Account::named("nobody").unwrap();
        assert_eq!((about.uid(), about.gid()), (account.uid, account.gid));
        assert!(geteuid().is_root() && read(&secret).is_ok());
        // Rights are also given back if the work panics.
        let panicked =
            std::panic::catch_unwind(|| actor.run(|| -> Result<()> { panic!("it does") }));
        assert!(panicked.is_err() && geteuid().is_root());
        assert_eq!(getgroups().unwrap(), groups);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn other_threads_keep_their_rights_meanwhile() {
        if !geteuid().is_root() {
            return;
        }
        let actor = somebody();
        let work = (0..64).map(|number| {
            let actor = if number % 2 == 0 {
                actor.clone()
            } else {
                Actor::oneself()
            };
            async move {
                let is_other = actor.blocking(|| Ok(!geteuid().is_root())).await.unwrap();
                assert_eq!(is_other, number % 2 == 0);
            }
        });
        futures_util::future::join_all(work).await;
    }
}
