//! Makes requests for the files of jobs, follows them, and retries failures. All state is in the
//! journal, so it resumes after any end; memory has only how long files have made no progress.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_journal::{FtsFile, FtsJob, FtsState, OneFile, RequestRecord};
use posthaste_types::{RequestId, Timestamp};
use serde_json::{Value, json};

use super::{
    Fts,
    ask::{Asked, Replaces},
    office::{asked_of, end, opened_with, ours, pair_of},
    outcome::{Outcome, outcome},
    show,
    state::{Kind, of_job},
};
use crate::{driver::Centre, outbound, render, submit as submission};

/// Files with a request at once: each step of the mind examines all of them. The others wait, the
/// most urgent first.
const GIVEN_MAX: usize = 1000;
/// Files that are started, or ended, at once.
const ROUND_MAX: u32 = 256;
/// Interval between rounds while there is something to follow and nothing happens; and the least
/// interval.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);
const ROUND_APART: Duration = Duration::from_millis(100);
/// Longest time without progress while errors occur, unless its job sets one.
const PATIENCE: Duration = Duration::from_secs(600);
/// Delay until a file is retried whose owner's quota was full.
const ROOM_AGAIN: Duration = Duration::from_secs(5);
/// Time for which ended jobs are kept, and how many are forgotten at once.
const KEPT: Duration = Duration::from_secs(14 * 86_400);
const FORGOTTEN_AT_ONCE: u32 = 100;
/// Attempts remembered per file.
const TRIED_MAX: usize = 20;

const TOO_LONG: &str =
    "Job has been canceled because it stayed in the queue for too long (max-time-in-queue timeout)";

/// Runs until the service ends.
///
/// # Errors
/// The journal's.
pub(crate) async fn run(centre: Arc<Centre>, fts: Arc<Fts>) -> Result<()> {
    let mut clerk = Clerk {
        newest: centre.newest_event(),
        centre,
        fts,
        stalls: HashMap::new(),
        forgot_at: None,
    };
    loop {
        clerk.forget()?;
        let round = tokio::task::block_in_place(|| clerk.round())?;
        for request in round.cancel {
            clerk.centre.give_up(request).await?;
        }
        if round.is_busy {
            tokio::time::sleep(ROUND_APART).await;
            tokio::select! {
                () = clerk.fts.told.notified() => {}
                _ = clerk.newest.changed() => {}
                () = tokio::time::sleep(FOLLOW_EVERY) => {}
            }
        } else {
            // Retries wait for their time, and old jobs for theirs.
            tokio::select! {
                () = clerk.fts.told.notified() => {}
                () = tokio::time::sleep(FOLLOW_EVERY * 5) => {}
            }
        }
    }
}

struct Clerk {
    centre: Arc<Centre>,
    fts: Arc<Fts>,
    newest: tokio::sync::watch::Receiver<u64>,
    /// Files whose request reports errors: since when, and with how many chunks there.
    stalls: HashMap<u64, (Timestamp, u32)>,
    forgot_at: Option<Timestamp>,
}

/// Work that a round leaves.
struct Round {
    /// Set if there are requests to follow.
    is_busy: bool,
    /// Requests that are no longer wanted.
    cancel: Vec<RequestId>,
}

/// Changes made by a round.
#[derive(Default)]
struct Changes {
    files: BTreeMap<u64, FtsFile>,
    jobs: BTreeSet<String>,
}

impl Changes {
    fn add(&mut self, file: FtsFile) {
        self.jobs.insert(file.job.clone());
        self.files.insert(file.id, file);
    }
}

impl Clerk {
    /// Forgets jobs that ended long ago, from time to time.
    fn forget(&mut self) -> Result<()> {
        let now = self.centre.clock.now();
        if self
            .forgot_at
            .is_some_and(|at| now.since(at) < Duration::from_secs(60))
        {
            return Ok(());
        }
        self.forgot_at = Some(now);
        let before = Timestamp::from_micros(
            now.as_micros()
                .saturating_sub(u64::try_from(KEPT.as_micros()).unwrap_or(u64::MAX)),
        );
        let store = &self.centre.store;
        tokio::task::block_in_place(|| {
            store.journal(|journal| journal.forget_fts_jobs(before, FORGOTTEN_AT_ONCE))
        })?;
        Ok(())
    }

