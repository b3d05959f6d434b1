//! Service's answer to a script's directives. Asking changes nothing.

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use posthaste_api as api;
use posthaste_batch::script::{Deadline, StageIn, Wanted};
use posthaste_types::Bytes;
use rustix::process::{getgid, getuid};
use serde_json::{Value, json};

use crate::{
    client::{ServiceArguments, ServiceClient},
    failure::{Exit, Failure},
    moment, output,
    slurm::only_directives,
    stage_in,
};

/// Default deadline of an input, as the service has it for a job.
const WANTED_WITHIN: Duration = Duration::from_secs(3600);

/// Result of asking for an input.
pub(super) enum Answer {
    /// Accepted, with its facts.
    Taken(Box<api::Request>),
    /// Refused now, with the reason.
    Refused(String),
    /// Not asked, with the reason.
    NotAsked(&'static str),
}

/// Answers for the inputs, by line.
pub(super) type Answers = BTreeMap<usize, Answer>;

/// Asks whether a job with this script would be accepted, and when each of its inputs would be
/// ready.
///
/// # Errors
/// Returns the service's refusal of the script, with the line, and the errors of asking it.
pub(super) async fn ask(
    arguments: &ServiceArguments,
    script: &str,
    wanted: &Wanted,
) -> Result<Answers, Failure> {
    let service = ServiceClient::open(arguments)?;
    let new = api::NewJob {
        script: only_directives(script),
        uid: getuid().as_raw(),
        gid: getgid().as_raw(),
        held: true,
    };
    service.say("/v1/jobs/check", &new).await?;
    let mut answers = Answers::new();
    for one in &wanted.stage_ins {
        answers.insert(one.line, ask_one(&service, one).await?);
    }
    Ok(answers)
}

async fn ask_one(service: &ServiceClient, one: &StageIn) -> Result<Answer, Failure> {
    if [&one.source, &one.destination]
        .iter()
        .any(|text| text.contains('%'))
    {
        return Ok(Answer::NotAsked(
            "not asked for here: the scheduler's symbols have no meaning before there is a job",
        ));
    }
    let new = api::NewStageIn {
        owner: None,
        project: None,
        sources: vec![one.source.clone()],
        to: one.destination.clone(),
        deadline: deadline(one.deadline).to_string(),
        via: one.via.clone(),
        // A job waits for it anyway.
        best_effort: true,
        ..api::NewStageIn::default()
    };
    match stage_in::ask(service, &new, true).await {
        Ok(request)
            if matches!(
                request.state,
                api::RequestState::Refused | api::RequestState::Failed
            ) =>
        {
            let why = request.reason.as_deref();
            Ok(Answer::Refused(
                why.unwrap_or("no reason was given").to_owned(),
            ))
        }
        Ok(request) => Ok(Answer::Taken(Box::new(request))),
        // The script may be right although the source does not answer or something is in the way.
        Err(failure) if !failure.may_pass() => Ok(Answer::Refused(failure.to_string())),
        Err(failure) => Err(failure),
    }
}

fn deadline(said: Option<Deadline>) -> Timestamp {
    let now = Timestamp::now();
    let soon = now.saturating_add(SignedDuration::try_from(WANTED_WITHIN).unwrap_or_default());
    said.and_then(|said| said.moment(now, &TimeZone::system()))
        .unwrap_or_else(|| soon.unwrap_or(Timestamp::MAX))
}

impl Answer {
    /// Formats the answer for people.
    pub fn told(&self) -> String {
        match self {
            Self::NotAsked(why) => (*why).to_owned(),
            Self::Refused(why) => format!("can't come now: {why}"),
            Self::Taken(request) => {
                let finish = request.finish.as_ref().map_or_else(
                    || "nobody knows yet when it would be here".to_owned(),
                    |finish| {
                        format!(
                            "here as likely as not by {}, nine times in ten by {}",
                            moment::time_of_day(&finish.p50),
                            moment::time_of_day(&finish.p90)
                        )
                    },
                );
                let late = if is_late(request) { " (LATE)" } else { "" };
                let (bytes, files) = (Bytes::new(request.bytes), request.files);
                format!("{bytes} in {files} files, {finish}{late}")
            }
        }
    }

    /// Formats the answer for programs.
    pub fn to_json(&self) -> Value {
        match self {
            Self::NotAsked(why) => json!({"state": "not-asked", "reason": why}),
            Self::Refused(why) => json!({"state": "refused", "reason": why}),
            Self::Taken(request) => json!({
                "state": "taken", "bytes": request.bytes, "files": request.files,
                "finish": request.finish, "late": is_late(request),
            }),
        }
    }
}

/// Returns whether the forecast (p90) is after the deadline.
fn is_late(request: &api::Request) -> bool {
    request.slack_s.is_some_and(|slack| slack < 0.0)
}

/// Returns the reasons for which a job that needs all inputs can't start: the last one, after the
/// others were printed.
pub(super) fn refusal(wanted: &Wanted, answers: &Answers) -> Option<Failure> {
    let needed = wanted.stage_ins.iter().filter(|one| !one.is_optional);
    let refused = needed.filter_map(|one| match answers.get(&one.line)? {
        Answer::Refused(why) => {
            let line = one.line;
            Some(format!(
                "line {line}: a job would wait for its input: {why}"
            ))
        }
        Answer::Taken(_) | Answer::NotAsked(_) => None,
    });
    let mut lines: Vec<String> = refused.collect();
    let last = lines.pop()?;
    lines.iter().for_each(|line| output::complain(line));
    Some(Failure::new(Exit::Refused, last))
}
