//! When the site's purge takes what jobs leave: by the rules of a policy, asked of their files when they are sent off and
//! again and again while they are not safe, so that a read, a write or another rule moves their deadlines.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, File},
    io::Read,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::tz::TimeZone;
use posthaste_batch::purge::{self, Language, POLICY_BYTES_MAX, Policy, World, scan::Root, site};
use posthaste_core::contract::{Input, RequestState};
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_journal::RequestRecord;
use posthaste_types::{RequestId, Timestamp};

use crate::http::Desk;

/// Between two looks whether the policy changed, or files are to be looked at again.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// Files are looked at again so long after they were: that costs a look at each.
const AGAIN_AFTER: Duration = Duration::from_secs(3600);
/// What should be gone already and is not gets this long: it goes as fast as it can.
const OVERDUE: Duration = Duration::from_secs(600);
/// A purge that moved by less than this did not move: what fills a file system is never even.
const MOVED_MIN: Duration = Duration::from_secs(60);

/// When something goes, and why, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Foreseen {
    pub(crate) at: Option<Timestamp>,
    pub(crate) rule: String,
}

/// What tells whether a file changed: when, and how long it is.
type Stamp = (i64, i64, u64);

/// Sees that a file has rules of a purge.
///
/// # Errors
/// [`ErrorKind::Invalid`] for rules that are none, and the operating system's.
pub fn check_purge_policy(file: &Path) -> Result<()> {
    Purges::open(Some(file)).map(drop)
}

/// The rules of the site's purge.
#[derive(Debug, Default)]
pub(crate) struct Purges(Mutex<Rules>);

/// Their file, and what was read there.
#[derive(Debug, Default)]
struct Rules {
    file: Option<PathBuf>,
    read: Option<(Stamp, Arc<Policy>)>,
}

