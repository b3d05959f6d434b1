//! `posthaste cp`: copies files and trees, without any server.

mod begun;
mod ends;
mod habits;
pub(crate) mod history;
mod limit;
mod losses;
pub(crate) mod one;
mod pipe;
mod screen;
mod summary;

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::{Args, ValueEnum};
use posthaste_endpoint::{
    Access, ErrorKind, Unkept,
    peer::{Notices, StartOptions},
    posix::DraftRules,
};
use posthaste_engine::copy::{self, Ending, Filter, Limit, Links, Options, Progress, Throttle};
use posthaste_plan::tuner::{Method, Setting};
use posthaste_types::Bytes;

use crate::{
    failure::{Exit, Failure, Outcome, exit_for},
    ports::PortRange,
    positional::take_last,
    through,
};
use begun::Begun;
use ends::Ends;
pub use habits::instead_of;
use limit::Limit as Bandwidth;
use losses::{Losses, Places};
use screen::{CurrentScreen, Screen};

const USAGE: &str = "posthaste cp [OPTIONS] <SRC>... <DST>";

/// Copies files and trees between local paths, other hosts, object stores and file servers.
///
/// Others are reached over SSH (user@host:path), as S3-compatible stores, Azure Blob Storage, Google Cloud Storage, SFTP, FTP,
/// WebDAV and web servers (which are only read from), or over plug-ins: `posthaste endpoints` lists them.
///
/// A source file onto a destination that is no directory becomes that file; a source directory
/// onto a destination that does not exist becomes that directory. When the destination is a
/// directory, ends with a slash, or several sources are given, each source goes into it under its
/// own name. A source directory written with a trailing slash gives its content instead of itself,
/// as with rsync.
///
/// Files whose size and modification time agree are left alone. A killed copy, run again,
/// continues in the middle of large files.
#[derive(Args, Debug)]
#[command(override_usage = USAGE, after_help = "\
Examples:
  posthaste cp run-7/ s3://bucket/run-7
  posthaste cp results/ me@dtn.example.org:/data/run-7     starts posthaste there over SSH
  posthaste cp --gateways gateways.toml big.h5 me@dtn.example.org:    data through the gateways that lead there")]
