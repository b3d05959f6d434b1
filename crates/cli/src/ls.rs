//! `posthaste ls`: lists directories and trees of any address.

mod lines;
pub mod progress;
mod remote;

use std::{ffi::OsString, path::PathBuf, process::ExitCode, sync::Arc};

use clap::Args;
use posthaste_endpoint::{
    Access, Endpoint, Entry, Error, ErrorKind, Kind, Location, Locus, posix::DraftRules,
};
use posthaste_engine::{
    copy::Filter,
    scan::{self, Found, LISTED_AT_ONCE, LOCAL_LISTED_AT_ONCE, News, Options, Scan, Tally},
};
use tokio::{sync::mpsc, task::spawn_blocking};

use crate::{
    failure::{Exit, Failure, Outcome},
    output, through,
};
use lines::{Lines, Shape};
use progress::showing;

/// Entries of a directory that are sorted by name. Larger directories are shown in the order of
/// arrival.
const SORTED_MAX: usize = 100_000;

/// Pages buffered between listing and printing.
const PAGES_AHEAD: usize = 32;

/// Lists a directory, or with -R everything below it.
///
/// One line for each entry, directories with a slash at their end. A directory is shown in the
/// order of its names (beyond 100,000 as they come); with -R everything is shown as it is found,
/// paths relative to the address. Buckets are listed with many requests at once, other trees
/// several directories at a time.
///
/// With --service, a service lists it, with its credentials: what it listed lately it tells at once, and
/// what lies below it lists ahead.
///
/// With --checkpoint, what is found is kept in a folder until it is printed, and a listing that
/// was killed goes on where it was when the same command is given again.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  posthaste ls s3://bucket/run-7              names in a directory
  posthaste ls -lR /scratch/me                sizes, times and paths of a tree
  posthaste ls -R --json s3://bucket | jq -r 'select(.Size > 1e9).Path'
  posthaste ls -R -0 --files-only . | xargs -0 sha256sum
  posthaste ls -R --checkpoint scan s3://bucket > all    goes on when run again
  posthaste ls --service http://127.0.0.1:7420 archive:run-7    as a service knows it

Exit codes: 0 all was listed; 3 no such directory, 4 no such file; 5 part of it could not be
listed for now; 6 part of it can't be listed; 7 not allowed to.")]
pub struct ShowArguments {
    /// Places to list: a path, s3://bucket/prefix, sftp://user@host/path, user@host:path
    #[arg(value_name = "ADDRESS", default_value = ".")]
    address: OsString,
    /// Everything below, not only the directory itself
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Sizes and times too: bytes, when changed or stored (UTC), and the name
    #[arg(short, long, conflicts_with = "json")]
    long: bool,
    /// Print one JSON object a line: Path, Name, Size, ModTime, IsDir, as from rclone lsjson
    #[arg(long)]
    json: bool,
    /// End each line with a zero byte instead of a newline
    #[arg(short = '0', long, conflicts_with = "json")]
    null: bool,
    /// Leave directories out
    #[arg(long, conflicts_with = "dirs_only")]
    files_only: bool,
    /// Only directories
    #[arg(long)]
    dirs_only: bool,
    /// Only files that match; rclone's patterns, may be repeated
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,
    /// Leave out files that match; wins over --include
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Follow symbolic links and list what they point to
    #[arg(long)]
    follow: bool,
    /// Keep what is found in this folder until it is printed; go on from there when it was killed
    #[arg(long, value_name = "DIR", requires = "recursive")]
    checkpoint: Option<PathBuf>,
    /// Profile of ~/.config/posthaste/profiles.toml, or of ~/.aws when not found there; with --service, of its user
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Read public S3 buckets without credentials, whatever there are
    #[arg(long)]
    no_sign_request: bool,
    /// Option for ssh as in ssh_config, like Port=2222; may be repeated
    #[arg(long, value_name = "OPTION")]
    ssh_option: Vec<String>,
    /// The gateways known, and which hosts lie behind them [default: gateways.toml beside profiles.toml, if there]
    #[arg(long, value_name = "FILE")]
    gateways: Option<PathBuf>,
    /// Let this service list it, which keeps what it listed for a while; paths are those of its machine
    #[arg(long, value_name = "URL", help_heading = "Service",
          conflicts_with_all = ["checkpoint", "follow", "ssh_option", "gateways", "no_sign_request"])]
    service: Option<String>,
    /// File with the service's token [default: the token of the service's default state directory]
    #[arg(
        long,
        value_name = "FILE",
        env = "POSTHASTE_TOKEN_FILE",
        help_heading = "Service"
    )]
    token_file: Option<PathBuf>,
    /// Let the service list it anew, whatever it knows
    #[arg(long, requires = "service", help_heading = "Service")]
    refresh: bool,
}

/// Lists; the exit code is rclone's (`docs/reference/exit-codes.md`).
///
/// # Errors
/// Returns a [`Failure`] if nothing can be listed.
pub fn run(arguments: ShowArguments) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)?;
    runtime.block_on(run_async(arguments))
}

impl ShowArguments {
    fn lines(&self) -> Result<Lines, Failure> {
        Ok(Lines::new(Shape {
            long: self.long,
            json: self.json,
            null: self.null,
            files_only: self.files_only,
            dirs_only: self.dirs_only,
            filter: Filter::new(&self.include, &self.exclude)?,
        }))
    }
}

