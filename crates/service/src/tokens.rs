//! Callers: the service's own user with its token file, or the holder of a token.
//!
//! A token is 32 random bytes, of which a hash is kept. Its rights are looked up at each call, so a
//! removed token is good for nothing at once.

use std::{
    collections::HashMap,
    fmt,
    path::{Component, Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind, Location, Result};
use posthaste_journal::{RequestRecord, TOKENS_MAX, TokenRecord};
use posthaste_types::Timestamp;

use crate::{credentials::is_own, inbound::look, jobs::places::as_far_as_it_is, render, secrets};

/// Prefix of tokens, so that people and secret scanners recognise one.
const PREFIX: &str = "pht_";
/// Longest name of a token, an owner or a project, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Valid characters of names.
pub(crate) const NAMES: &str = "up to 64 letters, digits, `-`, `_`, `.`, `@`";
/// Most directories and profiles of a token.
const PLACES_MAX: usize = 64;
/// Prefixes of submission ids for requests of batch jobs and of FTS's clients.
const OF_JOBS: [&str; 2] = ["job-", "fts:"];
/// Returns whether a submission id is that of a job's request.
pub(crate) fn is_of_job(name: &str) -> bool {
    OF_JOBS.iter().any(|begins| name.starts_with(begins))
}

/// Separator in the journal between an owner and a submission id.
pub(crate) const OF_OWNER: char = '\n';
/// Longest life of a token, in seconds: ten years.
const LIFETIME_S_MAX: u64 = 10 * 366 * 86_400;

/// Caller of the API.
#[derive(Debug)]
pub(crate) struct Caller {
    /// Name of the token; none for the service's own, or a provider's.
    pub(crate) token: Option<String>,
    /// Subject at the provider, for a logged-in user.
    pub(crate) subject: Option<String>,
    pub(crate) scope: api::Scope,
    owner: Option<String>,
    project: Option<String>,
    below: Vec<PathBuf>,
    profiles: Vec<String>,
    expires: Option<Timestamp>,
}

/// Logged-in user with its grants.
#[derive(Debug)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) subject: String,
    pub(crate) scope: api::Scope,
    pub(crate) project: Option<String>,
    pub(crate) below: Vec<PathBuf>,
    pub(crate) profiles: Vec<String>,
    pub(crate) until: Timestamp,
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.token, &self.owner) {
            (Some(name), _) => write!(f, "token {name}"),
            (None, Some(user)) => write!(f, "{user}, who logged in"),
            (None, None) => f.write_str("the service's token"),
        }
    }
}

impl Caller {
    /// Returns the caller with the service's own token.
    fn service() -> Self {
        Self {
            token: None,
            subject: None,
            scope: api::Scope::Operate,
            owner: None,
            project: None,
            below: Vec::new(),
            profiles: Vec::new(),
            expires: None,
        }
    }

    fn of(record: &TokenRecord) -> Self {
        Self {
            token: Some(record.name.clone()),
            subject: None,
            // A scope of a later release only allows looking.
            scope: api::Scope::read(&record.scope).unwrap_or(api::Scope::Read),
            owner: record.owner.clone(),
            project: record.project.clone(),
            below: record.below.clone(),
            profiles: record.profiles.clone(),
            expires: record.expires,
        }
    }

    /// Returns the caller for a user's job, on a service that touches files with users' rights:
    /// these limit the files, and the profiles limit the rest.
    pub(crate) fn job_of(owner: &str, profiles: Vec<String>) -> Self {
        Self {
            scope: api::Scope::Submit,
            owner: Some(owner.to_owned()),
            below: vec![PathBuf::from("/")],
            profiles,
            ..Self::service()
        }
    }

    /// Returns the caller for a logged-in user.
    pub(crate) fn logged_in(login: Login) -> Self {
        Self {
            token: None,
            subject: Some(login.subject),
            scope: login.scope,
            owner: Some(login.user),
            project: login.project,
            below: login.below,
            profiles: login.profiles,
            expires: Some(login.until),
        }
    }

    /// Returns the directories that it is bound to, if any.
    pub(crate) fn places(&self) -> &[PathBuf] {
        match self.operates() {
            true => &[],
            false => &self.below,
        }
    }