pub struct CopyArguments {
    /// Sources: paths, addresses such as user@host:path or s3://bucket/prefix; - is standard input.
    /// The last one is where it goes
    #[arg(required = true, value_name = "SRC")]
    sources: Vec<OsString>,
    /// The last of them.
    #[arg(skip)]
    destination: OsString,
    /// Copy directories with all that is in them, as is always done
    #[arg(short = 'r', short_alias = 'R', long, overrides_with = "recursive")]
    recursive: bool,
    /// Keep modes and modification times, as is always done, and say with exit code 6 if the destination refuses any
    #[arg(short = 'p', overrides_with = "preserve")]
    preserve: bool,
    /// The same; with more than mode,timestamps as -a
    #[arg(long = "preserve", value_name = "LIST", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    preserve_list: Option<String>,
    /// Copy into this directory, which is named first
    #[arg(short = 't', long, value_name = "DIR")]
    target_directory: Option<OsString>,
    /// Keep all that can be kept, and say at the end what can't: owners, hard links, extended attributes (exit code 6)
    #[arg(short = 'a', long, overrides_with = "archive")]
    archive: bool,
    /// Leave a file alone that is as new at the destination, or newer
    #[arg(short = 'u', long, overrides_with = "update")]
    update: bool,
    /// Copy what symbolic links point to: --links follow
    #[arg(short = 'L', long, overrides_with = "dereference", conflicts_with_all = ["links", "no_dereference"])]
    dereference: bool,
    /// Copy symbolic links as links, as is always done
    #[arg(short = 'd', long, overrides_with = "no_dereference")]
    no_dereference: bool,
    /// Replace what is there, as is always done
    #[arg(short = 'f', long, overrides_with = "force")]
    force: bool,
    /// Show progress, also where the output is no terminal
    #[arg(short = 'P', long)]
    progress: bool,
    /// Show what would be copied
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Print the final figures as one JSON object, and progress as JSON lines to standard error
    #[arg(long)]
    json: bool,
    /// Copy only files that match; rclone's patterns, may be repeated
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,
    /// Leave out files that match; wins over --include
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Files or segments copied at once, and never another number [default: --optimizer decides]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), conflicts_with = "optimizer")]
    transfers: Option<u16>,
    /// Method that decides how many files and streams are used at once: auto, falcon, scc, mcc, promc,
    /// partial-second-order, full-second-order, c-order, or fixed:FILES,STREAMS,AHEAD
    /// [default: auto]
    #[arg(long, value_name = "NAME")]
    optimizer: Option<Method>,
    /// Send no faster than this many bytes a second: 10M, or by the time of day
    /// "08:00,10M 18:00,off", or @FILE that holds either and may change meanwhile
    #[arg(long, value_name = "RATE", value_parser = Bandwidth::parse)]
    bwlimit: Option<Bandwidth>,
    /// Treatment of symbolic links
    #[arg(long, value_enum, default_value_t = LinkChoice::Keep)]
    links: LinkChoice,
    /// Copy files also when size and modification time agree
    #[arg(long)]
    ignore_times: bool,
    /// Do not read back what was copied between local paths
    #[arg(long)]
    ignore_checksum: bool,
    /// Read each file, or the stream, back once it has its name, and compare
    #[arg(long)]
    verify: bool,
    /// Flush each local file to the disk before it gets its final name
    #[arg(long)]
    fsync: bool,
    /// Start no further file after this many bytes (exit code 8)
    #[arg(long, value_name = "SIZE")]
    max_transfer: Option<Bytes>,
    /// End after this time, give or take five seconds, like 90s, 10m or 2h (exit code 10)
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    max_duration: Option<Duration>,
    /// Exit with code 9 when nothing had to be copied
    #[arg(long)]
    error_on_no_transfer: bool,
    /// Where a stream (standard input, a named pipe) goes when DST fails: an address that can be
    /// written and listed [default: `park` of DST's profile]
    #[arg(long, value_name = "URL")]
    park: Option<OsString>,
    /// Profile of ~/.config/posthaste/profiles.toml, or of ~/.aws when not found there, for
    /// addresses that name none themselves
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Another profile for the sources: --source-profile home --profile archive s3://a/x s3://b/
    #[arg(long, value_name = "NAME")]
    source_profile: Option<String>,
    /// Read public S3 buckets without credentials, whatever there are
    #[arg(long)]
    no_sign_request: bool,
    /// Option for ssh as in ssh_config, like Port=2222; may be repeated
    #[arg(long, value_name = "OPTION")]
    ssh_option: Vec<String>,
    /// Program to start at user@host, as its shell takes it
    #[arg(long, value_name = "PROGRAM", default_value = "posthaste")]
    posthaste_path: String,
    /// Ports that posthaste may listen on at user@host, like 50000-51000 [default: any]
    #[arg(long, value_name = "LOW-HIGH")]
    ports: Option<PortRange>,
    /// The gateways known, and which hosts lie behind them [default: gateways.toml beside profiles.toml, if there]
    #[arg(long, value_name = "FILE")]
    gateways: Option<PathBuf>,
    /// Only show errors
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Show each file
    #[arg(short, long)]
    verbose: bool,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum LinkChoice {
    /// Copy the link itself
    Keep,
    /// Copy what it points to
    Follow,
    /// Leave it out
    Skip,
}

/// Threads for lanes to remote endpoints. Disks are read and written on others.
const WORKER_THREADS: usize = 2;

