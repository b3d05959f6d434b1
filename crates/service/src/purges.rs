//! Rules of the site's purge, and the forecast of a request's first purged file.

mod looks;

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, File},
    io::Read,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use jiff::tz::TimeZone;
use posthaste_batch::purge::{self, Language, POLICY_BYTES_MAX, Policy, World, scan::Root, site};
use posthaste_endpoint::{Actor, Error, ErrorKind, Result};
use posthaste_types::{RequestId, Timestamp};

pub(crate) use looks::{bound, look_on, rehearsed, said};

/// Time for files whose purge is overdue: they leave as fast as possible.
const OVERDUE: Duration = Duration::from_secs(600);

/// Forecast purge of a file, with the reason for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Foreseen {
    pub(crate) at: Option<Timestamp>,
    pub(crate) rule: String,
}

/// Attributes that show whether a file changed: its times and its size.
type Stamp = (i64, i64, u64);

/// Checks that a file has valid purge rules.
///
/// # Errors
/// [`ErrorKind::Invalid`] for invalid rules, and the operating system's.
pub fn check_purge_policy(file: &Path) -> Result<()> {
    Purges::open(Some(file)).map(drop)
}

/// Rules of the site's purge, and their forecasts.
#[derive(Debug, Default)]
pub(crate) struct Purges {
    rules: Mutex<Rules>,
    seen: Mutex<BTreeMap<RequestId, Seen>>,
    /// Held while a purge time is reported, so that the user's own comes last.
    telling: tokio::sync::Mutex<()>,
}

/// Last look at a request's files: rules, time and forecast. The forecast is none if no rule binds
/// them, or they could not be examined.
#[derive(Debug)]
struct Seen {
    stamp: Stamp,
    at: Instant,
    foreseen: Option<Foreseen>,
    /// Reported rule.
    told: Option<String>,
}

/// File of the rules, and its last parsed contents.
#[derive(Debug, Default)]
struct Rules {
    file: Option<PathBuf>,
    read: Option<(Stamp, Arc<Policy>)>,
}

impl Purges {
    /// Reads rules now, and again when their file changed; none without a file.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for invalid rules, and the operating system's.
    pub(crate) fn open(file: Option<&Path>) -> Result<Self> {
        let purges = Self::default();
        purges.rules().file = file.map(Path::to_owned);
        purges.policy()?;
        Ok(purges)
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self) -> MutexGuard<'_, BTreeMap<RequestId, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the site has any policy.
    fn are_any(&self) -> bool {
        self.rules().file.is_some()
    }

    /// Replaces the rules.
    pub(crate) fn go_by(&self, others: Self) {
        let others = others.rules.into_inner();
        *self.rules() = others.unwrap_or_else(PoisonError::into_inner);
    }

    /// Returns the current rules; none if the site has none.
    fn policy(&self) -> Result<Option<(Stamp, Arc<Policy>, PathBuf)>> {
        let mut rules = self.rules();
        let Some(file) = rules.file.clone() else {
            return Ok(None);
        };
        let failed = |cause| Error::io("read the purge policy", file.display().to_string(), cause);
        let found = fs::metadata(&file).map_err(failed)?;
        let stamp = (found.mtime(), found.mtime_nsec(), found.len());
        let read = rules.read.as_ref().filter(|(then, _)| *then == stamp);
        if let Some((then, policy)) = read {
            return Ok(Some((*then, Arc::clone(policy), file)));
        }
        let mut bytes = Vec::new();
        let opened = File::open(&file).map_err(failed)?;
        let limited = opened.take(POLICY_BYTES_MAX + 1).read_to_end(&mut bytes);
        limited.map_err(failed)?;
        let invalid = |why: String| {
            let shown = file.display().to_string();
            Error::new(ErrorKind::Invalid, "read the purge policy", shown).cause(why)
        };
        if bytes.len() as u64 > POLICY_BYTES_MAX {
            return Err(invalid("it is larger than 4 MiB".into()));
        }
        // Sites write comments in any encoding.
        let text = String::from_utf8_lossy(&bytes);
        let policy = purge::read(&text, Language::of(&text), &site::number_of);
        let policy = policy.map_err(|complaints| {
            let first = complaints.first().map(ToString::to_string);
            invalid(first.unwrap_or_else(|| "it is no policy".into()))
        })?;
        let policy = Arc::new(policy);
        rules.read = Some((stamp, Arc::clone(&policy)));
        Ok(Some((stamp, policy, file)))
    }

