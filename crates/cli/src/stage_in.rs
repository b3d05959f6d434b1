//! `posthaste stage-in`: asks for data that must be here by a deadline, and not before it is
//! needed.

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use posthaste_api as api;
use posthaste_core::contract::Priority;
use posthaste_endpoint::Location;
use posthaste_types::{ByteRate, Bytes};

use crate::{
    answer,
    client::{ServiceArguments, ServiceClient},
    failure::{Failure, Outcome},
    ls::progress::{QUIET_FOR, draw},
    moment, output,
    positional::take_last,
    watch,
    wishes::{AccountArguments, parse_dollars},
};

/// Interval between two looks at a request whose sources are being examined.
const LOOK_EVERY: Duration = Duration::from_millis(100);

const USAGE: &str = "posthaste stage-in [OPTIONS] --deadline <WHEN> <SOURCE>... <DIR>";

/// Asks for a stage-in: data from SOURCE is in DIR by a deadline, and not before it is needed
///
/// Of several sources comes what they hold together. Files of the same path and size are replicas: they
/// come from all that hold them at once, as much as each gives. DIR is not there yet; it appears when all of it is whole. Says when
/// that will be, or the earliest deadline that can be met. The service does the work: this command
/// may end.
///
/// With --not-before it comes just in time: it begins when waiting longer would endanger the deadline.
/// Without, it begins at once where nothing is more urgent. What comes too slowly for that gathers on the
/// depots of --via first, and comes from there.
#[derive(Debug, Args)]
#[command(override_usage = USAGE, after_help = "\
Examples:
  posthaste stage-in s3://archive/run7 /scratch/me/run7 --deadline 2h
  posthaste stage-in s3://archive/run7 sftp://me@mirror/run7 /scratch/me/run7 --deadline 2h
  posthaste stage-in /archive/mesh s3://lab/weather-2026 /scratch/me/input --deadline 2h
  posthaste stage-in archive:run7 /scratch/me/run7 --not-before 2026-11-22T22:00 --deadline 2026-11-22T23:00
  posthaste stage-in tape:run7 /scratch/me/run7 --not-before 22:00 --deadline 23:00 --via cache1,cache2
  posthaste stage-in cloud:run7 mirror:run7 /scratch/me/run7 --deadline 6h --budget 2.00
  posthaste stage-in https://data.example.org/mesh.h5 /scratch/me/mesh --deadline 30m --dry-run

Exit codes: 0 taken (with --wait: here in time); 10 late, 11 refused; others as everywhere.")]
pub struct StageInArguments {
    /// Where it can be read: paths, s3://bucket/prefix, sftp://user@host/path, https://…, NAME:path.
    /// The last one is the directory it becomes, on the service's machine
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<String>,
    /// The last of them.
    #[arg(skip)]
    destination: String,
    /// Time by which it must be there: 10m, 2h30m, 3d, 2026-11-20T18:00 (local) or with a zone
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    deadline: String,
    /// Since when it is welcome, written alike: before, it comes only as far as the deadline needs it
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    not_before: Option<String>,
    /// Depots near the centre on which it may wait until it is welcome, with commas between them
    #[arg(long, value_name = "DEPOTS", value_delimiter = ',')]
    via: Vec<String>,
    /// Priority when not all can be served in time: low, normal, high, urgent, or -9 to 9;
    /// promises to others are kept whatever it is
    #[arg(
        long,
        value_name = "PRIORITY",
        allow_hyphen_values = true,
        default_value_t
    )]
    priority: Priority,
    #[command(flatten)]
    account: AccountArguments,
    /// Most that is read for it in a second, like 200M
    #[arg(long, visible_alias = "bwlimit", value_name = "BYTES")]
    rate_max: Option<Bytes>,
    /// Most that reading its sources may cost in dollars, by the prices in their profiles: the cheapest give what
    /// there is time for, dearer ones the rest [default: any, as fast as it comes]
    #[arg(long, value_name = "USD", value_parser = parse_dollars, allow_negative_numbers = true)]
    budget: Option<f64>,
    /// Profile of the service's user, for sources without a name of their own
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Take it even if the deadline can't be met, and do what can be done
    #[arg(long)]
    best_effort: bool,
    /// An id of your own: submitting it twice is submitting it once
    #[arg(long, value_name = "ID")]
    submission_id: Option<String>,
    /// Say what would be decided, and change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Stay, show progress, and end when it is there
    #[arg(long)]
    wait: bool,
    /// Print the request as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Runs the command.
///
/// # Errors
/// Returns [`Exit::Refused`](crate::failure::Exit::Refused) if the mind refuses the request, and
/// the service's refusal otherwise.
pub async fn run(mut arguments: StageInArguments) -> Outcome {
    arguments.destination = take_last(&mut arguments.sources, USAGE)?;
    let new = arguments.wish()?;
    let service = ServiceClient::open(&arguments.service)?;
    let request = ask(&service, &new, arguments.dry_run).await?;
    let id = request.id.clone();
    if matches!(
        request.state,
        api::RequestState::Refused | api::RequestState::Failed | api::RequestState::Cancelled
    ) {
        return Err(refusal(&request, arguments.json));
    }
    if arguments.json && !arguments.wait {
        output::json(&request);
    } else if !arguments.json {
        output::line(describe(&request, arguments.dry_run).trim_end());
    }
    if arguments.wait && !arguments.dry_run {
        let request = watch::until_settled(&service, &id, true).await?;
        if arguments.json {
            output::json(&request);
        }
        return watch::outcome_of(&request);
    }
    Ok(ExitCode::SUCCESS)
}

