//! `posthaste offload`: submits a stage-out and reports whether it will be on time.

mod files_from;

use std::{process::ExitCode, time::Duration};

use clap::{Args, ValueEnum};
use posthaste_api as api;
use posthaste_core::contract::Method;
use posthaste_endpoint::{Error, ErrorKind, meant, nearest};
use posthaste_types::{Bytes, Code};

use crate::{
    answer,
    client::{ServiceArguments, ServiceClient},
    failure::{Failure, Outcome},
    keys::RecipientArguments,
    moment, output,
    stage_in::{self, absolute_address},
    watch,
    wishes::WishesArguments,
};

/// Interval between two looks at a request that is being scanned.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Submits a stage-out: DIR leaves this machine by a deadline, through depots or straight to an address
///
/// Says whether the deadline can be met; if not, the earliest one that can and what would buy it.
/// The service does the work: this command may end.
///
/// Examples:
///   posthaste offload /scratch/run7 --to home --deadline 10m --via a,b,c --code 2+1 --release when-safe
///   posthaste offload /scratch/run7 --to s3://lab/run7 --deadline 2h --release when-safe
///   posthaste offload s3://lab/run7 --to sftp://me@archive/run7 --deadline 1d
///   find . -name '*.h5' | posthaste offload . --files-from - --to home --deadline 2h --via a,b,c
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct OffloadArguments {
    #[command(flatten)]
    wish: WishArguments,
    /// Only the files below DIR that FILE names, - for standard input: a path from DIR a line; what begins with # or ; is
    /// a comment. Not with an address in --to
    #[arg(long, value_name = "FILE")]
    files_from: Option<String>,
    /// An id of your own: submitting it twice is submitting it once
    #[arg(long, value_name = "ID")]
    submission_id: Option<String>,
    /// Say what would be decided, and change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Stay, show progress, and end when it is safe
    #[arg(long)]
    wait: bool,
    /// Print the request as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Wishes of a stage-out.
#[derive(Debug, Args)]
pub struct WishArguments {
    /// The directory or file; where --to is an address, also an address
    #[arg(value_name = "DIR")]
    source: String,
    /// Where it goes: a name, or depots that each get all of it. Each is one more that may be lost. Or one address, where
    /// nothing is yet, like s3://bucket/prefix, sftp://user@host/path, NAME:path or /archive/path: its files lie there as
    /// they are, and go there straight, or over the depots of --via
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', required = true)]
    to: Vec<String>,
    /// Take only files that match; rclone's patterns, may be repeated
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,
    /// Leave out files that match; wins over --include. They stay where they are whatever --release says
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Profile of the service's user for the address, where that has no name of its own
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Time by which it must be safe: 10m, 2h30m, 3d, 2026-11-20T18:00 (local) or with a zone
    /// [default: --deliver-by]
    #[arg(
        long,
        value_name = "WHEN",
        allow_hyphen_values = true,
        required_unless_present = "deliver_by"
    )]
    deadline: Option<String>,
    /// Time by which all of it is to be at every destination, as with --deadline; each of them runs a relay. Or at its address
    /// [default: --deadline there]
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    deliver_by: Option<String>,
    /// Time at which the first file of DIR is to be purged, as with --deadline: it must be safe before that too
    /// [default: as the service's purge policy has it, if any]
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    purge_at: Option<String>,
    /// Depots that may hold it, in order of preference; where it goes to an address, until all of it is there
    #[arg(long, value_name = "DEPOT,…", value_delimiter = ',')]
    via: Vec<String>,
    /// Erasure code k+m: any m depots may be lost, destinations among them; with m = 0 chunks may go to destinations
    /// directly [default: one may be lost, k+1 = the depots; with one depot none may, 1+0]
    #[arg(long, value_name = "K+M")]
    code: Option<Code>,
    #[command(flatten)]
    recipients: RecipientArguments,
    /// Rule by which the source is removed
    #[arg(long, value_enum, default_value_t)]
    release: Release,
    /// Take it even if the deadline can't be met, and do what can be done
    #[arg(long)]
    best_effort: bool,
    /// Time for which depots keep it after the deadline, also once every destination has all of it [default: until then, 30
    /// days at most]
    #[arg(long, value_name = "TIME", value_parser = moment::parse_seconds)]
    keep: Option<u64>,
    /// Method that decides how many fragments go to a depot at once: auto, falcon, scc, mcc, promc,
    /// partial-second-order, full-second-order, c-order, or fixed:FRAGMENTS,1,1
    #[arg(long, value_name = "NAME", default_value_t)]
    optimizer: Method,
    #[command(flatten)]
    wishes: WishesArguments,
}