    /// Follows open requests, makes more, and records the changes.
    fn round(&mut self) -> Result<Round> {
        let fts = Arc::clone(&self.fts);
        let _turn = fts.turn();
        let now = self.centre.clock.now();
        let given = self
            .centre
            .store
            .journal(|journal| journal.fts_files_given())?;
        let (mut changes, mut jobs) = (Changes::default(), HashMap::new());
        let (mut under_way, mut cancel) = (0, Vec::new());
        for file in given {
            let asked = self.asked(&mut jobs, &file)?;
            let (state, settled) = (file.state, file.is_settled);
            let file = self.follow(file, &asked, now)?;
            under_way += usize::from(!file.is_settled);
            let is_unwanted = !file.is_settled && file.state != FtsState::Given;
            cancel.extend(file.request.filter(|_| is_unwanted));
            if (file.state, file.is_settled) == (state, settled) {
                continue;
            }
            // While its request may still write, no other goes to the same place.
            if file.is_settled {
                self.go_on_after(&file, &asked, &mut changes, now)?;
            }
            changes.add(file);
        }
        let room = GIVEN_MAX.saturating_sub(under_way);
        let most = u32::try_from(room).unwrap_or(ROUND_MAX).min(ROUND_MAX);
        let store = &self.centre.store;
        let waiting = store.journal(|journal| journal.fts_files_waiting(now, most))?;
        let is_busy = under_way + waiting.len() > 0;
        for file in waiting {
            if changes.files.contains_key(&file.id) {
                continue;
            }
            // An attempt that was given up may still write there.
            if let Some(before) = file.request
                && !matches!(
                    outcome(&self.centre, before)?,
                    Outcome::Done(_) | Outcome::Lost { .. }
                )
            {
                cancel.push(before);
                continue;
            }
            let (job, asked) = self.job(&mut jobs, &file)?;
            let Some(file) = self.give(file, &job, &asked, now)? else {
                break;
            };
            if file.is_settled {
                self.go_on_after(&file, &asked, &mut changes, now)?;
            }
            changes.add(file);
        }
        self.write_down(changes, now)?;
        Ok(Round { is_busy, cancel })
    }

    fn job(
        &self,
        jobs: &mut HashMap<String, (FtsJob, Arc<Asked>)>,
        file: &FtsFile,
    ) -> Result<(FtsJob, Arc<Asked>)> {
        if let Some(known) = jobs.get(&file.job) {
            return Ok(known.clone());
        }
        let job = self
            .centre
            .store
            .journal(|journal| journal.fts_job(&file.job))?;
        let job = job.ok_or_else(|| {
            Error::new(
                posthaste_endpoint::ErrorKind::Corrupt,
                "find",
                format!("job {}", file.job),
            )
        })?;
        let asked = Arc::new(asked_of(&job)?);
        jobs.insert(file.job.clone(), (job.clone(), Arc::clone(&asked)));
        Ok((job, asked))
    }

    fn asked(
        &self,
        jobs: &mut HashMap<String, (FtsJob, Arc<Asked>)>,
        file: &FtsFile,
    ) -> Result<Arc<Asked>> {
        Ok(self.job(jobs, file)?.1)
    }

    /// Returns the state of a file that has a request.
    fn follow(&mut self, mut file: FtsFile, asked: &Asked, now: Timestamp) -> Result<FtsFile> {
        let Some(request) = file.request else {
            return Ok(file);
        };
        let outcome = outcome(&self.centre, request)?;
        let is_given = file.state == FtsState::Given;
        match outcome {
            Outcome::Waits if is_given && is_overdue(asked, now) => {
                end(&mut file, FtsState::Cancelled, TOO_LONG, now);
            }
            Outcome::Waits => {}
            Outcome::Moves { chunks, begun } if is_given => {
                file.begun = begun;
                if let Some(reason) = self.gives_up(&file, request, chunks, asked, now) {
                    self.stalls.remove(&file.id);
                    self.fail(&mut file, asked, reason, now);
                    // Its request is ended before another one is made.
                    file.is_settled = false;
                }
            }
            Outcome::Moves { .. } => {}
            Outcome::Done(done) => {
                self.stalls.remove(&file.id);
                file.is_settled = true;
                if is_given {
                    (file.bytes, file.begun) = (done.bytes, done.begun);
                    end(&mut file, FtsState::Finished, "", now);
                }
            }
            Outcome::Lost { reason, is_refused } => {
                self.stalls.remove(&file.id);
                file.is_settled = true;
                if is_given && is_refused {
                    end(&mut file, FtsState::Failed, &reason, now);
                } else if is_given {
                    self.fail(&mut file, asked, reason, now);
                }
            }
        }
        Ok(file)
    }