async fn run_async(arguments: ShowArguments) -> Outcome {
    if let Some(url) = &arguments.service {
        return remote::print(&arguments, url, arguments.lines()?).await;
    }
    let access = Access::new(arguments.profile.clone(), arguments.ssh_option.clone())
        .typed()
        .unsigned(arguments.no_sign_request)
        .with_gateways(through::known(arguments.gateways.as_deref())?);
    let mut location = Location::parse(&arguments.address)?;
    if let (Location::Local(path), Some(_)) = (&mut location, &arguments.checkpoint) {
        // Another day the command may be given elsewhere.
        *path = std::path::absolute(&path).map_err(anyhow::Error::from)?;
    }
    let options = Options {
        follow: arguments.follow,
        at_once: match &location {
            Location::Local(_) => LOCAL_LISTED_AT_ONCE,
            Location::S3 { .. }
            | Location::Sftp { .. }
            | Location::Bucket { .. }
            | Location::Server(_)
            | Location::Host { .. }
            | Location::Plugin { .. } => LISTED_AT_ONCE,
        },
    };
    let lines = arguments.lines()?;
    let name = location.name().unwrap_or_default();
    let endpoint = access.open(location, DraftRules::default()).await?;
    let there = endpoint.stat(b"", true).await.map_err(at_source)?;
    match there {
        None => Err(missing(&endpoint.show(b""))),
        Some(entry) if entry.kind != Kind::Directory => {
            print_one(lines, Entry { name, ..entry }).await
        }
        Some(_) => match &arguments.checkpoint {
            Some(folder) => print_scan(endpoint, options, folder, lines).await,
            None if arguments.recursive => print_tree(endpoint, options, lines).await,
            None => print_directory(endpoint, options, lines).await,
        },
    }
}

fn at_source(error: Error) -> Error {
    error.at(Locus::Source)
}

fn missing(shown: &str) -> Failure {
    let error = Error::new(ErrorKind::NotFound, "list", shown)
        .cause("no such file or directory")
        .hint("check the path");
    Failure::new(Exit::DirectoryNotFound, error.to_string())
}

/// Returns the exit code of a listing, with its failures.
fn ended(tally: &Tally) -> ExitCode {
    let exit = match (tally.failures(), tally.temporary()) {
        (0, _) => return ExitCode::SUCCESS,
        (_, 0) => Exit::LessSerious,
        _ => Exit::Temporary,
    };
    ExitCode::from(exit as u8)
}

async fn printed<T: Send + 'static>(
    printing: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    match spawn_blocking(printing).await {
        Ok(result) => result,
        Err(cause) => Err(anyhow::Error::from(cause).into()),
    }
}

async fn print_one(mut lines: Lines, entry: Entry) -> Outcome {
    printed(move || {
        lines.entry(b"", &entry);
        lines.flush();
        Ok(ExitCode::SUCCESS)
    })
    .await
}

async fn print_directory(
    endpoint: Arc<dyn Endpoint>,
    options: Options,
    mut lines: Lines,
) -> Outcome {
    let mut listing = endpoint
        .list(b"", options.follow)
        .await
        .map_err(at_source)?;
    let mut entries = Vec::new();
    let mut is_sorted = true;
    loop {
        let page = listing.next_page().await.map_err(at_source)?;
        if page.is_empty() {
            break;
        }
        entries.extend(page);
        if entries.len() > SORTED_MAX {
            is_sorted = false;
            let page = std::mem::take(&mut entries);
            lines = printed(move || {
                page.iter().for_each(|entry| lines.entry(b"", entry));
                Ok(lines)
            })
            .await?;
        }
    }
    printed(move || {
        if is_sorted {
            entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        }
        entries.iter().for_each(|entry| lines.entry(b"", entry));
        lines.flush();
        Ok(ExitCode::SUCCESS)
    })
    .await
}

async fn print_tree(endpoint: Arc<dyn Endpoint>, options: Options, mut lines: Lines) -> Outcome {
    let tally = Arc::new(Tally::default());
    let (sender, mut news) = mpsc::channel(PAGES_AHEAD);
    let printing = printed(move || {
        loop {
            let next = match news.try_recv() {
                Ok(next) => Some(next),
                // The reader waits for this output rather than for more.
                Err(_) => {
                    lines.flush();
                    news.blocking_recv()
                }
            };
            match next {
                None => return Ok(()),
                Some(News::Found(found)) => lines.page(&found),
                Some(News::Failed(error)) => {
                    lines.flush();
                    output::complain(&error);
                }
            }
            if lines.is_closed() {
                return Ok(());
            }
        }
    });
    let listing = scan::list(&endpoint, options, &tally, sender);
    let (listed, printed) = showing(&tally, async { tokio::join!(listing, printing) }).await;
    printed?;
    listed?;
    Ok(ended(&tally))
}

async fn print_scan(
    endpoint: Arc<dyn Endpoint>,
    options: Options,
    folder: &std::path::Path,
    mut lines: Lines,
) -> Outcome {
    let folder = folder.to_owned();
    let scan = printed(move || Ok(Scan::open(&folder, endpoint, options)?)).await?;
    let scan = Arc::new(scan);
    let tally = scan.tally();
    if tally.entries() > 0 {
        let before = tally.entries();
        crate::output::note!("posthaste: going on with {before} entries found before");
    }
    let on_failure: Arc<scan::OnFailure> = Arc::new(|error| output::complain(&error));
    showing(&tally, scan.run(&on_failure)).await?;
    printed(move || {
        for found in scan.entries()? {
            let found: Found = found?;
            lines.page(&found);
            if lines.is_closed() {
                // The listing is incomplete: its state is kept for another run.
                return Ok(ended(&tally));
            }
        }
        lines.flush();
        if !lines.is_closed()
            && let Some(scan) = Arc::into_inner(scan)
        {
            scan.remove()?;
        }
        Ok(ended(&tally))
    })
    .await
}
