//! Replaces settings of a running service: all are checked first, and if one is invalid none
//! changes.

use std::sync::{Arc, PoisonError, RwLock};

use posthaste_endpoint::Result;
use tokio::sync::{Mutex, mpsc};

use crate::{
    LendingOptions, Options, RestOptions, alarms::Teller, audit::Audit, choose_encoding,
    http::Desk, jobs::owner, oidc::Oidc, purges::Purges,
};

/// Setting that may be replaced while others use it.
#[derive(Debug, Default)]
pub(crate) struct Current<T>(RwLock<Arc<T>>);

impl<T> Current<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(RwLock::new(Arc::new(value)))
    }

    /// Returns the current value.
    pub(crate) fn get(&self) -> Arc<T> {
        let value = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&value)
    }

    pub(crate) fn set(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
    }
}

/// Handle that changes the settings of a running service.
#[derive(Clone)]
pub struct Reloader {
    desk: Desk,
    /// Replacements of the alarms.
    tellers: mpsc::Sender<Vec<Teller>>,
    /// Current options. Held while they are replaced.
    options: Arc<Mutex<Options>>,
}

/// Result of new settings, by key.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Reloaded {
    /// Keys that changed.
    pub changed: Vec<&'static str>,
    /// Keys that change only after a restart.
    pub restart: Vec<&'static str>,
}

/// Key, and whether it differs in two sets of settings.
type Pair<'a> = (&'static str, bool);

impl Reloader {
    pub(crate) fn new(desk: &Desk, tellers: mpsc::Sender<Vec<Teller>>, options: Options) -> Self {
        Self {
            desk: desk.clone(),
            tellers,
            options: Arc::new(Mutex::new(options)),
        }
    }

    /// Reports the initial settings to the mind.
    ///
    /// # Errors
    /// The journal's.
    pub(crate) async fn begin(&self) -> Result<()> {
        let now = self.options.lock().await;
        choose_encoding(&self.desk.centre, (now.encode, now.way_out)).await
    }

    /// Applies these options, as far as possible while the service runs.
    ///
    /// # Errors
    /// Invalid options: nothing has changed then. The journal's.
    pub async fn reload(&self, new: Options) -> Result<Reloaded> {
        let mut now = self.options.lock().await;
        let reloaded = Reloaded {
            changed: names(&changing(&now, &new)),
            restart: names(&lasting(&now, &new)),
        };
        // Steps that may fail come first.
        let tellers = new.alarms.iter().map(Teller::open);
        let tellers = tellers.collect::<Result<Vec<_>>>()?;
        let trusted = new.site.oidc.as_ref().map(Oidc::open).transpose()?;
        let (purges, scratch, audit) = tokio::task::block_in_place(|| -> Result<_> {
            let purges = Purges::open(new.purge_policy.as_deref())?;
            let scratch = owner::roots(&new.scratch)?;
            // The audit file is created if missing, so it comes last.
            let audit = new.audit.as_deref().map(Audit::open).transpose()?;
            Ok((purges, scratch, audit))
        })?;

        let desk = &self.desk;
        choose_encoding(&desk.centre, (new.encode, new.way_out)).await?;
        // The receiver ends with the service.
        let _ = self.tellers.send(tellers).await;
        desk.centre.purges.go_by(purges);
        desk.scratch.set(scratch);
        desk.centre.audit.set(audit);
        desk.centre.listings.resize(new.listing_cache.get());
        if let Some(outlook) = &desk.outlook {
            outlook.time(new.just_in_time);
        }
        if now.site.quotas != new.site.quotas {
            desk.centre.quotas.limit(new.site.quotas.clone());
        }
        if now.site.oidc != new.site.oidc {
            desk.logins.trust(trusted);
        }
        let Options {
            audit,
            listing_cache,
            encode,
            way_out,
            scratch,
            purge_policy,
            alarms,
            just_in_time,
            logs,
            site,
            // These stay as they were at the start.
            as_owners: _,
            as_root: _,
            allow_address: _,
            is_new: _,
            credentials_key: _,
            state: _,
            database: _,
            listen: _,
            fts_listen: _,
            behind_tls: _,
            lending: _,
            gateways: _,
            circuits: _,
            queue: _,
            slurmrestd: _,
        } = new;
        now.audit = audit;
        now.listing_cache = listing_cache;
        now.encode = encode;
        now.way_out = way_out;
        now.scratch = scratch;
        now.purge_policy = purge_policy;
        now.alarms = alarms;
        now.just_in_time = just_in_time;
        // The other fields need a restart.
        now.logs.level = logs.level;
        now.site = site;
        Ok(reloaded)
    }
}