/// Copies; the exit code is rclone's (`docs/reference/exit-codes.md`).
///
/// # Errors
/// Returns a [`Failure`] for invalid arguments.
pub fn run(mut arguments: CopyArguments) -> Outcome {
    arguments.destination = match arguments.target_directory.take() {
        Some(mut directory) => {
            if !ends_with_slash(&directory) {
                directory.push("/");
            }
            directory
        }
        None => take_last(&mut arguments.sources, USAGE)?,
    };
    let unknown = arguments.preserve_list.as_deref();
    if let Some(what) = unknown.and_then(habits::unknown_in) {
        return Err(Failure::usage(format!(
            "can't preserve '{what}': it is none of mode, timestamps, ownership, links, xattr, context, all"
        )));
    }
    match &arguments.preserve_list {
        Some(list) if habits::are_kept(list) => arguments.preserve = true,
        Some(_) => arguments.archive = true,
        None => {}
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)?;
    let ended = runtime.block_on(run_async(arguments));
    // An abandoned copy, as after its time limit, may wait minutes before its next transfer.
    runtime.shutdown_background();
    ended
}

async fn run_async(arguments: CopyArguments) -> Outcome {
    if let Some(input) = pipe::input(&arguments.sources, &arguments.destination)? {
        return pipe::run(&arguments, input).await;
    }
    if arguments.park.is_some() {
        return Err(Failure::usage(
            "can't park files: --park is for streams, which can't be read twice",
        ));
    }
    let slot = Arc::new(CurrentScreen::default());
    let access = access(&arguments, Arc::clone(&slot))?;
    let rules = DraftRules {
        verify: !arguments.ignore_checksum,
        fsync: arguments.fsync,
        ..DraftRules::default()
    };
    let source_access = match &arguments.source_profile {
        Some(profile) => access.with_profile(profile.clone()),
        None => access.clone(),
    };
    let into = ends_with_slash(&arguments.destination);
    let is_archive = arguments.archive && !arguments.dry_run;
    let from = (&*arguments.sources, &source_access);
    let places = is_archive.then(|| Places::note(from, &arguments.destination, into));
    let places = places.transpose()?;
    let mut ends = Ends::new(
        (&arguments.sources, source_access),
        (&arguments.destination, access.clone()),
        rules,
    )?;
    let begun = Arc::new(Begun::new(&arguments.sources, &arguments.destination));
    let mut ending = loop {
        let progress = Arc::new(Progress::default());
        let screen = Screen::new(&arguments, Arc::clone(&progress));
        slot.set(&screen);
        let tell = |text: &str| screen.line(text);
        let (sources, destination) = ends.open(&tell).await?;
        let destination = destination.ok_or_else(|| Failure::usage("no destination"))?;
        let options = begun.watch(options(&arguments, rules, &screen)?);
        let throttle = options.throttle.clone();
        let copying = copy::copy(sources, destination, into, options, progress);
        let ending = while_shown(&arguments, &screen, &access, &throttle, copying).await?;
        screen.close();
        // Files that have arrived are found there and left alone.
        if !ends.fall_back(&ending, &tell) {
            break ending;
        }
    };
    history::keep(&ending.tuned);
    let mut code = exit_code(&ending, arguments.error_on_no_transfer);
    if code == 0 && !arguments.dry_run {
        begun.end();
    }
    let losses = match places {
        Some(places) if ending.fatal.is_none() => looked(places, &arguments).await?,
        Some(_) | None => Losses::default(),
    };
    let is_asked = arguments.archive || arguments.preserve;
    if is_asked {
        ending.unkept += ending.directories_unkept;
    }
    let is_short = ending.unkept != Unkept::default() || ending.lent_rights > 0;
    let is_less = !losses.is_nothing() || is_asked && is_short;
    if code == 0 && is_less && !arguments.dry_run {
        code = Exit::LessSerious as u8;
    }
    summary::print(&arguments, &ending, (None, &losses), code);
    Ok(ExitCode::from(code))
}

/// Looks for losses among the metadata of `-a`.
async fn looked(places: Places, arguments: &CopyArguments) -> Result<Losses, Failure> {
    let filter = Filter::new(&arguments.include, &arguments.exclude)?;
    let looking = tokio::task::spawn_blocking(move || places.losses(&filter));
    Ok(looking.await.map_err(anyhow::Error::from)?)
}

