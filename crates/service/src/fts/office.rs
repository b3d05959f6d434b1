//! Accepts jobs, keeps them, ends them, and returns their states.

use std::collections::{BTreeSet, HashMap};

use axum::http::StatusCode;
use posthaste_core::contract::{ArrivalState, Input, Priority};
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_journal::{FtsFile, FtsJob, FtsState};
use posthaste_types::Timestamp;
use tokio::runtime::Handle;
use uuid::Uuid;

use super::{
    ask::{self, Asked, DELETION, Pair},
    state::{JobState, Kind, of_job},
};
use crate::{
    credentials::{Behalf, Credentials, query_of},
    driver::Centre,
    http::Desk,
    inbound::look::{has_profile, refuse_unknown_host},
    tokens::Caller,
};

/// Namespace for the ids of jobs that may be submitted twice, together with the caller's name.
/// Clients receive it.
pub(super) const BASE: Uuid = Uuid::from_u128(0x6f1c_5e0a_7b0e_4a57_9d6c_0f5a_3c1d_2b44);
/// Account of a job that has none.
const NOBODY: &str = "posthaste";
/// Reason shown for a job that a user ended.
const ENDED_BY_USER: &str = "Job canceled by the user";

/// Reason for a refusal, with its status.
#[derive(Debug)]
pub(super) struct Denial {
    pub(super) status: StatusCode,
    pub(super) message: String,
}

impl Denial {
    pub(super) fn bad(message: impl Into<String>) -> Self {
        let (status, message) = (StatusCode::BAD_REQUEST, message.into());
        Self { status, message }
    }
}

impl From<Error> for Denial {
    fn from(error: Error) -> Self {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "ErrorKind may grow; the rest is ours"
        )]
        let status = match error.kind() {
            ErrorKind::PermissionDenied => StatusCode::FORBIDDEN,
            ErrorKind::Invalid | ErrorKind::Unsupported => StatusCode::BAD_REQUEST,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Busy => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let message = error.to_string();
        Self { status, message }
    }
}

/// Job with its current state.
pub(super) struct Standing {
    pub(super) job: FtsJob,
    pub(super) asked: Asked,
    pub(super) files: Vec<Seen>,
    pub(super) state: JobState,
}

/// File with its current state.
pub(super) struct Seen {
    pub(super) file: FtsFile,
    pub(super) pair: Pair,
    /// Set if bytes of the file are moving.
    pub(super) moves: bool,
}

/// Returns a project's account: a virtual organisation in FTS's words.
pub(super) fn account(project: &str) -> &str {
    if project.is_empty() { NOBODY } else { project }
}

/// Returns an address as posthaste writes it, and the profile with the name of its host. If the
/// owner has a credential for it, returns the address with that instead. S3's host is no part of
/// the address here.
///
/// # Errors
/// Fails if profiles can't be read; [`ErrorKind::Invalid`] if a profile is needed and missing.
pub(super) fn opened_with(own: Option<&String>, address: &str) -> Result<(String, Option<String>)> {
    match own {
        Some(own) => Ok((own.clone(), None)),
        None => Openers::default().of(address),
    }
}

/// Hosts whose profiles were looked up: jobs name few hosts, thousands of times.
#[derive(Default)]
struct Openers {
    has_profile: HashMap<String, bool>,
    /// Servers known from profiles or credentials.
    known: BTreeSet<String>,
}

impl Openers {
    /// Fails for an address of unknown scheme or host.
    fn refuse_unknown(
        &mut self,
        address: &str,
        profile: Option<&String>,
        behalf: &Behalf,
    ) -> Result<()> {
        let server = server_of(address);
        if !self.known.contains(&server) {
            refuse_unknown_host(address, profile, behalf)?;
            self.known.insert(server);
        }
        Ok(())
    }