/// Returns the keys that can change while a service runs, and whether they do.
fn changing(now: &Options, new: &Options) -> [Pair<'static>; 11] {
    [
        ("alarms", now.alarms != new.alarms),
        ("audit", now.audit != new.audit),
        ("encode", now.encode != new.encode),
        ("just_in_time", now.just_in_time != new.just_in_time),
        ("listing_cache", now.listing_cache != new.listing_cache),
        ("log_level", now.logs.level != new.logs.level),
        ("purge_policy", now.purge_policy != new.purge_policy),
        ("scratch", now.scratch != new.scratch),
        ("way_out", now.way_out != new.way_out),
        ("[oidc]", now.site.oidc != new.site.oidc),
        ("[[quota]]", now.site.quotas != new.site.quotas),
    ]
}

/// Keys that can't.
fn lasting(now: &Options, new: &Options) -> [Pair<'static>; 20] {
    let database = |options: &Options| options.database.as_ref().map(ToString::to_string);
    let lending = [now, new].map(|options| options.lending.as_ref());
    let is_other = |is_other: fn(&LendingOptions, &LendingOptions) -> bool| match lending {
        [Some(now), Some(new)] => is_other(now, new),
        _ => false,
    };
    let rest = [now, new].map(|options| options.slurmrestd.as_ref());
    let is_lending = lending.map(|lending| lending.map(|lending| lending.listen));
    [
        ("allow_address", now.allow_address != new.allow_address),
        ("as_owners", now.as_owners != new.as_owners),
        ("as_root", now.as_root != new.as_root),
        ("behind_tls", now.behind_tls != new.behind_tls),
        ("circuits", now.circuits != new.circuits),
        (
            "credentials_key",
            now.credentials_key != new.credentials_key,
        ),
        ("database", database(now) != database(new)),
        ("fts_listen", now.fts_listen != new.fts_listen),
        ("gateways", now.gateways != new.gateways),
        ("listen", now.listen != new.listen),
        ("log_format", now.logs.format != new.logs.format),
        ("queue", now.queue != new.queue),
        (
            "queue_ca_file",
            is_other_of(rest, |one| one.ca_file.as_ref()),
        ),
        (
            "queue_token_file",
            is_other_of(rest, |one| one.token_file.as_ref()),
        ),
        ("queue_url", is_other_of(rest, |one| Some(&one.url))),
        ("source_listen", is_lending[0] != is_lending[1]),
        ("source_rate", is_other(|now, new| now.rate != new.rate)),
        ("source_url", is_other(|now, new| now.url != new.url)),
        ("state", now.state != new.state),
        ("traces", now.logs.traces != new.logs.traces),
    ]
}

/// Returns whether an option of slurmrestd differs.
fn is_other_of<'a, T: PartialEq + 'a>(
    [now, new]: [Option<&'a RestOptions>; 2],
    of: impl Fn(&'a RestOptions) -> Option<&'a T>,
) -> bool {
    now.and_then(&of) != new.and_then(&of)
}

fn names(pairs: &[Pair<'static>]) -> Vec<&'static str> {
    let changed = pairs.iter().filter(|(_, is_other)| *is_other);
    changed.map(|(name, _)| *name).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use posthaste_core::contract::Encode;
    use posthaste_endpoint::gateway::Gateways;
    use posthaste_types::Bytes;

    use super::*;

    /// Returns the default options of a service.
    pub(crate) fn options(state: &Path) -> Options {
        Options {
            as_owners: false,
            as_root: false,
            allow_address: Vec::new(),
            is_new: false,
            credentials_key: None,
            audit: None,
            state: state.to_owned(),
            database: None,
            listen: "127.0.0.1:0".parse().unwrap(),
            fts_listen: None,
            behind_tls: false,
            lending: None,
            listing_cache: Bytes::mebi(1),
            encode: Encode::Centre,
            way_out: None,
            gateways: Gateways::default(),
            circuits: Vec::new(),
            scratch: Vec::new(),
            purge_policy: None,
            alarms: Vec::new(),
            queue: None,
            slurmrestd: None,
            just_in_time: false,
            logs: crate::Logs::default(),
            site: crate::Site::default(),
        }
    }

    #[test]
    fn it_is_documented_what_changes_while_a_service_runs() {
        let page = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/reference/configuration.md"
        );
        let page = std::fs::read_to_string(page).unwrap();
        let (_, page) = page.split_once("## [serve]").unwrap();
        let page = page.split("\n## ").next().unwrap();
        let says = |end: &str| {
            let rows = page.lines().filter(|row| row.ends_with(end));
            let keys = rows.filter_map(|row| row.split('`').nth(1));
            let mut keys: Vec<_> = keys.collect();
            keys.sort_unstable();
            keys
        };
        let options = options(Path::new("/nowhere"));
        let names = |pairs: &[Pair<'static>]| {
            let keys = pairs.iter().map(|(key, _)| *key);
            let mut keys: Vec<_> = keys.filter(|key| !key.starts_with('[')).collect();
            keys.sort_unstable();
            keys
        };
        assert_eq!(says("| changes |"), names(&changing(&options, &options)));
        assert_eq!(says("| restart |"), names(&lasting(&options, &options)));
    }
}