    /// Returns the owner of its requests, if they have one.
    pub(crate) fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// Returns its description for the caller.
    pub(crate) fn shown(&self) -> api::Whoami {
        let below = self.below.iter();
        api::Whoami {
            user: self.owner.clone(),
            subject: self.subject.clone(),
            token: self.token.clone(),
            scope: self.scope,
            project: self.project.clone(),
            below: below.map(|path| path.display().to_string()).collect(),
            profiles: self.profiles.clone(),
            expires: self.expires.map(render::moment),
            quota: None,
        }
    }

    fn denied(&self, operation: &'static str, subject: impl Into<String>) -> Error {
        Error::new(ErrorKind::PermissionDenied, operation, subject).with("asked by", self)
    }

    /// Returns its name for people: its owner, or else its token.
    pub(crate) fn name(&self) -> String {
        match (&self.owner, &self.token) {
            (Some(owner), _) => owner.clone(),
            (None, Some(token)) => format!("token {token}"),
            (None, None) => "an operator".to_owned(),
        }
    }

    /// Returns whether its rights hold for all owners.
    pub(crate) fn operates(&self) -> bool {
        self.scope == api::Scope::Operate
    }

    /// Returns whether it may see this user's jobs, which batch systems may hide from others.
    pub(crate) fn sees_jobs_of(&self, user: &str) -> bool {
        self.operates() || self.owner.as_deref() == Some(user)
    }

    /// Sets the owner and project of a submission, whatever was given.
    pub(crate) fn claim(&self, owner: &mut Option<String>, project: &mut Option<String>) {
        if self.owner.is_some() {
            owner.clone_from(&self.owner);
        }
        if self.project.is_some() {
            project.clone_from(&self.project);
        }
    }

    /// Checks its submission's name, and prefixes it with the owner: each owner has separate names.
    /// Names of jobs' requests are reserved, because each is requested once under them.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] for a job's name; [`ErrorKind::Invalid`] for an invalid one.
    pub(crate) fn name_submission(
        &self,
        submission: &mut Option<String>,
        owner: Option<&str>,
    ) -> Result<()> {
        let Some(name) = submission else {
            return Ok(());
        };
        if name.chars().any(posthaste_types::is_obeyed) {
            let shown = name.escape_debug().to_string();
            return Err(Error::new(ErrorKind::Invalid, "submit", shown)
                .cause("a submission id has no control characters"));
        }
        if is_of_job(name) {
            if self.operates() {
                return Ok(());
            }
            return Err(self
                .denied("submit", format!("{name:.64}"))
                .cause("submission ids that begin so are those of jobs")
                .hint("take another one"));
        }
        if let Some(owner) = owner.filter(|owner| !owner.is_empty()) {
            *name = format!("{owner}{OF_OWNER}{name}");
        }
        Ok(())
    }

    /// Checks that it may change this request and have its data.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] if the request is another owner's.
    pub(crate) fn owns(&self, record: &RequestRecord) -> Result<()> {
        self.stands_for(&record.wishes.owner, || format!("request {}", record.id))
    }

    /// Returns the profiles of the service's user that it may name; an operator may name any.
    pub(crate) fn profiles(&self) -> &[String] {
        &self.profiles
    }

    /// Checks that it may change things of this owner; an empty owner is nobody in particular.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] if they are another owner's.
    pub(crate) fn stands_for(&self, owner: &str, what: impl FnOnce() -> String) -> Result<()> {
        if self.operates() || self.owner.as_deref() == Some(owner) {
            return Ok(());
        }
        let whose = match owner {
            "" => "nobody's in particular".to_owned(),
            owner => format!("{owner}'s"),
        };
        Err(self
            .denied("change or read", what())
            .cause(format!("it is {whose}"))
            .hint("ask its owner, or an operator"))
    }

    /// Checks that a path lies where it may have data moved, and returns the path with links
    /// resolved as far as it exists. Blocking.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] if it does not.
    pub(crate) fn reaches(&self, path: &Path) -> Result<PathBuf> {
        let place = std::fs::canonicalize(path).unwrap_or_else(|_| as_far_as_it_is(path));
        let is_plain = place.is_absolute() && !goes_up(&place);
        let lies_below = |root: &PathBuf| {
            let found = std::fs::canonicalize(root);
            found.is_ok_and(|root| place.starts_with(root))
        };
        if self.operates() || is_plain && self.below.iter().any(lies_below) {
            return Ok(place);
        }
        let places = self.below.iter();
        let places: Vec<_> = places.map(|root| root.display().to_string()).collect();
        Err(self
            .denied("move", path.display().to_string())
            .cause(format!("it is not below {}", places.join(" or "))))
    }