    /// Returns the result of [`opened_with`], with profiles looked up once per host.
    fn of(&mut self, address: &str) -> Result<(String, Option<String>)> {
        let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = host_of(authority);
        let is_one = match self.has_profile.get(host) {
            Some(is_one) => *is_one,
            None => {
                let is_one = has_profile(host)?;
                self.has_profile.insert(host.to_owned(), is_one);
                is_one
            }
        };
        let profile = is_one.then(|| host.to_owned());
        match (scheme, profile) {
            ("s3" | "s3s", Some(profile)) => Ok((format!("s3://{path}"), Some(profile))),
            ("s3s", None) => Err(Error::new(ErrorKind::Invalid, "open", address)
                .cause(format!("there is no profile with the name {host}"))
                .hint("an operator writes one, with the store's address and keys")),
            (_, profile) => Ok((address.to_owned(), profile)),
        }
    }
}

fn host_of(authority: &str) -> &str {
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, _)) => host,
        None => host.split_once(':').map_or(host, |(host, _)| host),
    }
}

/// Returns the server of an address, as FTS names it: without a port.
pub(super) fn server_of(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
    let authority = rest.split('/').next().unwrap_or(rest);
    format!("{scheme}://{}", host_of(authority))
}

/// Returns the error for a refused job.
fn refusal(message: String) -> Denial {
    let status = match message.as_str() {
        DELETION => StatusCode::METHOD_NOT_ALLOWED,
        _ => StatusCode::BAD_REQUEST,
    };
    Denial { status, message }
}

/// Records which places of a job are opened with the owner's own credentials.
fn claim(credentials: &Credentials, owner: &str, job: &mut ask::Job) -> Result<()> {
    for (_, pair) in &mut job.files {
        let own = |address: &str| {
            // A presigned URL is opened as it was given.
            if query_of(address).is_some() {
                return Ok(None);
            }
            let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
            let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
            let plain = match scheme {
                "s3" | "s3s" => format!("s3://{path}"),
                _ => address.to_owned(),
            };
            credentials.of_host(owner, host_of(authority), &plain)
        };
        pair.own_source = own(&pair.source)?;
        pair.own_destination = own(&pair.destination)?;
    }
    Ok(())
}

/// Seals the signatures of a job's addresses, before they are recorded.
fn seal(credentials: &Credentials, owner: &str, job: &mut ask::Job) -> Result<()> {
    for (_, pair) in &mut job.files {
        for address in [&mut pair.source, &mut pair.destination] {
            credentials.seal(owner, address)?;
        }
    }
    Ok(())
}

/// Checks that the caller may read from and write to all places of a job, and that these are valid
/// together.
fn check_places(caller: &Caller, behalf: &Behalf, job: &ask::Job) -> Result<(), Denial> {
    let mut openers = Openers::default();
    for (_, pair) in &job.files {
        if pair.own_source.is_none() {
            let (source, profile) = openers.of(&pair.source)?;
            match &profile {
                Some(host) => caller.opens_host("read from", &source, host)?,
                None => caller.reads(&source, None)?,
            }
            openers.refuse_unknown(&source, profile.as_ref(), behalf)?;
        }
        if pair.own_destination.is_none() {
            let (destination, profile) = openers.of(&pair.destination)?;
            match &profile {
                Some(host) => caller.opens_host("write to", &destination, host)?,
                None => caller.writes(&destination, None)?,
            }
            openers.refuse_unknown(&destination, profile.as_ref(), behalf)?;
        }
    }
    if job.asked.kind == Kind::Reuse {
        let servers = job
            .files
            .iter()
            .map(|(_, pair)| (server_of(&pair.source), server_of(&pair.destination)));
        if servers.collect::<BTreeSet<_>>().len() > 1 {
            return Err(Denial::bad(
                "Reuse jobs must only contain transfers for the same source and destination storage",
            ));
        }
    }
    Ok(())
}

