//! `posthaste cp - DST`: standard input or a named pipe as the source.

use std::{
    ffi::OsString,
    fs::File,
    os::{fd::AsFd, unix::fs::FileTypeExt},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use posthaste_endpoint::{Access, Error, ErrorKind, Location, posix::DraftRules, shown_address};
use posthaste_engine::copy::{self, Parking, Progress, Spout};

use posthaste_types::Bytes;
use rustix::fs::FileType;

use super::{
    CopyArguments, CurrentScreen, Losses, access, ends, ends_with_slash, exit_code, options,
    screen::Screen, summary, while_shown,
};
use crate::{
    failure::{Exit, Failure, Outcome},
    parked::places,
};

/// Input that can be read only once.
pub(super) enum Input {
    Standard,
    Pipe(PathBuf),
}

/// Returns the stream that the sources name, if any, or the file that is to become a stream on
/// standard output.
///
/// # Errors
/// Returns a [`Failure`] if a stream is one of several sources, or if something else than a stream or
/// a file of this machine would go to standard output.
pub(super) fn input(
    sources: &[OsString],
    destination: &OsString,
) -> Result<Option<Input>, Failure> {
    let goes_out = is_output(destination);
    if goes_out && !matches!(sources, [source] if source == "-" || is_stream(source)) {
        return Err(Failure::usage(
            "can't copy that to standard output: one local file or pipe goes there (copy it to a file first; write ./- for one of that name)",
        ));
    }
    let is_read = |path: &Path| is_pipe(path) || goes_out;
    match sources {
        [source] if source == "-" => Ok(Some(Input::Standard)),
        [source] => {
            let location = Location::parse(source)?;
            Ok(match location {
                Location::Local(path) => is_read(&path).then_some(Input::Pipe(path)),
                Location::S3 { .. }
                | Location::Sftp { .. }
                | Location::Bucket { .. }
                | Location::Server(_)
                | Location::Host { .. }
                | Location::Plugin { .. } => None,
            })
        }
        sources if sources.iter().any(|source| source == "-") => Err(Failure::usage(
            "can't copy standard input beside other sources (write ./- for a file of that name)",
        )),
        _ => Ok(None),
    }
}

/// Returns whether a source is a pipe or a file of this machine.
fn is_stream(source: &OsString) -> bool {
    let Ok(Location::Local(path)) = Location::parse(source) else {
        return false;
    };
    is_pipe(&path) || path.is_file()
}

fn is_pipe(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

/// Copies the stream.
///
/// # Errors
/// Returns a [`Failure`] for invalid arguments, and for failures before the stream is read.
pub(super) async fn run(arguments: &CopyArguments, input: Input) -> Outcome {
    refuse_the_pointless(arguments)?;
    if ends_with_slash(&arguments.destination) {
        return Err(Failure::usage(format!(
            "can't copy a stream into {}: it has no name (write the name of the file)",
            shown_address(&arguments.destination)
        )));
    }
    if is_output(&arguments.destination) {
        return write_out(arguments, input).await;
    }
    let slot = Arc::new(CurrentScreen::default());
    let access = access(arguments, Arc::clone(&slot))?;
    let rules = DraftRules {
        verify: !arguments.ignore_checksum,
        fsync: arguments.fsync,
        ..DraftRules::default()
    };
    let location = Location::parse(&arguments.destination)?;
    let parking = parking(arguments, &access, &location).await?;
    let destination = ends::open(location, &access, rules).await;
    let destination = destination.map_err(|error| error.at(posthaste_endpoint::Locus::Destination));
    if let Err(error) = &destination
        && error.kind() == ErrorKind::Invalid
    {
        return destination
            .map(|_| ExitCode::SUCCESS)
            .map_err(Failure::from);
    }
    let spout = open(input).await?;
    let progress = Arc::new(Progress::default());
    let screen = Screen::new(arguments, Arc::clone(&progress));
    slot.set(&screen);
    let options = options(arguments, rules, &screen)?;
    let throttle = options.throttle.clone();
    let pouring = copy::pour(spout, destination, parking, options, progress);
    let poured = while_shown(arguments, &screen, &access, &throttle, pouring).await??;
    screen.close();
    let code = match poured.parked {
        Some(_) => Exit::Parked as u8,
        None => exit_code(&poured.ending, arguments.error_on_no_transfer),
    };
    let no_losses = (poured.parked.as_ref(), &Losses::default());
    summary::print(arguments, &poured.ending, no_losses, code);
    Ok(ExitCode::from(code))
}

/// Refuses options that would have no effect on a stream, or lose it.
fn refuse_the_pointless(arguments: &CopyArguments) -> Result<(), Failure> {
    if arguments.dry_run {
        return Err(Failure::usage(
            "can't say what a stream holds without reading it (leave out -n)",
        ));
    }
    let pointless = [
        (
            arguments.optimizer.is_some(),
            "--optimizer",
            "its segments go as they come",
        ),
        (
            arguments.transfers.is_some(),
            "--transfers",
            "its segments go as they come",
        ),
        (
            arguments.max_duration.is_some(),
            "--max-duration",
            "the rest would be lost",
        ),
        (
            arguments.max_transfer.is_some(),
            "--max-transfer",
            "the rest would be lost",
        ),
        (
            !arguments.include.is_empty() || !arguments.exclude.is_empty(),
            "--include or --exclude",
            "it has no files to choose from",
        ),
    ];
    match pointless.iter().find(|(is_given, ..)| *is_given) {
        Some((_, option, why)) => Err(Failure::usage(format!(
            "can't use {option} on a stream: {why} (leave it out)"
        ))),
        None => Ok(()),
    }
}

/// Returns whether standard input was closed when the program began: Rust opens the null device in
/// its place, for reading and writing, which nobody redirects to.
fn was_closed() -> bool {
    let input = std::io::stdin();
    let (flags, found) = (rustix::fs::fcntl_getfl(&input), rustix::fs::fstat(&input));
    let null = rustix::fs::stat("/dev/null");
    let is_null = found.is_ok_and(|found| {
        null.is_ok_and(|null| {
            found.st_rdev == null.st_rdev
                && FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice
        })
    });
    is_null && flags.is_ok_and(|flags| flags.contains(rustix::fs::OFlags::RDWR))
}

async fn open(input: Input) -> Result<Spout, Failure> {
    let (file, name) = opened(input).await?;
    Ok(Spout::start(file, name)?)
}

/// Opens the stream and returns it with its name.
async fn opened(input: Input) -> Result<(File, String), Failure> {
    let (opened, name) = match input {
        Input::Standard if was_closed() => {
            let closed = std::io::Error::from(rustix::io::Errno::BADF);
            return Err(Error::io("read", "standard input", closed).into());
        }
        Input::Standard => {
            let opened = std::io::stdin().as_fd().try_clone_to_owned();
            (opened.map(File::from), "standard input".to_owned())
        }
        Input::Pipe(path) => {
            let name = path.display().to_string();
            // Waits until somebody writes to it.
            let opened = tokio::task::spawn_blocking(move || File::open(path)).await;
            (opened.map_err(anyhow::Error::from)?, name)
        }
    };
    let file = opened.map_err(|cause| Error::io("read", &*name, cause))?;
    Ok((file, name))
}

/// Returns whether an address names standard output. The copy then goes to where that stands.
fn is_output(destination: &OsString) -> bool {
    let names = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];
    names.iter().any(|name| destination == name)
}

/// Writes the stream to standard output.
async fn write_out(arguments: &CopyArguments, input: Input) -> Outcome {
    for (is_given, option) in [
        (arguments.json, "--json"),
        (arguments.park.is_some(), "--park"),
        (arguments.bwlimit.is_some(), "--bwlimit"),
    ] {
        if is_given {
            return Err(Failure::usage(format!(
                "can't use {option} where a stream goes to standard output (leave it out)"
            )));
        }
    }
    let (mut file, name) = opened(input).await?;
    let written = tokio::task::spawn_blocking(move || {
        let mut out = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
        let bytes = std::io::copy(&mut file, &mut out)?;
        if out.metadata()?.is_file() {
            // Some file systems say only then that a write failed.
            out.sync_all()?;
        }
        posthaste_endpoint::posix::close(out)?;
        Ok(bytes)
    });
    let written: std::io::Result<u64> = written.await.map_err(anyhow::Error::from)?;
    if matches!(&written, Err(cause) if cause.kind() == std::io::ErrorKind::BrokenPipe) {
        return Ok(ExitCode::from(crate::output::NOBODY_READS));
    }
    let subject = format!("{name} to standard output");
    let bytes = written.map_err(|cause| Error::io("copy", subject, cause))?;
    if !arguments.quiet {
        crate::output::note!("copied {} to standard output", Bytes::new(bytes));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the parking place of the stream, if any: from the option, else from the destination's
/// profile.
async fn parking(
    arguments: &CopyArguments,
    access: &Access,
    destination: &Location,
) -> Result<Option<Parking>, Failure> {
    let address = match &arguments.park {
        Some(address) => Some(address.clone()),
        None => access.parking(destination)?.map(OsString::from),
    };
    let Some(address) = address else {
        return Ok(None);
    };
    let rules = DraftRules {
        verify: false,
        fsync: true,
        ..DraftRules::default()
    };
    let (address, profile) = (places::absolute(&address)?, arguments.profile.clone());
    let place = access
        .open(Location::parse(address.as_ref())?, rules)
        .await?;
    let parking = Parking {
        place,
        destination: places::absolute(&arguments.destination)?,
        profile: profile.clone(),
        began: jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string(),
    };
    places::remember(&address, profile);
    Ok(Some(parking))
}