    /// Returns why a moving file is given up, if it is: it can't succeed, or has made no progress
    /// for too long.
    fn gives_up(
        &mut self,
        file: &FtsFile,
        request: RequestId,
        chunks: u32,
        asked: &Asked,
        now: Timestamp,
    ) -> Option<String> {
        let complaint = self.centre.outgoing.complaints.of(request)?;
        if !complaint.may_pass {
            return Some(complaint.text);
        }
        let stall = self.stalls.entry(file.id).or_insert((now, chunks));
        if stall.1 != chunks {
            *stall = (now, chunks);
        }
        let patience = asked.timeout_s.map_or(PATIENCE, Duration::from_secs);
        (now.since(stall.0) >= patience).then_some(complaint.text)
    }

    /// Notes a failed attempt: the next one follows after a while, if one is left.
    fn fail(&self, file: &mut FtsFile, asked: &Asked, reason: String, now: Timestamp) {
        let mut tried: Vec<Value> = serde_json::from_str(&file.tried).unwrap_or_default();
        tried.push(json!({
            "attempt": file.attempts,
            "datetime": show::moment(now),
            "reason": reason,
        }));
        let too_many = tried.len().saturating_sub(TRIED_MAX);
        tried.drain(..too_many);
        file.tried = Value::Array(tried).to_string();
        if file.attempts > asked.retries {
            end(file, FtsState::Failed, &reason, now);
            return;
        }
        (file.state, file.is_settled) = (FtsState::Waiting, false);
        let again = now + Duration::from_secs(60 * asked.retry_delay_min);
        // A file with a shorter queue time ends in time.
        file.not_before = queue_until(asked).map_or(again, |until| again.min(until));
        file.reason = reason;
        file.begun = None;
    }

    /// Starts the next file of the job if that waited for this one.
    fn go_on_after(
        &self,
        file: &FtsFile,
        asked: &Asked,
        changes: &mut Changes,
        now: Timestamp,
    ) -> Result<()> {
        if !asked.kind.goes_on_after(file.state) {
            return Ok(());
        }
        let files = self
            .centre
            .store
            .journal(|journal| journal.fts_files(&file.job))?;
        let next = files
            .into_iter()
            .find(|next| next.state == FtsState::NotUsed && !changes.files.contains_key(&next.id));
        if let Some(mut next) = next {
            (next.state, next.is_settled, next.not_before) = (FtsState::Waiting, false, now);
            changes.add(next);
        }
        Ok(())
    }

    /// Makes a request for a file; returns none if there is no room now.
    fn give(
        &self,
        mut file: FtsFile,
        job: &FtsJob,
        asked: &Asked,
        now: Timestamp,
    ) -> Result<Option<FtsFile>> {
        if is_overdue(asked, now) {
            end(&mut file, FtsState::Cancelled, TOO_LONG, now);
            file.is_settled = true;
            return Ok(Some(file));
        }
        let owner = job.owner.as_str();
        let Ok(permit) = self.centre.scans.reserve(owner, "a file") else {
            return Ok(None);
        };
        match self.request(&file, job, asked) {
            Ok((record, is_new)) => {
                if is_new {
                    permit.send(record.id);
                }
                (file.request, file.state) = (Some(record.id), FtsState::Given);
                file.attempts += 1;
            }
            // Its owner's quota is full: it waits for its turn, and others have theirs.
            Err(error) if error.kind() == ErrorKind::Busy => {
                file.not_before = now + ROOM_AGAIN;
                file.reason = error.to_string();
            }
            Err(error) => {
                file.attempts += 1;
                file.is_settled = true;
                self.fail(&mut file, asked, error.to_string(), now);
            }
        }
        Ok(Some(file))
    }