    /// Checks that it may read from an address with the credentials of this profile. Blocking.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] if it may not; [`ErrorKind::Invalid`] for a bad address.
    pub(crate) fn reads(&self, address: &str, profile: Option<&str>) -> Result<()> {
        self.opens("read from", address, profile, look::covers)
    }

    /// Checks the same for writing.
    ///
    /// # Errors
    /// Errors of [`Caller::reads`].
    pub(crate) fn writes(&self, address: &str, profile: Option<&str>) -> Result<()> {
        self.opens("write to", address, profile, look::covers)
    }

    /// Checks that it may open an address of the host that this profile is named after, as in FTS,
    /// below its `url`. Blocking.
    ///
    /// # Errors
    /// Errors of [`Caller::reads`].
    pub(crate) fn opens_host(&self, verb: &'static str, address: &str, host: &str) -> Result<()> {
        self.opens(verb, address, Some(host), look::covers_host)
    }

    fn opens(
        &self,
        verb: &'static str,
        address: &str,
        profile: Option<&str>,
        covers: impl Fn(&str, Location) -> Result<bool>,
    ) -> Result<()> {
        if self.operates() {
            return Ok(());
        }
        let may_use = |profile: &str| self.profiles.iter().any(|known| known == profile);
        let location = Location::parse(address.as_ref())?;
        let cause = match &location {
            Location::Local(path) => return self.reaches(path).map(drop),
            // The caller has it already, as [`crate::credentials`] explains.
            location if is_own(location) => return Ok(()),
            // `NAME:path` would be a host if there were no profile of that name.
            Location::Host {
                user: None, host, ..
            } if may_use(host) => {
                if covers(host, location.clone())? {
                    return Ok(());
                }
                format!("it is not below the url of the profile {host}")
            }
            Location::S3 { .. } | Location::Bucket { .. } | Location::Server(_) => match profile {
                Some(profile) if !may_use(profile) => {
                    format!("it may not use the profile {profile}")
                }
                // The address decides where its password would go.
                Some(profile) if !covers(profile, location.clone())? => {
                    format!("it is not below the url of the profile {profile}")
                }
                Some(_) => return Ok(()),
                None => "other addresses are opened with a profile that it may use".to_owned(),
            },
            // These use the keys of the service's user, whatever the profile, or a program.
            Location::Sftp { .. } | Location::Host { .. } | Location::Plugin { .. } => {
                "it may go there only as NAME:path, with a profile that it may use".to_owned()
            }
        };
        Err(self
            .denied(verb, address)
            .cause(cause)
            .hint("an operator makes tokens with --profile"))
    }
}

/// All valid tokens.
pub(crate) struct Tokens {
    own: Arc<str>,
    service: Arc<Caller>,
    given: RwLock<HashMap<[u8; 32], Arc<Caller>>>,
}

impl Tokens {
    /// Returns the service's own token and those of the journal.
    pub(crate) fn new(own: String, given: &[TokenRecord]) -> Self {
        let given = given.iter();
        let given = given.map(|record| (record.hash, Arc::new(Caller::of(record))));
        Self {
            own: own.into(),
            service: Arc::new(Caller::service()),
            given: RwLock::new(given.collect()),
        }
    }

    /// Returns the caller with this token; none if the token is unknown or removed.
    pub(crate) fn caller(&self, shown: &str, now: Timestamp) -> Option<Arc<Caller>> {
        if secrets::same(shown, &self.own) {
            return Some(Arc::clone(&self.service));
        }
        let given = self.given.read().unwrap_or_else(PoisonError::into_inner);
        let caller = given.get(&hash(shown))?;
        let is_good = caller.expires.is_none_or(|until| now < until);
        is_good.then(|| Arc::clone(caller))
    }

    /// Returns the profiles that a user may use with any of its tokens.
    pub(crate) fn profiles_of(&self, owner: &str, now: Timestamp) -> Vec<String> {
        let given = self.given.read().unwrap_or_else(PoisonError::into_inner);
        let theirs = given.values().filter(|caller| {
            caller.owner.as_deref() == Some(owner)
                && caller.scope.covers(api::Scope::Submit)
                && caller.expires.is_none_or(|until| now < until)
        });
        theirs.flat_map(|caller| caller.profiles.clone()).collect()
    }