/// Submits the stage-in, or asks for its forecast, and waits until its sources have been examined.
///
/// # Errors
/// Returns the service's refusal to examine it.
pub async fn ask(
    service: &ServiceClient,
    new: &api::NewStageIn,
    dry_run: bool,
) -> Result<api::Request, Failure> {
    let path = if dry_run {
        "/v1/stage-ins?dry_run=true"
    } else {
        "/v1/stage-ins"
    };
    let mut request: api::Request = service.post(path, new).await?;
    let (mut waited, is_shown) = (Duration::ZERO, io::stderr().is_terminal());
    while request.state == api::RequestState::Scanning {
        tokio::time::sleep(LOOK_EVERY).await;
        waited += LOOK_EVERY;
        if is_shown && waited >= QUIET_FOR {
            let seconds = moment::show_seconds(waited.as_secs_f64());
            draw(&format!(
                "looking at {} for {seconds}",
                new.sources.join(" and ")
            ));
        }
        request = service
            .get_again(&format!("/v1/requests/{}", request.id))
            .await?;
    }
    if is_shown && waited >= QUIET_FOR {
        draw("");
    }
    Ok(request)
}

fn refusal(request: &api::Request, json: bool) -> Failure {
    if json {
        output::json(request);
    } else {
        let offers = answer::warnings(request) + &answer::offers(request, &[]);
        if !offers.is_empty() {
            output::line(offers.trim_end());
        }
    }
    Failure::of_request(request, &format!("can't stage in {}", request.to))
}

impl StageInArguments {
    fn wish(&self) -> Result<api::NewStageIn, Failure> {
        let not_before = self.not_before.as_deref();
        let not_before =
            not_before.map(|at| moment::parse_coming("moment since when it is welcome", at));
        let not_before = not_before.transpose()?;
        let is_normal = self.priority == Priority::default();
        Ok(api::NewStageIn {
            owner: self.account.owner.clone(),
            project: self.account.project.clone(),
            sources: self
                .sources
                .iter()
                .map(|source| absolute_address(source))
                .collect::<Result<_, _>>()?,
            to: absolute(&self.destination)?,
            deadline: moment::parse_deadline_after(&self.deadline, not_before)?.to_string(),
            not_before: not_before.map(|at| at.to_string()),
            via: self.via.clone(),
            priority: (!is_normal).then(|| self.priority.to_string()),
            rate_bytes_per_s_max: self.rate_max.map(Bytes::get),
            budget_usd: self.budget,
            profile: self.profile.clone(),
            best_effort: self.best_effort,
            submission_id: self.submission_id.clone(),
        })
    }
}

/// Makes an address valid in any directory: paths become absolute.
///
/// # Errors
/// Fails for an invalid address, and a path that is not UTF-8.
pub fn absolute_address(text: &str) -> Result<String, Failure> {
    if let Location::Local(path) = Location::parse(std::ffi::OsStr::new(text))? {
        absolute(&path.to_string_lossy())
    } else {
        Ok(text.to_owned())
    }
}

fn absolute(text: &str) -> Result<String, Failure> {
    let path = std::path::absolute(text)
        .map_err(|cause| Failure::usage(format!("can't use the path {text}: {cause}")))?;
    // Compares path components, without a slash at the end.
    let path: std::path::PathBuf = path.components().collect();
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| Failure::usage(format!("can't use the path {text}: it is not UTF-8")))
}

/// Formats the answer for people.
pub fn describe(request: &api::Request, dry_run: bool) -> String {
    let verb = answer::taken(request, dry_run);
    let risk = if request.at_risk { " (AT RISK)" } else { "" };
    let mut text = format!(
        "{verb}: {} in {} to {}, deadline {}{risk}\n",
        Bytes::new(request.bytes),
        output::counted(request.files, "file"),
        request.to,
        moment::time_of_day(&request.deadline),
    );
    let Some(stage_in) = &request.stage_in else {
        return text;
    };
    if let Some(finish) = &request.finish {
        let place = if stage_in.goes_out { "there" } else { "here" };
        text += &answer::row(place, &answer::finish(request, finish));
    }
    if let (Some(at), Some(begin_by)) = (&stage_in.not_before, &stage_in.begin_by) {
        text += &answer::row(
            "begins",
            &format!(
                "by {}, for it is not welcome before {}",
                moment::time_of_day(begin_by),
                moment::time_of_day(at)
            ),
        );
    }
    text += &answer::reading(request);
    text += &answer::warnings(request);
    text += &places(request, stage_in);
    if let Some(binding) = &stage_in.binding {
        let names = binding.sources.join(" and ");
        let last = format!(
            "{} that only {names} holds",
            Bytes::new(binding.missing_bytes)
        );
        text += &answer::row("last", &last);
    }
    text
}

/// Describes the sources, and where data may wait.
fn places(request: &api::Request, stage_in: &api::StageIn) -> String {
    let mut text = String::new();
    for source in stage_in.sources.iter().filter(|source| !source.near) {
        let holds = match (source.holds_bytes, source.alone_bytes) {
            (holds, _) if holds == request.bytes => String::new(),
            (holds, alone) => format!(
                " ({} of it, {} only there)",
                Bytes::new(holds),
                Bytes::new(alone)
            ),
        };
        let row = if stage_in.goes_out { "path" } else { "from" };
        text += &answer::row(
            row,
            &format!(
                "{}{holds}, {} as likely as not, {} nine times in ten at least",
                source.name,
                ByteRate::new(source.rate_p50_bytes_per_s),
                ByteRate::new(source.rate_p10_bytes_per_s)
            ),
        );
    }
    for source in stage_in.sources.iter().filter(|source| source.near) {
        let waits = format!("{}, where it may wait until it is welcome", source.name);
        text += &answer::row("via", &waits);
    }
    text
}
