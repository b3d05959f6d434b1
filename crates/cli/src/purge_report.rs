//! `posthaste purge-report`: files that a purge will remove, when, and which ones to save first.

mod elsewhere;
mod policy;
mod show;
mod single;

use std::{
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use jiff::{Timestamp, ToSpan, tz::TimeZone};
use posthaste_batch::purge::{
    Account, World,
    scan::{self, Cache, NewCache, NoCache, Options, Root, Scan, Tally},
};
use posthaste_endpoint::Error;

use crate::{
    client::ServiceArguments,
    config,
    failure::{Exit, Failure, Outcome},
    ls::progress::{grouped, telling},
    moment,
};
use elsewhere::Elsewhere;
use policy::Rules;

/// Longest period of a report, in days: later removals are reported together.
const DAYS_MAX: u64 = 3_660;

/// Directories read at once, at most: each is a thread.
const AT_ONCE_MAX: u16 = 256;

/// Says what the site's purge will remove from a directory, and when; or when a file goes
///
/// Reads the times of all files below PATH and the rules of the purge: ~/.config/posthaste/purge.toml or --policy, a file of ours (TOML),
/// of Robinhood or of Spectrum Scale (docs/reference/purge-policy.md). Tells what goes on which day, what of it is safe elsewhere by a
/// running service, and which directories to offload first. Nothing is written below PATH, no file is opened, no access time
/// changes, and no file is touched to save it. A second run looks only at what may go soon.
///
/// Examples:
///   posthaste purge-report /scratch/me
///   posthaste purge-report /scratch/me --within 3d --depth 2
///   posthaste purge-report /scratch/me/run7/out.h5
///   posthaste purge-report /gpfs/fs1 --policy site.policy --summary --json
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct ReportArguments {
    /// The directory, or one file
    path: PathBuf,
    /// The rules of the purge [default: purge.toml beside profiles.toml]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Time within which files that go are told by the day
    #[arg(long, value_name = "TIME", default_value = "14d", value_parser = moment::parse_seconds)]
    within: u64,
    /// Tell directories apart that lie this deep below PATH
    #[arg(long, value_name = "N", default_value_t = 1)]
    depth: usize,
    /// Directories to tell at most; 0 for all
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Leave directories out
    #[arg(long)]
    summary: bool,
    /// Look at every file, whatever is remembered
    #[arg(long)]
    full: bool,
    /// Remember in this file what was found [default: one for PATH below ~/.local/state/posthaste/purge]
    #[arg(long, value_name = "FILE")]
    cache: Option<PathBuf>,
    /// Remember nothing
    #[arg(long, conflicts_with = "cache")]
    no_cache: bool,
    /// Directories looked at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=i64::from(AT_ONCE_MAX)))]
    at_once: u16,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Content of a report.
struct Report<'a> {
    root: &'a Root,
    rules: &'a Rules,
    world: &'a World,
    account: &'a Account,
    tally: &'a Tally,
    elsewhere: &'a Elsewhere,
    until_s: i64,
    midnights: &'a [i64],
    /// True if an earlier scan was remembered.
    is_incremental: bool,
}

/// Runs the command.
///
/// # Errors
/// Returns a usage failure if the policy is wrong or missing, and the errors of reading the
/// directory.
pub fn run(arguments: &ReportArguments) -> Outcome {
    let shown = arguments.path.display().to_string();
    let rules = rules(arguments, &shown)?;
    if arguments.path.is_file() {
        return single::report(arguments, &rules, &shown);
    }
    let root = Root::open(&arguments.path).map_err(|cause| at_root(&shown, cause))?;
    let now_s = Timestamp::now().as_second();
    let path = cache_path(arguments, &root)?;
    let cache = path.as_deref().and_then(|path| open_cache(path, &root));
    let fill = root.fill(now_s).map_err(|cause| at_root(&shown, cause))?;
    let known = cache.as_ref().map_or(&[][..], Cache::fills);
    let mut world = World::at(now_s, TimeZone::system());
    world.fills = scan::fills_with(known, fill);
    world.listed = rules.listed(root.path())?;
    let elsewhere = Elsewhere::ask(&arguments.service, root.path())?;
    let until_s = now_s.saturating_add(i64::try_from(arguments.within).unwrap_or(i64::MAX));
    let midnights = midnights(&world, until_s)?;
    let new = path.as_deref().and_then(begin_cache);
    let cache = cache.filter(|_| !arguments.full);
    let tally = Tally::default();
    let scan = Scan {
        root: &root,
        policy: &rules.policy,
        world: &world,
        options: Options {
            at_once: usize::from(arguments.at_once),
            until_s,
        },
        cache: cache.as_ref(),
        new_cache: new.as_ref(),
        is_safe: &|path, facts| elsewhere.has(path, facts),
        tally: &tally,
    };
    let empty = Account::new(midnights.clone(), arguments.depth);
    let told = || {
        format!(
            "{} files in {} directories, {} of them looked at",
            grouped(tally.files()),
            grouped(tally.directories()),
            grouped(tally.looked_at())
        )
    };
    let found = telling(told, || scan.run(&empty));
    let (account, failures) = found.map_err(|cause| at_root(&shown, cause))?;
    if let Some(new) = new {
        remember(new, &root, &world);
    }
    tell_failures(&failures, &tally);
    let report = Report {
        root: &root,
        rules: &rules,
        world: &world,
        account: &account,
        tally: &tally,
        elsewhere: &elsewhere,
        until_s,
        midnights: &midnights,
        is_incremental: cache.is_some(),
    };
    remark_on(&report);
    show::print(&report, arguments);
    Ok(match tally.failures() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(Exit::LessSerious as u8),
    })
}