    /// Adds a new token.
    pub(crate) fn add(&self, record: &TokenRecord) {
        let mut given = self.given.write().unwrap_or_else(PoisonError::into_inner);
        given.insert(record.hash, Arc::new(Caller::of(record)));
    }

    /// Removes a token.
    pub(crate) fn remove(&self, name: &str) {
        let mut given = self.given.write().unwrap_or_else(PoisonError::into_inner);
        given.retain(|_, caller| caller.token.as_deref() != Some(name));
    }
}

/// Returns whether a text is a valid name.
pub(crate) fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_plain)
}

/// Returns whether a path may name a directory with entries below.
pub(crate) fn is_directory(path: &Path) -> bool {
    path.is_absolute() && !goes_up(path) && !path.as_os_str().as_encoded_bytes().contains(&0)
}

/// Returns whether a path contains `..`.
fn goes_up(path: &Path) -> bool {
    path.components().any(|step| step == Component::ParentDir)
}

fn hash(shown: &str) -> [u8; 32] {
    *blake3::hash(shown.as_bytes()).as_bytes()
}

/// Makes a token as requested, and returns its secret text.
///
/// # Errors
/// [`ErrorKind::Invalid`] for invalid values.
pub(crate) fn make(new: &api::NewToken, now: Timestamp) -> Result<(TokenRecord, String)> {
    check(new)?;
    let mut noise = [0; secrets::SECRET_BYTES];
    getrandom::fill(&mut noise).map_err(|cause| {
        Error::new(ErrorKind::Other, "make", format!("token {}", new.name)).cause(cause.to_string())
    })?;
    let shown = format!("{PREFIX}{}", secrets::to_hex(&noise));
    let record = TokenRecord {
        name: new.name.clone(),
        hash: hash(&shown),
        scope: new.scope.word().to_owned(),
        owner: new.owner.clone(),
        project: new.project.clone(),
        below: new.below.iter().map(PathBuf::from).collect(),
        profiles: new.profiles.clone(),
        created: now,
        expires: new
            .lifetime_s
            .map(|lifetime_s| now + std::time::Duration::from_secs(lifetime_s)),
    };
    Ok((record, shown))
}

fn check(new: &api::NewToken) -> Result<()> {
    let wrong = |cause: String| {
        Error::new(
            ErrorKind::Invalid,
            "make",
            format!("token {:.64}", new.name),
        )
        .cause(cause)
    };
    let names = [Some(&new.name), new.owner.as_ref(), new.project.as_ref()];
    let names = names.into_iter().flatten().chain(&new.profiles);
    for name in names {
        if !is_name(name) {
            return Err(wrong(format!("`{name:.64}` is no name: {NAMES}")));
        }
    }
    if new.below.len() + new.profiles.len() > PLACES_MAX {
        return Err(wrong(format!("it names more than {PLACES_MAX} places")));
    }
    for below in &new.below {
        if !is_directory(Path::new(below)) {
            return Err(wrong(format!("`{below}` is no absolute path without `..`")));
        }
    }
    if new
        .lifetime_s
        .is_some_and(|life| life == 0 || life > LIFETIME_S_MAX)
    {
        return Err(wrong("it is good for a second to ten years".to_owned()));
    }
    let is_bound = new.owner.is_some() && !new.below.is_empty();
    if new.scope == api::Scope::Submit && !is_bound {
        let error = wrong(
            "one that submits has an owner, and directories below which its data lies".to_owned(),
        );
        return Err(error.hint("name them with --owner and --below"));
    }
    Ok(())
}