/// Rule by which the source may be removed.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Release {
    /// You keep it
    #[default]
    Never,
    /// Remove it as soon as every chunk survives the loss of any m depots, as --code says, wherever it lies; or all of it is at its address
    WhenSafe,
    /// The same, though owners, hard links, attributes or access lists of some file can't be kept
    Anyway,
}

/// Runs the command.
///
/// # Errors
/// Returns [`Exit::Refused`](crate::failure::Exit::Refused) if the mind refuses the request, and
/// the service's refusal otherwise.
pub async fn run(arguments: OffloadArguments) -> Outcome {
    let service = ServiceClient::open(&arguments.service)?;
    let submission_id = arguments.submission_id.clone();
    arguments.wish.refuse_slips(&service).await?;
    let new = arguments.wish.request(submission_id)?;
    let how = if arguments.dry_run {
        "?dry_run=true"
    } else {
        ""
    };
    let mut request: api::Request = match &arguments.files_from {
        None => service.post(&format!("/v1/requests{how}"), &new).await?,
        Some(file) => {
            let lines = files_from::lines(&new, file).await?;
            let path = format!("/v1/requests/named{how}");
            service.post_all_lines(&path, lines).await?
        }
    };
    let id = request.id.clone();
    while request.state == api::RequestState::Scanning {
        tokio::time::sleep(LOOK_EVERY).await;
        request = service.get_again(&format!("/v1/requests/{id}")).await?;
    }
    if matches!(
        request.state,
        api::RequestState::Refused | api::RequestState::Failed | api::RequestState::Cancelled
    ) {
        if arguments.json {
            output::json(&request);
        } else {
            let offers =
                answer::warnings(&request) + &answer::offers(&request, &arguments.wish.via);
            if !offers.is_empty() {
                output::line(offers.trim_end());
            }
        }
        let doing = format!("can't offload {}", request.source);
        return Err(Failure::of_request(&request, &doing));
    }
    if arguments.json && !arguments.wait {
        output::json(&request);
    } else if !arguments.json {
        let text = if request.stage_in.is_some() {
            stage_in::describe(&request, arguments.dry_run)
        } else {
            describe(&request, arguments.dry_run)
                + "\n"
                + &answer::forecast(&request)
                + &arguments.wish.unsurvived(&request)
                + &answer::warnings(&request)
        };
        output::line(text.trim_end());
        let offers = answer::offers(&request, &arguments.wish.via);
        if !offers.is_empty() {
            output::line(offers.trim_end());
        }
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

impl WishArguments {
    /// Returns the names of the depots that may hold the dataset.
    pub fn via(&self) -> &[String] {
        &self.via
    }

    /// Returns that no loss is survived, where that was not asked for but follows from there being one depot.
    pub fn unsurvived(&self, request: &api::Request) -> String {
        let is_lone = self.code.is_none() && request.code == Code::NONE.to_string();
        match is_lone && request.stage_in.is_none() {
            true => answer::row(
                "warning",
                "with one depot no loss is survived: name another in --via, and one may be lost",
            ),
            false => String::new(),
        }
    }

    /// Sees that it does not go without depots to what is only nearly the name of one: that is what is wrong with it then.
    ///
    /// # Errors
    /// The name that was meant.
    pub async fn refuse_slips(&self, service: &ServiceClient) -> Result<(), Failure> {
        if !self.via.is_empty() || self.is_straight() {
            return Ok(());
        }
        // Where nobody can be asked that no depots are named is wrong with it.
        let Ok(depots) = service.get::<Vec<api::Depot>>("/v1/depots").await else {
            return Ok(());
        };
        let names = || depots.iter().map(|depot| &*depot.name);
        let is_unknown = |to: &&String| !names().any(|name| name == to.as_str());
        let Some(to) = self.to.iter().find(is_unknown) else {
            return Ok(());
        };
        match nearest(to, names()) {
            None => Ok(()),
            Some(_) => Err(Error::new(ErrorKind::NotFound, "deliver to", to)
                .cause("no depot of that name is in the books")
                .hint(meant(to, names(), "`posthaste depot list` shows them"))
                .into()),
        }
    }

    /// Returns whether it goes to an address, which needs no depots.
    fn is_straight(&self) -> bool {
        let is_address = |to: &String| to.starts_with('/') || to.contains(':');
        self.to.iter().any(is_address)
    }

    /// The request as the service takes it.
    ///
    /// # Errors
    /// Fails for invalid names and moments.
    pub fn request(&self, submission_id: Option<String>) -> Result<api::NewRequest, Failure> {
        let source = absolute_address(&self.source)?;
        let is_straight = self.is_straight();
        if self.via.is_empty() && !is_straight {
            let what = "can't offload without depots: --via is missing";
            return Err(Failure::usage(format!(
                "{what} (`posthaste depot list` shows them; an address like s3://bucket/run7 needs none)"
            )));
        }
        let pinned = self.wishes.pinned().iter();
        let more = pinned.filter(|name| !self.via.contains(name)).count();
        let depots = u8::try_from(self.via.len() + more).unwrap_or(Code::FRAGMENTS_MAX);
        let spread = depots.saturating_sub(1).clamp(1, Code::FRAGMENTS_MAX);
        let code = match self.code {
            Some(code) => code.to_string(),
            None if is_straight && self.via.is_empty() => String::new(),
            None if depots == 1 => Code::NONE.to_string(),
            None => {
                let code = Code::new(spread, 1).map_err(anyhow::Error::from)?;
                code.to_string()
            }
        };
        Ok(api::NewRequest {
            source,
            only: Vec::new(),
            include: self.include.clone(),
            exclude: self.exclude.clone(),
            to: self.to.clone(),
            profile: self.profile.clone(),
            deadline: self
                .deadline
                .as_deref()
                .map(moment::parse_deadline)
                .transpose()?
                .map(|at| at.to_string()),
            deliver_by: self
                .deliver_by
                .as_deref()
                .map(|at| moment::parse_coming("delivery", at))
                .transpose()?
                .map(|at| at.to_string()),
            purge_at: self
                .purge_at
                .as_deref()
                .map(|at| moment::parse_coming("purge", at))
                .transpose()?
                .map(|at| at.to_string()),
            via: self.via.clone(),
            code,
            encrypt_for: self.recipients.resolve()?,
            release: match self.release {
                Release::Never => api::Release::Never,
                Release::WhenSafe => api::Release::WhenSafe,
                Release::Anyway => api::Release::Anyway,
            },
            best_effort: self.best_effort,
            keep_s: self.keep,
            submission_id,
            optimizer: Some(self.optimizer.to_string()),
            wishes: self.wishes.resolve(),
        })
    }
}

fn describe(request: &api::Request, dry_run: bool) -> String {
    let verb = answer::taken(request, dry_run);
    let risk = if request.at_risk { " (AT RISK)" } else { "" };
    let encrypted = match request.encrypt_for.len() {
        0 => String::new(),
        1 => ", encrypted for 1 recipient".into(),
        count => format!(", encrypted for {count} recipients"),
    };
    format!(
        "{verb}: {} in {}, code {}{encrypted}, deadline {}{risk}",
        Bytes::new(request.bytes),
        output::counted(request.files, "file"),
        request.code,
        moment::time_of_day(&request.deadline),
    )
}