impl Purges {
    /// Rules that are read now, and again when their file changed; none without a file.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for rules that are none, and the operating system's.
    pub(crate) fn open(file: Option<&Path>) -> Result<Self> {
        let purges = Self::default();
        purges.rules().file = file.map(Path::to_owned);
        purges.policy()?;
        Ok(purges)
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes by the rules of others from now on.
    pub(crate) fn go_by(&self, others: Self) {
        let others = others.0.into_inner();
        *self.rules() = others.unwrap_or_else(PoisonError::into_inner);
    }

    /// The rules as they are now; none where the site has none.
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
        // Comments of sites are written in any encoding.
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

    /// When the first file of a source goes, or of those named in it; none where nobody knows any rules. Looks at every
    /// file.
    ///
    /// # Errors
    /// As [`Purges::open`], and when the source can't be looked at.
    pub(crate) fn foresee(
        &self,
        source: &Path,
        only: &[String],
        now: Timestamp,
    ) -> Result<Option<Foreseen>> {
        let Some((_, policy, file)) = self.policy()? else {
            return Ok(None);
        };
        let failed = |cause| Error::io("look at", source.display().to_string(), cause);
        let (directory, named) = match (source.is_dir(), source.parent(), source.file_name()) {
            (false, Some(parent), Some(name)) if only.is_empty() => {
                (parent, vec![name.to_string_lossy().into_owned()])
            }
            _ => (source, only.to_vec()),
        };
        let root = Root::open(directory).map_err(failed)?;
        let now_s = i64::try_from(now.as_micros() / 1_000_000).unwrap_or(i64::MAX);
        let mut world = World::at(now_s, TimeZone::system());
        world.fills = root.fill(now_s).into_iter().collect();
        world.listed = site::listed(&policy, root.path());
        let coming = purge::first(&policy, &world, directory, &named).map_err(failed)?;
        Ok(Some(match coming {
            None => Foreseen {
                at: None,
                rule: format!("by no rule of {}", file.display()),
            },
            Some(coming) => {
                let at_s = u64::try_from(coming.at_s).unwrap_or(0);
                let rule = policy.rules.get(coming.rule);
                let rule = rule.map_or_else(String::new, purge::Rule::explain);
                let path = Path::new(OsStr::from_bytes(&coming.path)).display();
                Foreseen {
                    at: Some(Timestamp::from_secs(at_s).max(now + OVERDUE)),
                    rule: format!("{path}, by {rule} of {}", file.display()),
                }
            }
        }))
    }
}

/// By which rules a request was looked at, when, and what was foreseen; nothing of one that no job left.
struct Seen {
    stamp: Stamp,
    at: std::time::Instant,
    foreseen: Option<Foreseen>,
}

/// Looks again and again until the service ends; at nothing where there are no rules.
///
/// # Errors
/// The journal's.
pub(crate) async fn look_on(desk: Desk) -> Result<()> {
    let (mut seen, mut said) = (BTreeMap::new(), String::new());
    loop {
        let told = tokio::task::block_in_place(|| news(&desk, &mut seen));
        match told {
            Ok(told) => {
                said.clear();
                for input in told {
                    desk.centre.tell(input).await?;
                }
            }
            // A policy that is being written is none for a moment: what was foreseen stands.
            Err(error) if error.to_string() != said => {
                said = error.to_string();
                tracing::warn!("{said}");
            }
            Err(_) => {}
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What is new of all that jobs leave and that is not gone from scratch.
fn news(desk: &Desk, seen: &mut BTreeMap<RequestId, Seen>) -> Result<Vec<Input>> {
    let Some((stamp, ..)) = desk.purges.policy()? else {
        return Ok(Vec::new());
    };
    let live: BTreeMap<RequestId, Option<Timestamp>> = {
        let mind = desk.centre.mind();
        let live = mind
            .requests()
            .filter(|view| matches!(view.state, RequestState::Moving | RequestState::Safe));
        live.map(|view| (view.request, view.purge_at)).collect()
    };
    seen.retain(|request, _| live.contains_key(request));
    let mut told = Vec::new();
    for (id, purge_at) in live {
        let is_new = seen.get(&id).is_none_or(|seen| {
            seen.stamp != stamp || crate::monotonic().duration_since(seen.at) >= AGAIN_AFTER
        });
        if !is_new {
            continue;
        }
        let before = seen.remove(&id).and_then(|seen| seen.foreseen);
        let foreseen = match foresee_of(desk, id)? {
            Some(foreseen) => {
                if let Some(Foreseen { at, rule }) = moved(before.as_ref(), purge_at, &foreseen) {
                    let (request, purge_at) = (id, at);
                    told.push(Input::PurgeForeseen {
                        request,
                        purge_at,
                        rule,
                    });
                }
                Some(foreseen)
            }
            None => before,
        };
        let at = crate::monotonic();
        let now = Seen {
            stamp,
            at,
            foreseen,
        };
        seen.insert(id, now);
    }
    Ok(told)
}

/// What is foreseen of what a job left; none of other requests, nor where its files can't be looked at.
///
/// # Errors
/// The journal's.
fn foresee_of(desk: &Desk, id: RequestId) -> Result<Option<Foreseen>> {
    let record = desk.centre.store.request(id)?;
    if !is_of_job(&record) {
        return Ok(None);
    }
    let source = Path::new(OsStr::from_bytes(&record.source));
    let now = desk.centre.clock.now();
    let foreseen = desk.purges.foresee(source, &record.only, now);
    // It may be on its way out.
    Ok(foreseen.unwrap_or_else(|error| {
        tracing::warn!(request = %id, "{error}");
        None
    }))
}

/// What is to be told of what is foreseen now: nothing where neither when nor why is new.
fn moved(
    before: Option<&Foreseen>,
    purge_at: Option<Timestamp>,
    now: &Foreseen,
) -> Option<Foreseen> {
    let at = match (purge_at, now.at) {
        // It has not moved.
        (Some(known), Some(at)) if known.max(at).since(known.min(at)) < MOVED_MIN => Some(known),
        (_, at) => at,
    };
    let is_told = before.is_some_and(|before| before.rule == now.rule) && at == purge_at;
    (!is_told).then(|| Foreseen {
        at,
        rule: now.rule.clone(),
    })
}

/// Whether it takes away what a job left.
pub(crate) fn is_of_job(record: &RequestRecord) -> bool {
    let submission = record.submission.as_deref();
    record.stage_in.is_none()
        && submission.is_some_and(|name| name.starts_with("job-") && name.contains("-out-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    const DAY: Duration = Duration::from_secs(86_400);

    /// The moment the clock of the machine shows, in whole seconds.
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
        let at = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
            purges.foresee(&source, &only, now).unwrap().unwrap()
        };
        let foreseen = at(&[]);
        assert_eq!(foreseen.at, Some(now + DAY * 20));
        assert_eq!(at(&["out.h5"]), foreseen);
        assert_eq!(
            purges
                .foresee(&source.join("out.h5"), &[], now)
                .unwrap()
                .unwrap(),
            foreseen
        );
        for told in ["run/out.h5", "rule `old` (line 1)", "purge.toml"] {
            assert!(foreseen.rule.contains(told), "{}", foreseen.rule);
        }
        // Somebody wrote to it; then the site changed its rules, and it should be gone already.
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
        let error = purges.foresee(&source, &[], now).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(
            Purges::open(None)
                .unwrap()
                .foresee(&source, &[], now)
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn only_what_is_new_is_told() {
        let at = |secs: u64| Some(Timestamp::from_secs(secs));
        let foreseen = |at, rule: &str| Foreseen {
            at,
            rule: rule.into(),
        };
        let now = foreseen(at(1000), "old");
        // At first the rule is, though when is known.
        assert_eq!(moved(None, at(1000), &now), Some(now.clone()));
        assert_eq!(moved(Some(&now), at(1000), &now), None);
        let shifted = foreseen(at(1030), "old");
        assert_eq!(
            moved(Some(&now), at(1000), &shifted),
            None,
            "by less than a minute"
        );
        let later = foreseen(at(2000), "old");
        assert_eq!(moved(Some(&now), at(1000), &later), Some(later.clone()));
        let other = foreseen(at(1000), "other");
        assert_eq!(moved(Some(&now), at(1000), &other), Some(other.clone()));
        let never = foreseen(None, "none");
        assert_eq!(moved(Some(&now), at(1000), &never), Some(never.clone()));
    }
}