/// Accepts a job and returns its id. Blocking.
pub(super) fn submit(desk: &Desk, caller: &Caller, body: Vec<u8>) -> Result<String, Denial> {
    let now = desk.centre.clock.now();
    let mut job = ask::read(&body, now).map_err(refusal)?;
    drop(body);
    let (mut owner, mut project) = (None, None);
    caller.claim(&mut owner, &mut project);
    let (owner, project) = (owner.unwrap_or_default(), project.unwrap_or_default());
    claim(&desk.centre.store.actors.credentials, &owner, &mut job)?;
    let actors = &desk.centre.store.actors;
    check_places(caller, &actors.elsewhere(&owner), &job)?;
    seal(&actors.credentials, &owner, &mut job)?;
    let id = match &job.sid {
        None => Uuid::new_v4(),
        Some(sid) => {
            let account = Uuid::new_v5(&BASE, account(&project).as_bytes());
            Uuid::new_v5(&account, sid.as_bytes())
        }
    };
    let record = FtsJob {
        id: id.to_string(),
        owner,
        project,
        asked: json_of(&job.asked)?,
        priority: job.priority,
        created: now,
        ended: None,
        is_cancelled: false,
    };
    let mut files = Vec::with_capacity(job.files.len());
    for (number, (place, pair)) in job.files.into_iter().enumerate() {
        let state = job.asked.kind.begins(number);
        files.push(FtsFile {
            id: 0,
            job: record.id.clone(),
            place,
            asked: json_of(&pair)?,
            deadline: job.deadline,
            priority: job.priority,
            state,
            is_settled: state == FtsState::NotUsed,
            request: None,
            attempts: 0,
            not_before: now,
            tried: "[]".into(),
            reason: String::new(),
            bytes: None,
            begun: None,
            ended: None,
        });
    }
    let store = &desk.centre.store;
    if !store.journal(|journal| journal.keep_fts_job(&record, &files))? {
        return Err(Denial {
            status: StatusCode::CONFLICT,
            message: "The sid provided by the user is duplicated".into(),
        });
    }
    desk.fts.told.notify_one();
    Ok(record.id)
}

fn json_of(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|cause| Error::new(ErrorKind::Other, "keep", "a job").cause(cause))
}

pub(super) fn asked_of(job: &FtsJob) -> Result<Asked> {
    serde_json::from_str(&job.asked).map_err(|cause| {
        Error::new(ErrorKind::Corrupt, "read", format!("job {}", job.id)).cause(cause)
    })
}

pub(super) fn pair_of(file: &FtsFile) -> Result<Pair> {
    serde_json::from_str(&file.asked).map_err(|cause| {
        Error::new(
            ErrorKind::Corrupt,
            "read",
            format!("a file of job {}", file.job),
        )
        .cause(cause)
    })
}

/// Returns the job of that id with its state, if there is one. Blocking.
pub(super) fn find(centre: &Centre, id: &str) -> Result<Option<Standing>> {
    let job = centre.store.journal(|journal| journal.fts_job(id))?;
    job.map(|job| look(centre, job)).transpose()
}

/// Returns a job with its files and their states. Blocking.
pub(super) fn look(centre: &Centre, job: FtsJob) -> Result<Standing> {
    let files = centre.store.journal(|journal| journal.fts_files(&job.id))?;
    let asked = asked_of(&job)?;
    let mut seen = Vec::with_capacity(files.len());
    for mut file in files {
        let pair = pair_of(&file)?;
        let moves = file.state == FtsState::Given && see(centre, &mut file);
        seen.push(Seen { file, pair, moves });
    }
    let state = if job.is_cancelled {
        JobState::Cancelled
    } else {
        let states = seen.iter().map(|seen| (seen.file.place, seen.file.state));
        of_job(asked.kind, states, seen.iter().any(|seen| seen.moves))
    };
    Ok(Standing {
        job,
        asked,
        files: seen,
        state,
    })
}