    /// Returns the request of the next attempt at a file, and whether it is new: after a crash it
    /// may exist already.
    fn request(
        &self,
        file: &FtsFile,
        job: &FtsJob,
        asked: &Asked,
    ) -> Result<(RequestRecord, bool)> {
        let pair = pair_of(file)?;
        let (source, profile) = opened_with(pair.own_source.as_ref(), &pair.source)?;
        let (destination, into_profile) =
            opened_with(pair.own_destination.as_ref(), &pair.destination)?;
        let optional = |text: &String| (!text.is_empty()).then(|| text.clone());
        let new = api::NewRequest {
            source,
            only: Vec::new(),
            include: Vec::new(),
            exclude: Vec::new(),
            to: vec![destination.clone()],
            profile,
            deadline: Some(render::moment(file.deadline)),
            deliver_by: None,
            purge_at: None,
            via: Vec::new(),
            code: String::new(),
            encrypt_for: Vec::new(),
            release: api::Release::Never,
            best_effort: !asked.has_deadline,
            keep_s: None,
            submission_id: Some(format!("fts:{}:{}", file.id, file.attempts + 1)),
            optimizer: None,
            wishes: api::Wishes {
                priority: Some(ours(file.priority).to_string()),
                owner: optional(&job.owner),
                project: optional(&job.project),
                ..api::Wishes::default()
            },
        };
        if let Some(known) = submission::known(&self.centre, &new)? {
            return Ok((known, false));
        }
        let mut record = outbound::submit::check(&self.centre, &new, destination)?;
        let expected = pair.expected().ok().flatten();
        let wanted = outbound::Wanted {
            sum: expected.filter(|_| asked.verify != 'n'),
            // Zero means none to FTS's clients.
            bytes: Some(pair.bytes).filter(|bytes| *bytes > 0),
        };
        record.one_file = Some(OneFile {
            replaces: replaces(asked, file, self.is_last_hop(file, asked)?),
            profile: into_profile,
            verify: asked.verify != 'n' && wanted.sum.is_none(),
            checksum: wanted.to_text(),
        });
        Ok((submission::write_down(&self.centre, record, None)?, true))
    }

    fn is_last_hop(&self, file: &FtsFile, asked: &Asked) -> Result<bool> {
        if asked.kind != Kind::Hops {
            return Ok(true);
        }
        let store = &self.centre.store;
        let files = store.journal(|journal| journal.fts_files(&file.job))?;
        Ok(files.last().is_none_or(|last| last.id == file.id))
    }

    /// Records changes, and the jobs that ended with them.
    fn write_down(&self, changes: Changes, now: Timestamp) -> Result<()> {
        if changes.files.is_empty() {
            return Ok(());
        }
        let store = &self.centre.store;
        let mut ended = Vec::new();
        for id in &changes.jobs {
            let job = store.journal(|journal| journal.fts_job(id))?;
            let Some(job) = job.filter(|job| job.ended.is_none()) else {
                continue;
            };
            let files = store.journal(|journal| journal.fts_files(id))?;
            let states = files.iter().map(|file| {
                let changed = changes.files.get(&file.id).unwrap_or(file);
                (changed.place, changed.state)
            });
            if of_job(asked_of(&job)?.kind, states, false).is_final() {
                let ended_at = Some(now);
                ended.push(FtsJob {
                    ended: ended_at,
                    ..job
                });
            }
        }
        let files: Vec<FtsFile> = changes.files.into_values().collect();
        store.journal(|journal| journal.change_fts(&ended, &files))
    }
}

/// Returns whether no file of a job may begin any more.
fn is_overdue(asked: &Asked, now: Timestamp) -> bool {
    queue_until(asked).is_some_and(|until| until <= now)
}

fn queue_until(asked: &Asked) -> Option<Timestamp> {
    asked.queue_until_s.map(Timestamp::from_secs)
}

fn replaces(asked: &Asked, file: &FtsFile, is_last: bool) -> bool {
    match asked.replaces {
        Replaces::Never => false,
        Replaces::Always => true,
        Replaces::OnRetry => file.attempts > 0,
        Replaces::OnTheWay => !is_last,
    }
}