/// Returns the error for a token that was not recorded.
pub(crate) fn not_kept(name: &str) -> Error {
    Error::new(ErrorKind::Conflict, "make", format!("token {name}"))
        .cause(format!("one has that name, or there are {TOKENS_MAX}"))
        .hint("`posthaste token list` shows them; remove the old one first")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1000);

    fn new(scope: api::Scope) -> api::NewToken {
        api::NewToken {
            name: "laptop".into(),
            scope,
            owner: Some("alice".into()),
            project: None,
            below: vec!["/scratch/alice".into()],
            profiles: vec!["archive".into()],
            lifetime_s: Some(60),
        }
    }

    #[test]
    fn a_token_is_good_until_it_ends_or_is_removed_and_is_not_kept() {
        let tokens = Tokens::new("own".into(), &[]);
        let (record, shown) = make(&new(api::Scope::Submit), NOW).unwrap();
        assert!(!format!("{record:?}").contains(&shown[PREFIX.len()..]));
        assert!(tokens.caller(&shown, NOW).is_none());
        tokens.add(&record);
        let caller = tokens.caller(&shown, NOW).unwrap();
        assert_eq!(caller.scope, api::Scope::Submit);
        let end = NOW + std::time::Duration::from_secs(60);
        assert!(tokens.caller(&shown, end).is_none());
        tokens.remove("laptop");
        assert!(tokens.caller(&shown, NOW).is_none());
        assert_eq!(
            tokens.caller("own", NOW).unwrap().scope,
            api::Scope::Operate
        );
        let again = Tokens::new("own".into(), &[record]);
        assert!(again.caller(&shown, NOW).is_some());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let wrong: [fn(&mut api::NewToken); 8] = [
            |new| new.name = "a b".into(),
            |new| new.name = String::new(),
            |new| new.owner = None,
            |new| new.below.clear(),
            |new| new.below = vec!["scratch".into()],
            |new| new.below = vec!["/scratch/../etc".into()],
            |new| new.lifetime_s = Some(0),
            |new| new.profiles = vec!["p".into(); 100],
        ];
        for (number, change) in wrong.iter().enumerate() {
            let mut new = new(api::Scope::Submit);
            change(&mut new);
            let refused = make(&new, NOW).map(|_| ()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{number}");
        }
    }

    #[test]
    fn a_token_reaches_what_lies_below_its_directories_and_no_link_leads_out() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("alice");
        std::fs::create_dir_all(root.join("run")).unwrap();
        std::os::unix::fs::symlink("/etc", root.join("out")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("alice"), folder.path().join("way")).unwrap();
        let caller = |below: PathBuf| {
            let mut new = new(api::Scope::Submit);
            new.below = vec![below.to_str().unwrap().to_owned()];
            Caller::of(&make(&new, NOW).unwrap().0)
        };
        // Also if the directory itself is reached through a link.
        for alice in [caller(root.clone()), caller(folder.path().join("way"))] {
            for good in ["run", "run/later", "run/not/there/yet"] {
                alice.reaches(&root.join(good)).unwrap();
            }
            for bad in [
                "out",
                "out/passwd",
                "../bob",
                "run/../../bob",
                "new/../../bob",
            ] {
                let refused = alice.reaches(&root.join(bad)).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{bad}");
            }
            alice.reaches(Path::new("relative")).unwrap_err();
            let name = |caller: &Caller, name: &str| {
                let mut name = Some(name.to_owned());
                let named = caller.name_submission(&mut name, Some("alice"));
                named.map(|()| name.unwrap())
            };
            assert_eq!(name(&alice, "mine").unwrap(), "alice\nmine");
            assert!(name(&alice, "bob\nhis").is_err());
            for taken in ["job-slurm-7.0-in-1", "fts:7:1"] {
                assert!(name(&alice, taken).is_err());
                assert_eq!(name(&Caller::service(), taken).unwrap(), taken);
            }
            alice.reads(root.to_str().unwrap(), None).unwrap();
            let reads = |address, profile| {
                alice.opens("read from", address, profile, |_, location| {
                    let base = Location::parse("s3://bucket/key".as_ref())?;
                    let is_named = matches!(location, Location::Host { .. });
                    Ok(is_named || location.lies_below(&base))
                })
            };
            reads("s3://bucket/key", Some("archive")).unwrap();
            reads("archive:key", None).unwrap();
            for (address, profile) in [
                ("s3://bucket/other", Some("archive")),
                ("http://attacker/", Some("archive")),
                ("root:key", Some("archive")),
                ("me@archive:key", Some("archive")),
                ("sftp://archive/key", Some("archive")),
                ("tape://archive/key", Some("archive")),
                ("s3://bucket/key", None),
                ("s3://bucket/key", Some("root")),
                ("/etc/passwd", Some("archive")),
            ] {
                reads(address, profile).unwrap_err();
            }
        }
        Caller::service().reaches(Path::new("/etc")).unwrap();
    }
}