/// Copies while the screen is drawn and the rate limit is kept.
async fn while_shown<T>(
    arguments: &CopyArguments,
    screen: &Screen,
    access: &Access,
    throttle: &Throttle,
    copying: impl Future<Output = T>,
) -> Result<T, Failure> {
    let limiting = async {
        match &arguments.bwlimit {
            Some(limit) => limit.keep(throttle, |text: &str| screen.line(text)).await,
            None => std::future::pending().await,
        }
    };
    let capping = limit::keep_caps(access, |text: &str| screen.line(text));
    tokio::select! {
        ended = copying => Ok(ended),
        () = capping => Err(Failure::usage("the caps ended before the copy")),
        () = screen.draw() => Err(Failure::usage("the screen ended before the copy")),
        () = limiting => Err(Failure::usage("the rate limit ended before the copy")),
    }
}

/// Prepares access to addresses; its notices go to the current screen.
///
/// # Errors
/// Fails if the gateways can't be read.
fn access(arguments: &CopyArguments, screen: Arc<CurrentScreen>) -> Result<Access, Failure> {
    let gateways = through::known(arguments.gateways.as_deref())?;
    let start = StartOptions {
        program: Some(arguments.posthaste_path.clone()),
        ports: arguments.ports.map(|ports| ports.to_string()),
        notices: Notices::new(move |note| screen.note(note)),
    };
    let access = Access::new(arguments.profile.clone(), arguments.ssh_option.clone()).typed();
    let access = access.unsigned(arguments.no_sign_request);
    Ok(access.with_start(start).with_gateways(gateways))
}

fn options(
    arguments: &CopyArguments,
    rules: DraftRules,
    screen: &Arc<Screen>,
) -> Result<Options, Failure> {
    let screen = Arc::clone(screen);
    Ok(Options {
        filter: Filter::new(&arguments.include, &arguments.exclude)?,
        method: match arguments.transfers {
            Some(transfers) => Method::Fixed {
                setting: Setting::new(transfers, 1, 1),
            },
            None => arguments.optimizer.unwrap_or_default(),
        },
        history: history::load(),
        throttle: arguments
            .bwlimit
            .as_ref()
            .map(Bandwidth::throttle)
            .unwrap_or_default(),
        links: match arguments.links {
            _ if arguments.dereference => Links::Follow,
            LinkChoice::Keep => Links::Keep,
            LinkChoice::Follow => Links::Follow,
            LinkChoice::Skip => Links::Skip,
        },
        rules,
        again: arguments.ignore_times,
        update: arguments.update,
        modes: arguments.preserve || arguments.archive,
        verify: arguments.verify,
        dry_run: arguments.dry_run,
        continues: false,
        has_begun: false,
        written: None,
        transfer_max: arguments.max_transfer,
        duration_max: arguments.max_duration,
        help: None,
        on_notice: Arc::new(move |notice| screen.notice(notice)),
    })
}

fn ends_with_slash(text: &OsStr) -> bool {
    text.as_bytes().ends_with(b"/")
}

/// Returns rclone's exit code for this ending.
fn exit_code(ending: &Ending, error_on_no_transfer: bool) -> u8 {
    if let Some(error) = &ending.fatal {
        let is_directory = error.context().iter().any(|(key, _)| *key == "directory");
        let is_missing = error.kind() == ErrorKind::NotFound;
        return if is_directory && is_missing {
            3
        } else {
            exit_for(error) as u8
        };
    }
    match ending.limit {
        Some(Limit::Transfer) => return 8,
        Some(Limit::Duration) => return 10,
        None => {}
    }
    if !ending.rest_arrived && ending.other > 0 {
        1
    } else if !ending.rest_arrived && ending.temporary > 0 {
        5
    } else if ending.other + ending.temporary + ending.left_out > 0 {
        6
    } else if error_on_no_transfer && ending.figures.files + ending.figures.links == 0 {
        9
    } else {
        0
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor_ms = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err("write a number with s, m, h or d, like 90s".to_owned()),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| "write a number with s, m, h or d, like 90s".to_owned())?;
    Ok(Duration::from_millis(number.saturating_mul(factor_ms)))
}
