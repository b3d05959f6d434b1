//! `posthaste cp`: copies files and trees, without any server.

mod screen;
mod summary;

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::{Args, ValueEnum};
use posthaste_endpoint::{
    Access, ErrorKind, Location,
    posix::{DraftRules, Posix},
};
use posthaste_engine::copy::{
    self, Ending, Filter, Limit, Links, Options, Place, Progress, Source,
};
use posthaste_types::{ByteRate, Bytes};

use crate::failure::{Failure, Outcome, exit_for};
use screen::Screen;

/// Copies files and trees between local paths, S3-compatible stores and SFTP servers.
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
pub struct CopyArguments {
    /// What to copy: paths, s3://bucket/prefix or sftp://user@host/path
    #[arg(required = true, value_name = "SRC")]
    sources: Vec<OsString>,
    /// Where to
    #[arg(value_name = "DST")]
    destination: OsString,
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
    /// Files or segments copied at once [default: what suits the endpoints]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    transfers: Option<u16>,
    /// Send no faster than this many bytes a second, like 10M
    #[arg(long, value_name = "RATE")]
    bwlimit: Option<Bytes>,
    /// What becomes of symbolic links
    #[arg(long, value_enum, default_value_t = LinkChoice::Keep)]
    links: LinkChoice,
    /// Copy files also when size and modification time agree
    #[arg(long)]
    ignore_times: bool,
    /// Do not read back what was copied between local paths or to SFTP servers
    #[arg(long)]
    ignore_checksum: bool,
    /// Flush each local file to the disk before it gets its final name
    #[arg(long)]
    fsync: bool,
    /// Start no further file after this many bytes (exit code 8)
    #[arg(long, value_name = "SIZE")]
    max_transfer: Option<Bytes>,
    /// End after this time, like 90s, 10m or 2h (exit code 10)
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    max_duration: Option<Duration>,
    /// Exit with code 9 when nothing had to be copied
    #[arg(long)]
    error_on_no_transfer: bool,
    /// Profile of ~/.config/posthaste/profiles.toml, or of ~/.aws when not found there
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Option for ssh as in ssh_config, like Port=2222; may be repeated
    #[arg(long, value_name = "OPTION")]
    ssh_option: Vec<String>,
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

/// Threads that run lanes to remote endpoints. Disks are read and written on others.
const WORKER_THREADS: usize = 2;

/// Copies; the exit code is rclone's (`docs/reference/exit-codes.md`).
///
/// # Errors
/// [`Failure`] for arguments that make no sense.
pub fn run(arguments: CopyArguments) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)?;
    runtime.block_on(run_async(arguments))
}

async fn run_async(arguments: CopyArguments) -> Outcome {
    let access = Access::new(arguments.profile.clone(), arguments.ssh_option.clone());
    let rules = DraftRules {
        verify: !arguments.ignore_checksum,
        fsync: arguments.fsync,
    };
    let mut sources = Vec::with_capacity(arguments.sources.len());
    for text in &arguments.sources {
        let location = Location::parse(text)?;
        let name = location.name();
        sources.push(Source {
            content: ends_with_slash(text) || name.is_none(),
            name: name.unwrap_or_default(),
            place: open(location, &access, rules).await?,
        });
    }
    let location = Location::parse(&arguments.destination)?;
    let into = ends_with_slash(&arguments.destination);
    let destination = open(location, &access, rules).await?;
    let progress = Arc::new(Progress::default());
    let screen = Screen::new(&arguments, Arc::clone(&progress));
    let options = options(&arguments, rules, &screen)?;
    let ending = {
        let drawing = screen.draw();
        let copying = copy::copy(sources, destination, into, options, progress);
        let ending = tokio::select! {
            ending = copying => ending,
            () = drawing => return Err(Failure::usage("the screen ended before the copy")),
        };
        screen.close();
        ending
    };
    let code = exit_code(&ending, arguments.error_on_no_transfer);
    summary::print(&arguments, &ending, code);
    Ok(ExitCode::from(code))
}

fn options(
    arguments: &CopyArguments,
    rules: DraftRules,
    screen: &Arc<Screen>,
) -> Result<Options, Failure> {
    let screen = Arc::clone(screen);
    Ok(Options {
        filter: Filter::new(&arguments.include, &arguments.exclude)?,
        transfers: arguments.transfers.map(usize::from),
        rate_max: arguments.bwlimit.map(|rate| ByteRate::new(rate.get())),
        links: match arguments.links {
            LinkChoice::Keep => Links::Keep,
            LinkChoice::Follow => Links::Follow,
            LinkChoice::Skip => Links::Skip,
        },
        rules,
        again: arguments.ignore_times,
        dry_run: arguments.dry_run,
        transfer_max: arguments.max_transfer,
        duration_max: arguments.max_duration,
        on_notice: Arc::new(move |notice| screen.notice(notice)),
    })
}

async fn open(location: Location, access: &Access, rules: DraftRules) -> Result<Place, Failure> {
    if let Location::Local(path) = location {
        return Ok(Place::local(Posix::new(path, rules)));
    }
    Ok(Place::remote(access.open(location, rules).await?))
}

fn ends_with_slash(text: &OsStr) -> bool {
    text.as_bytes().ends_with(b"/")
}

/// rclone's exit code for this ending.
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
    if ending.other > 0 {
        1
    } else if ending.temporary > 0 {
        5
    } else if ending.left_out > 0 {
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