fn rules(arguments: &ReportArguments, shown: &str) -> Result<Rules, Failure> {
    if arguments.within > DAYS_MAX * 86_400 {
        let most = format!("can't look further ahead than {DAYS_MAX} days (--within)");
        return Err(Failure::usage(most));
    }
    let rules = Rules::read(arguments.policy.as_deref(), shown)?;
    for remark in &rules.policy.remarks {
        tell(&format!(
            "{}: line {}: {}",
            rules.shown, remark.line, remark.text
        ));
    }
    Ok(rules)
}

fn remember(new: NewCache, root: &Root, world: &World) {
    if let Err(cause) = new.finish(root.path(), &world.fills) {
        tell(&format!(
            "can't remember what was found: {cause} (the next run takes as long as this one)"
        ));
    }
}

fn tell_failures(failures: &[scan::Failure], tally: &Tally) {
    for failure in failures {
        let path = String::from_utf8_lossy(&failure.path).into_owned();
        let error = Error::io("look at", path, io::Error::from(failure.cause.kind()));
        tell(&error.to_string());
    }
    let untold = tally
        .failures()
        .saturating_sub(scan::FAILURES_TOLD_MAX as u64);
    if untold > 0 {
        tell(&format!("and {untold} more could not be looked at"));
    }
}

fn tell(text: &str) {
    crate::output::note!(
        "posthaste: {}",
        text.replace(posthaste_types::is_obeyed, "\u{fffd}")
    );
}

fn at_root(shown: &str, cause: io::Error) -> Failure {
    let missing = matches!(
        cause.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    );
    let error = Error::io("scan", shown.to_owned(), cause);
    match missing {
        true => Failure::new(
            Exit::DirectoryNotFound,
            format!("{error} (name a directory or a file)"),
        ),
        false => error.into(),
    }
}

/// Prints remarks on what may mislead the report's reader.
fn remark_on(report: &Report<'_>) {
    let account = report.account;
    if account.total.files > 0 && account.stays == account.total {
        tell(&format!(
            "no rule of {} takes anything here (paths of rules are compared with {}, which has no symbolic links in it)",
            report.rules.shown,
            String::from_utf8_lossy(report.root.path())
        ));
    }
    if account.unborn > 0 && report.rules.policy.asks_birth() {
        tell(&format!(
            "{} files do not say when they were made: the earliest of their other times counts",
            grouped(account.unborn)
        ));
    }
    if report.tally.elsewhere() > 0 {
        tell(&format!(
            "{} directories of other file systems are left out (report on each by its own path)",
            report.tally.elsewhere()
        ));
    }
}

/// Returns the file that remembers the scan, never inside the tree.
fn cache_path(arguments: &ReportArguments, root: &Root) -> Result<Option<PathBuf>, Failure> {
    if arguments.no_cache {
        return Ok(None);
    }
    let path = arguments.cache.clone().unwrap_or_else(|| {
        let name = blake3::hash(root.path()).to_hex();
        let folder = config::state_directory().join("purge");
        folder.join(format!("{}.cache", &name.as_str()[..32]))
    });
    let own = real(&path);
    let lies_in_it = own.as_os_str().as_bytes().strip_prefix(root.path());
    let lies_in_it = lies_in_it.is_some_and(|rest| root.path() == b"/" || rest.starts_with(b"/"));
    match (lies_in_it, &arguments.cache) {
        (false, _) => Ok(Some(path)),
        (true, None) => {
            tell(&format!(
                "nothing is remembered, since {} lies in what is scanned (name another place with --cache)",
                path.display()
            ));
            Ok(None)
        }
        (true, Some(_)) => Err(Failure::usage(format!(
            "can't remember in {}: it lies in what is scanned (name a file elsewhere)",
            path.display()
        ))),
    }
}

/// Resolves symbolic links of a path, as far as it exists.
fn real(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for there in path.ancestors() {
        if let (Ok(found), Ok(rest)) = (there.canonicalize(), path.strip_prefix(there)) {
            return found.join(rest);
        }
    }
    path
}

fn open_cache(path: &Path, root: &Root) -> Option<Cache> {
    let why = match Cache::open(path, root.path()) {
        Ok(cache) => return Some(cache),
        Err(NoCache::Missing) => return None,
        Err(NoCache::Unreadable(cause)) => cause.to_string(),
        Err(NoCache::Wrong(why)) => why.to_owned(),
    };
    tell(&format!(
        "what {} remembers is not believed: {why} (everything is looked at)",
        path.display()
    ));
    None
}

fn begin_cache(path: &Path) -> Option<NewCache> {
    match NewCache::begin(path) {
        Ok(new) => Some(new),
        Err(cause) => {
            let why = if cause.kind() == io::ErrorKind::WouldBlock {
                "another report writes it just now".to_owned()
            } else {
                cause.to_string()
            };
            tell(&format!("can't remember in {}: {why}", path.display()));
            None
        }
    }
}

/// Returns the ends of the days until a moment, by this machine's clock.
fn midnights(world: &World, until_s: i64) -> Result<Vec<i64>, Failure> {
    let now = Timestamp::from_second(world.now_s).map_err(anyhow::Error::from)?;
    let mut day = now.to_zoned(world.zone.clone());
    let mut ends = Vec::new();
    while ends.last().is_none_or(|end| *end <= until_s) {
        let next = day.tomorrow().and_then(|next| next.start_of_day());
        day = next.map_err(anyhow::Error::from)?;
        ends.push(day.timestamp().as_second());
    }
    Ok(ends)
}

/// Returns the date of a day by its end.
fn date_of(end_s: i64, zone: &TimeZone) -> String {
    let end = Timestamp::from_second(end_s).unwrap_or(Timestamp::MAX);
    let last = end.checked_sub(1.second()).unwrap_or(end);
    last.to_zoned(zone.clone()).date().to_string()
}
