//! Credentials of users. The journal has them encrypted; `keys` has the key, in a file.
//!
//! `NAME:path` in a request means the user's own credential first, and the service's profiles after
//! it. The chosen meaning is recorded: an address of one's own credential is kept as `~NAME:path`.
//! So a credential that is removed later never comes to mean a profile that its owner may not use.

mod addresses;
mod keys;

use std::{
    collections::BTreeMap,
    ops::Deref,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use posthaste_api as api;
use posthaste_endpoint::{
    Access, Actor, Error, ErrorKind, Location, Profile, Reach, Result, own_profile,
};
use posthaste_journal::CredentialRecord;
use posthaste_types::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{render, store::Store, tokens};
pub(crate) use addresses::{query_of, shown};
use keys::Keys;

/// Default name of the key file in the state directory.
pub(crate) const KEY_FILE: &str = "credentials.key";
/// Key file for signatures in addresses. It never changes, since waiting requests need it.
pub(crate) const ADDRESS_KEY_FILE: &str = "addresses.key";
/// Most credentials: each is in memory.
const CREDENTIALS_MAX: usize = 10_000;
/// Limit per owner.
const OWNED_MAX: usize = 100;
/// Prefix of an address with the user's own credential.
const OWN: char = '~';

/// Encrypted content.
#[derive(Serialize, Deserialize)]
struct Content {
    url: String,
    settings: BTreeMap<String, String>,
}

/// Credential of a user.
pub(crate) struct Own {
    content: Content,
    profile: Profile,
    created: Timestamp,
    /// Number that no other credential has, not even its replacement.
    pub(crate) number: u64,
}

impl Own {
    /// Returns the credential for a mover, to open the place.
    pub(crate) fn for_mover(&self) -> api::ChoreCredential {
        api::ChoreCredential {
            url: self.content.url.clone(),
            settings: self.content.settings.clone(),
        }
    }
}

type Known = BTreeMap<(String, String), Arc<Own>>;

/// All credentials of users.
pub(crate) struct Credentials {
    /// Held during changes. None if users can't give credentials.
    keys: Mutex<Option<Keys>>,
    /// Keys that seal signatures in addresses.
    address_keys: Mutex<Option<Keys>>,
    known: RwLock<Known>,
    numbers: AtomicU64,
    /// Limits on the places that users may name.
    pub(crate) reach: Reach,
}

impl Default for Credentials {
    fn default() -> Self {
        Self {
            keys: Mutex::new(None),
            address_keys: Mutex::new(None),
            known: RwLock::default(),
            numbers: AtomicU64::new(0),
            reach: Reach::default(),
        }
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

impl Credentials {
    /// Decrypts the journal's credentials with a key file, which may be missing without any.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it is not the key of every credential, [`ErrorKind::NotFound`] if
    /// it is needed and missing; [`ErrorKind::PermissionDenied`] if others can read it.
    pub(crate) fn open(
        key_file: &Path,
        address_key_file: &Path,
        records: &[CredentialRecord],
    ) -> Result<Self> {
        let credentials = Self::default();
        *credentials.address_keys() = Some(Keys::read(address_key_file)?);
        let keys = Keys::read(key_file)?;
        if !keys.are_there() && !records.is_empty() {
            let shown = key_file.display().to_string();
            return Err(Error::new(ErrorKind::NotFound, "open credentials with", shown)
                .cause("it is not there, and the journal has credentials that are encrypted with it")
                .hint("name the file with their key by --credentials-key, or bring it back from a backup of the state directory"));
        }
        for record in records {
            let whose = (&*record.owner, &*record.name);
            let content = keys.open(whose, &record.sealed).ok_or_else(|| {
                let shown = keys.file().display().to_string();
                Error::new(ErrorKind::Invalid, "open credentials with", shown)
                    .cause(format!("it is not the key of {}", shown_as(whose)))
                    .hint("name the file with their key by --credentials-key")
            })?;
            let content = serde_json::from_slice(&content).map_err(|_| {
                // The unreadable text is not shown: it may be a secret.
                Error::new(ErrorKind::Corrupt, "read", shown_as(whose))
            })?;
            let own = credentials.own(content, record.created)?;
            credentials.learn(whose, own);
        }
        *credentials.keys() = Some(keys);
        Ok(credentials)
    }

    /// Limits the places that users may name.
    pub(crate) fn reaching(self, reach: Reach) -> Self {
        Self { reach, ..self }
    }

    fn keys(&self) -> MutexGuard<'_, Option<Keys>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn address_keys(&self) -> MutexGuard<'_, Option<Keys>> {
        let keys = self.address_keys.lock();
        keys.unwrap_or_else(PoisonError::into_inner)
    }

    fn own(&self, content: Content, created: Timestamp) -> Result<Own> {
        Ok(Own {
            profile: own_profile(&content.url, &content.settings)?,
            content,
            created,
            number: self.numbers.fetch_add(1, Ordering::Relaxed),
        })
    }

    fn learn(&self, (owner, name): (&str, &str), own: Own) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.insert((owner.to_owned(), name.to_owned()), Arc::new(own));
    }

    fn known(&self) -> impl Deref<Target = Known> + '_ {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a user's credential. It is durable and encrypted when this returns. Blocking.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a credential that opens nothing, [`ErrorKind::Conflict`] if the
    /// name exists or there are too many; those of the journal and of the key file.
    pub(crate) fn add(
        &self,
        store: &Store,
        owner: &str,
        new: api::NewCredential,
        now: Timestamp,
    ) -> Result<api::Credential> {
        check_name(owner, &new.name)?;
        let whose = (owner, &*new.name);
        let content = Content {
            url: new.url,
            settings: new.settings,
        };
        let own = self.own(content, now)?;
        let mut keys = self.keys();
        self.check_room(whose, new.replace)?;
        let keys = keys.as_mut().ok_or_else(unkept)?;
        if !keys.are_there() {
            keys.renew()?;
        }
        let record = sealed(keys, whose, &own)?;
        store.journal(|journal| journal.keep_credential(&record))?;
        let shown = show(whose, &own);
        self.learn(whose, own);
        Ok(shown)
    }

    fn check_room(&self, (owner, name): (&str, &str), replaces: bool) -> Result<()> {
        let known = self.known();
        let conflict = |cause: String| {
            Error::new(ErrorKind::Conflict, "keep", shown_as((owner, name))).cause(cause)
        };
        if known.contains_key(&(owner.to_owned(), name.to_owned())) {
            let hint = "`posthaste credential add --replace` gives it other ones";
            return match replaces {
                true => Ok(()),
                false => Err(conflict("there is one of that name".to_owned()).hint(hint)),
            };
        }
        let owned = known.keys().filter(|(of, _)| of == owner).count();
        if owned >= OWNED_MAX || known.len() >= CREDENTIALS_MAX {
            let why = format!("an owner has up to {OWNED_MAX}, all together {CREDENTIALS_MAX}");
            return Err(conflict(why).hint("remove one that nobody needs"));
        }
        Ok(())
    }

    /// Removes a credential, or returns [`ErrorKind::NotFound`]. Blocking.
    pub(crate) fn remove(&self, store: &Store, owner: &str, name: &str) -> Result<()> {
        let _changing = self.keys();
        if !store.journal(|journal| journal.remove_credential(owner, name))? {
            return Err(unknown(owner, name));
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.remove(&(owner.to_owned(), name.to_owned()));
        Ok(())
    }

    /// Makes a new key, re-encrypts all credentials with it and returns their number. Blocking.
    ///
    /// # Errors
    /// Errors of the journal and of the key file. All credentials can still be opened then.
    pub(crate) fn rekey(&self, store: &Store) -> Result<u64> {
        let mut keys = self.keys();
        let keys = keys.as_mut().ok_or_else(unkept)?;
        keys.renew()?;
        let records: Vec<_> = self
            .known()
            .iter()
            .map(|((owner, name), own)| sealed(keys, (owner, name), own))
            .collect::<Result<_>>()?;
        store.journal(|journal| journal.keep_credentials(&records))?;
        keys.forget_older()?;
        Ok(records.len() as u64)
    }

    /// Returns the credentials of one owner, or of all owners if none is named.
    pub(crate) fn list(&self, owner: Option<&str>) -> Vec<api::Credential> {
        let known = self.known();
        let all = known.iter();
        let wanted = all.filter(|((of, _), _)| owner.is_none_or(|owner| owner == of));
        wanted
            .map(|((owner, name), own)| show((owner, name), own))
            .collect()
    }

    /// Returns an owner's credential of this name, or [`ErrorKind::NotFound`].
    pub(crate) fn find(&self, owner: &str, name: &str) -> Result<Arc<Own>> {
        let key = (owner.to_owned(), name.to_owned());
        let own = self.known().get(&key).cloned();
        own.ok_or_else(|| unknown(owner, name))
    }

    /// Seals the signature of an address, if it has one; this may make a key.
    pub(crate) fn seal(&self, owner: &str, address: &mut String) -> Result<()> {
        match &mut *self.address_keys() {
            Some(keys) => addresses::seal(keys, owner, address),
            None => Ok(()),
        }
    }

    /// Rewrites a user's address to the kept form: with `~` before it if it means the user's own
    /// credential, and with a sealed signature.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it has `~` without such a credential; those of making a key.
    pub(crate) fn claim(&self, owner: &str, address: &mut String) -> Result<()> {
        self.seal(owner, address)?;
        let Ok(location) = Location::parse(address.as_ref()) else {
            // Opening it reports the problem.
            return Ok(());
        };
        if let Some(name) = own_name(&location) {
            return self.find(owner, name).map(|_| ());
        }
        if let Location::Host {
            user: None, host, ..
        } = &location
            && self.find(owner, host).is_ok()
        {
            address.insert(0, OWN);
        }
        Ok(())
    }

    /// Returns the kept form of an address from FTS's clients, if the owner has a credential named
    /// after its host.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] if it does not lie below the address of that credential.
    pub(crate) fn of_host(&self, owner: &str, host: &str, address: &str) -> Result<Option<String>> {
        let Ok(own) = self.find(owner, host) else {
            return Ok(None);
        };
        let url = long_scheme(own.content.url.trim_end_matches('/'));
        let address = long_scheme(address);
        let rest = address.strip_prefix(&*url);
        let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with('/'));
        match rest {
            Some(rest) => Ok(Some(format!("{OWN}{host}:{rest}"))),
            None => Err(Error::new(ErrorKind::PermissionDenied, "open", address)
                .cause(format!(
                    "it does not lie below {url}, which {} opens",
                    shown_as((owner, host))
                ))
                .hint("give a credential of that name for the whole server, or remove it")),
        }
    }
}

/// Rights of a user: those on this machine, and the user's credentials elsewhere.
#[derive(Clone)]
pub(crate) struct Behalf {
    actor: Actor,
    owner: String,
    credentials: Arc<Credentials>,
}

impl Deref for Behalf {
    type Target = Actor;

    fn deref(&self) -> &Actor {
        &self.actor
    }
}

impl Behalf {
    pub(crate) fn new(actor: Actor, owner: &str, credentials: &Arc<Credentials>) -> Self {
        Self {
            actor,
            owner: owner.to_owned(),
            credentials: Arc::clone(credentials),
        }
    }

    /// Returns the owner of the requests; empty for nobody in particular.
    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    pub(crate) fn actor(&self) -> &Actor {
        &self.actor
    }

    /// Returns the access that opens a location on this behalf.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it means an own credential that does not exist.
    pub(crate) fn access(&self, access: &Access, location: &Location) -> Result<Access> {
        let mut access = access.acting(self.actor.clone());
        if !self.owner.is_empty() {
            access = access.reaching(self.credentials.reach.clone());
        }
        let Some(name) = own_name(location) else {
            return Ok(access);
        };
        let own = self.credentials.find(&self.owner, name)?;
        let known_as = format!("{}{OWN}{name}", self.owner);
        Ok(access.with_given(format!("{OWN}{name}"), known_as, own.profile.clone()))
    }

    /// Returns the original form of a kept address, to be opened and never recorded.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if its signature was sealed for another owner.
    pub(crate) fn given(&self, address: &str) -> Result<String> {
        match &*self.credentials.address_keys() {
            Some(keys) => addresses::open(keys, &self.owner, address),
            None => Ok(address.to_owned()),
        }
    }

    /// Rewrites an address with [`Credentials::claim`].
    pub(crate) fn claim(&self, address: &mut String) -> Result<()> {
        self.credentials.claim(&self.owner, address)
    }

    /// Returns the user's own credential that an address means, if any, as [`Self::access`] does.
    pub(crate) fn own(&self, address: &str) -> Result<Option<Arc<Own>>> {
        let location = Location::parse(address.as_ref())?;
        let name = own_name(&location);
        name.map(|name| self.credentials.find(&self.owner, name))
            .transpose()
    }
}

/// Returns the name of the own credential that a location means.
fn own_name(location: &Location) -> Option<&str> {
    match location {
        Location::Host {
            user: None, host, ..
        } => host.strip_prefix(OWN),
        Location::Host { user: Some(_), .. }
        | Location::Local(_)
        | Location::S3 { .. }
        | Location::Sftp { .. }
        | Location::Bucket { .. }
        | Location::Server(_)
        | Location::Plugin { .. } => None,
    }
}

/// Returns the address of an own credential's place.
pub(crate) fn address_in(name: &str) -> String {
    format!("{OWN}{name}:")
}

/// Returns whether a location means its owner's own credential.
pub(crate) fn is_own(location: &Location) -> bool {
    own_name(location).is_some()
}

/// Returns an address as the user wrote it, without the mark of an own credential.
pub(crate) fn unclaimed(address: &str) -> &str {
    address.strip_prefix(OWN).unwrap_or(address)
}

/// Returns an address that is unique to its owner: an own credential gets the owner before it.
pub(crate) fn apart(owner: &str, address: &str) -> String {
    match address.starts_with(OWN) {
        true => format!("{owner}{address}"),
        false => address.to_owned(),
    }
}

/// Returns an address with the longer of two equivalent schemes.
fn long_scheme(address: &str) -> std::borrow::Cow<'_, str> {
    match address.starts_with("dav") {
        true => format!("web{address}").into(),
        false => address.into(),
    }
}

fn check_name(owner: &str, name: &str) -> Result<()> {
    let is_plain = tokens::is_name(name) && !name.contains('@') && !name.starts_with('-');
    if is_plain && (owner.is_empty() || tokens::is_name(owner)) {
        return Ok(());
    }
    let shown = format!("credential {:.64}", name.escape_debug().to_string());
    Err(Error::new(ErrorKind::Invalid, "keep", shown)
        .cause("a name is up to 64 letters, digits, `-`, `_`, `.`, and begins with no `-`"))
}

fn sealed(keys: &Keys, (owner, name): (&str, &str), own: &Own) -> Result<CredentialRecord> {
    let text = serde_json::to_vec(&own.content)
        .map_err(|_| Error::new(ErrorKind::Other, "write", shown_as((owner, name))))?;
    Ok(CredentialRecord {
        owner: owner.to_owned(),
        name: name.to_owned(),
        sealed: keys.seal((owner, name), &text)?,
        created: own.created,
    })
}

fn show((owner, name): (&str, &str), own: &Own) -> api::Credential {
    api::Credential {
        name: name.to_owned(),
        owner: (!owner.is_empty()).then(|| owner.to_owned()),
        url: own.content.url.clone(),
        settings: own.content.settings.keys().cloned().collect(),
        created: render::moment(own.created),
    }
}

/// Returns the name of a credential for error messages.
fn shown_as((owner, name): (&str, &str)) -> String {
    match owner {
        "" => format!("credential {name}"),
        owner => format!("credential {name} of {owner}"),
    }
}

fn unknown(owner: &str, name: &str) -> Error {
    Error::new(ErrorKind::NotFound, "find", shown_as((owner, name)))
        .hint("`posthaste credential list` shows yours")
}

fn unkept() -> Error {
    Error::new(ErrorKind::Other, "keep", "a credential").cause("there is no place for its key")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials() -> Credentials {
        let credentials = Credentials::default();
        for (owner, name, url) in [
            ("alice", "archive", "s3://alice"),
            ("bob", "archive", "s3://bob"),
            ("bob", "dav.example.org", "webdavs://dav.example.org/bob/"),
        ] {
            let keys = match url.starts_with("s3") {
                true => ["access_key_id", "secret_access_key"],
                false => ["user", "password"],
            };
            let settings = keys.map(|key| (key.to_owned(), "x".to_owned()));
            let content = Content {
                url: url.to_owned(),
                settings: settings.into(),
            };
            let own = credentials.own(content, Timestamp::from_secs(1)).unwrap();
            credentials.learn((owner, name), own);
        }
        credentials
    }

    #[test]
    fn an_address_says_whose_credential_it_means() {
        let credentials = credentials();
        let claimed = |owner: &str, address: &str| {
            let mut address = address.to_owned();
            credentials.claim(owner, &mut address).map(|()| address)
        };
        assert_eq!(claimed("alice", "archive:run").unwrap(), "~archive:run");
        assert_eq!(claimed("alice", "~archive:run").unwrap(), "~archive:run");
        for (owner, address) in [
            ("carol", "archive:run"),
            ("alice", "other:run"),
            ("alice", "me@archive:run"),
            ("alice", "s3://archive/run"),
            ("alice", "/archive:run"),
        ] {
            assert_eq!(claimed(owner, address).unwrap(), address);
        }
        for (owner, address) in [
            ("carol", "~archive:run"),
            ("", "~archive:"),
            ("alice", "~x:y"),
        ] {
            let error = claimed(owner, address).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        }
        assert_eq!(apart("alice", "~archive:run"), "alice~archive:run");
        assert_eq!(apart("alice", "archive:run"), "archive:run");
    }

    #[test]
    fn an_address_of_a_server_lies_below_that_of_the_credential_or_is_refused() {
        let credentials = credentials();
        let of_host =
            |owner: &str, address: &str| credentials.of_host(owner, "dav.example.org", address);
        let known = of_host("bob", "davs://dav.example.org/bob/x").unwrap();
        assert_eq!(known.as_deref(), Some("~dav.example.org:/x"));
        assert_eq!(
            of_host("alice", "webdavs://dav.example.org/bob/x").unwrap(),
            None
        );
        for elsewhere in [
            "webdavs://dav.example.org/bobby",
            "webdav://dav.example.org/bob/x",
        ] {
            let error = of_host("bob", elsewhere).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        }
    }

    #[test]
    fn somebodys_credential_opens_their_place_and_nobody_elses() {
        let credentials = Arc::new(credentials());
        let access = Access::new(None, Vec::new());
        let resolved = |owner: &str| {
            let location = Location::parse("~archive:run".as_ref()).unwrap();
            let behalf = Behalf::new(Actor::oneself(), owner, &credentials);
            let access = behalf.access(&access, &location)?;
            access.resolve(location)
        };
        let s3 = |bucket: &str| Location::parse(format!("s3://{bucket}/run").as_ref()).unwrap();
        assert_eq!(resolved("alice").unwrap(), s3("alice"));
        assert_eq!(resolved("bob").unwrap(), s3("bob"));
        assert_eq!(resolved("carol").unwrap_err().kind(), ErrorKind::NotFound);
    }
}