/// Returns whether bytes of a file with a request move, and notes since when.
fn see(centre: &Centre, file: &mut FtsFile) -> bool {
    let mind = centre.mind();
    let view = file.request.and_then(|request| mind.arrival(request));
    file.begun = view.as_ref().and_then(|view| view.begun_at);
    view.is_some_and(|view| match view.state {
        ArrivalState::Moving | ArrivalState::Landing => view.begun_at.is_some(),
        ArrivalState::Waiting
        | ArrivalState::Refused
        | ArrivalState::Arrived
        | ArrivalState::Released
        | ArrivalState::Cancelled
        | ArrivalState::Failed => false,
    })
}

/// Ends a job, or some of its files, unless it has ended, and returns its state. Blocking.
pub(super) fn cancel(
    desk: &Desk,
    job: FtsJob,
    is_meant: impl Fn(&FtsFile) -> bool,
) -> Result<Standing> {
    let _turn = desk.fts.turn();
    let mut standing = look(&desk.centre, job)?;
    if standing.state.is_final() {
        return Ok(standing);
    }
    let now = desk.centre.clock.now();
    let mut changed = Vec::new();
    for seen in &mut standing.files {
        let file = &mut seen.file;
        if is_open(file.state) && is_meant(file) {
            end(file, FtsState::Cancelled, ENDED_BY_USER, now);
            (file.is_settled, seen.moves) = (file.request.is_none(), false);
            changed.push(file.clone());
        }
    }
    let is_whole = standing.files.iter().all(|seen| !is_open(seen.file.state));
    if is_whole {
        (standing.job.is_cancelled, standing.job.ended) = (true, Some(now));
        standing.state = JobState::Cancelled;
    }
    let jobs = std::slice::from_ref(&standing.job);
    let store = &desk.centre.store;
    store.journal(|journal| journal.change_fts(jobs, &changed))?;
    desk.fts.told.notify_one();
    Ok(standing)
}

/// Converts FTS's priorities, which go from 1 to 5; 3 is the default.
pub(super) fn ours(priority: u8) -> Priority {
    Priority::new(i64::from(priority) - 3).unwrap_or_default()
}

/// Changes a job's priority, unless it has ended. Blocking.
pub(super) fn set_priority(desk: &Desk, job: FtsJob, priority: u8) -> Result<Standing> {
    let _turn = desk.fts.turn();
    let mut standing = look(&desk.centre, job)?;
    if standing.state.is_final() {
        return Ok(standing);
    }
    standing.job.priority = priority;
    let open = standing.files.iter_mut().map(|seen| &mut seen.file);
    let open = open.filter(|file| is_open(file.state));
    let changed: Vec<FtsFile> = open
        .map(|file| {
            file.priority = priority;
            file.clone()
        })
        .collect();
    let jobs = std::slice::from_ref(&standing.job);
    let store = &desk.centre.store;
    store.journal(|journal| journal.change_fts(jobs, &changed))?;
    for request in changed.iter().filter_map(|file| file.request) {
        let input = Input::PriorityMoved {
            request,
            priority: ours(priority),
        };
        Handle::current().block_on(desk.centre.put_down(input))?;
    }
    Ok(standing)
}

/// Returns whether a file may still change.
pub(super) fn is_open(state: FtsState) -> bool {
    matches!(
        state,
        FtsState::NotUsed | FtsState::Waiting | FtsState::Given
    )
}

/// Ends a file.
pub(super) fn end(file: &mut FtsFile, state: FtsState, reason: &str, now: Timestamp) {
    (file.state, file.ended) = (state, Some(now));
    reason.clone_into(&mut file.reason);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_no_ports() {
        for (address, server) in [
            ("https://a.example:8443/x", "https://a.example"),
            ("sftp://me@b:22/x", "sftp://b"),
            ("davs://[::1]:1/x", "davs://::1"),
            ("s3://bucket/key", "s3://bucket"),
        ] {
            assert_eq!(server_of(address), server);
        }
    }
}