    /// Returns when the first file of a source is purged, or of its named files, and the rules for
    /// that. None if there are no rules. Examines every file with its owner's rights.
    ///
    /// # Errors
    /// Errors of [`Purges::open`], and of examining the source.
    fn foresee(
        &self,
        (source, only): (&Path, &[impl AsRef<[u8]>]),
        actor: &Actor,
        now: Timestamp,
    ) -> Result<Option<(Stamp, Foreseen)>> {
        let Some((stamp, policy, file)) = self.policy()? else {
            return Ok(None);
        };
        let failed = |cause| Error::io("look at", source.display().to_string(), cause);
        let now_s = i64::try_from(now.as_micros() / 1_000_000).unwrap_or(i64::MAX);
        let mut world = World::at(now_s, TimeZone::system());
        let root = actor.run(|| Root::open(source).map_err(failed))?;
        world.fills = root.fill(now_s).into_iter().collect();
        world.listed = site::listed(&policy, root.path());
        let first = || purge::first(&policy, &world, source, only).map_err(failed);
        let Some(coming) = actor.run(first)? else {
            let rule = format!("by no rule of {}", file.display());
            return Ok(Some((stamp, Foreseen { at: None, rule })));
        };
        let at_s = u64::try_from(coming.at_s).unwrap_or(0);
        let rule = policy.rules.get(coming.rule);
        let rule = rule.map_or_else(String::new, purge::Rule::explain);
        let path = Path::new(OsStr::from_bytes(&coming.path)).display();
        let foreseen = Foreseen {
            at: Some(Timestamp::from_secs(at_s).max(now + OVERDUE)),
            rule: format!("{path}, by {rule} of {}", file.display()),
        };
        Ok(Some((stamp, foreseen)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    const DAY: Duration = Duration::from_secs(86_400);

    /// Returns the machine's time, in whole seconds.
    fn now() -> Timestamp {
        let now = crate::clock::Clock::default().now();
        Timestamp::from_secs(now.as_micros() / 1_000_000)
    }

    fn rule(days: u64) -> String {
        format!("[[rule]]\nname = \"old\"\nclock = \"mtime\"\ndays = {days}\n")
    }

    #[test]
    fn files_and_rules_move_what_is_foreseen_and_the_rule_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let (policy, source) = (folder.path().join("purge.toml"), folder.path().join("run"));
        fs::create_dir(&source).unwrap();
        let file = File::create(source.join("out.h5")).unwrap();
        let now = now();
        let touch = |days: u32| {
            let then = SystemTime::UNIX_EPOCH + Duration::from_micros(now.as_micros()) - DAY * days;
            file.set_times(fs::FileTimes::new().set_modified(then))
                .unwrap();
        };
        touch(10);
        fs::write(&policy, rule(30)).unwrap();
        let purges = Purges::open(Some(&policy)).unwrap();
        let own = Actor::oneself();
        let foresee = |only: &[&str]| purges.foresee((&source, only), &own, now);
        let at = |only: &[&str]| foresee(only).unwrap().unwrap().1;
        let foreseen = at(&[]);
        assert_eq!(foreseen.at, Some(now + DAY * 20));
        assert_eq!(at(&["out.h5"]), foreseen);
        for told in ["run/out.h5", "rule `old` (line 1)", "purge.toml"] {
            assert!(foreseen.rule.contains(told), "{}", foreseen.rule);
        }
        // The file was written to; then the site changed its rules, and the purge is overdue.
        touch(1);
        assert_eq!(at(&[]).at, Some(now + DAY * 29));
        fs::write(&policy, rule(1) + "# from this week on\n").unwrap();
        assert_eq!(at(&[]).at, Some(now + OVERDUE));
        fs::write(
            &policy,
            "[[rule]]\nname = \"none\"\npaths = [\"/elsewhere/**\"]\nclock = \"mtime\"\ndays = 1\n",
        )
        .unwrap();
        assert_eq!(at(&[]).at, None);
        fs::write(&policy, "[[rule]]\nnonsense = 1\n").unwrap();
        assert_eq!(foresee(&[]).unwrap_err().kind(), ErrorKind::Invalid);
        purges.go_by(Purges::open(None).unwrap());
        assert!(foresee(&[]).unwrap().is_none());
    }
}
