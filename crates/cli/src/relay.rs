//! `posthaste relay`: lends disk space to other people's datasets.

use std::{
    ffi::{OsStr, OsString},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Subcommand};
use posthaste_core::contract::Windows;
use posthaste_endpoint::{
    Access, Location,
    posix::DraftRules,
    relay::{Draining, join::Invite},
};
use posthaste_relay::{Bucket, Relay, RelayOptions, set_draining};
use posthaste_types::{ByteRate, Bytes};

use crate::{
    failure::{Exit, Failure, Outcome},
    logs::LogArguments,
    output,
    shutdown::Shutdown,
    traces::TraceArguments,
};

/// Runs a relay: a depot that lends disk to datasets on their way
///
/// Keeps fragments it knows nothing about, each verified before it counts as stored, never more
/// than its capacity, and forgets a dataset when it expires. Makes a key and a secret at its first
/// start, and prints the line that makes it known to a service.
///
/// Example:
///   posthaste relay --dir /data/relay --capacity 2T --listen 127.0.0.1:7421
///   posthaste relay --dir /data/relay --capacity 2T --listen 10.1.2.3:7421 --join campus.invite
///   posthaste relay --dir /data/relay --capacity 2T --bucket s3://lent/posthaste --profile mine --join campus.invite
///   posthaste relay --dir /data/relay --capacity 2T --hours "Mon-Fri 20-06, Sat-Sun 00-24" --join campus.invite
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    args_override_self = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub struct RelayArguments {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    run: Option<RunArguments>,
    #[command(flatten)]
    pub logs: LogArguments,
    #[command(flatten)]
    pub traces: TraceArguments,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Says that the relay is going to be switched off: services send nothing new there
    ///
    /// It goes on running: what is under way ends, and what it holds is given out until it expires. It
    /// says the same after a restart, until --off takes that back.
    Drain {
        /// Where it keeps its fragments
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// Ask services to send on to other depots what lies only here
        #[arg(long = "move", conflicts_with = "off")]
        moves: bool,
        /// Revoke: it is not going to be switched off after all
        #[arg(long)]
        off: bool,
    },
}

#[derive(Debug, Args)]
struct RunArguments {
    /// File of settings, whose table `[relay]` has these options as keys, with `_` for `-`. What is typed wins; `posthaste check-config`
    /// checks it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to keep fragments, key and secret; made if it isn't there
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Where to listen; port 0 takes any free one. Beyond loopback only if you say so
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7421")]
    listen: SocketAddr,
    /// Most to store
    #[arg(long, value_name = "SIZE")]
    capacity: Bytes,
    /// Keep the bytes in an object store: s3://BUCKET/PREFIX or azblob://CONTAINER/PREFIX. Those who send and read reach it
    /// themselves, with passes that are good for one object; DIR has only what there is
    #[arg(long, value_name = "ADDRESS", conflicts_with = "rate")]
    bucket: Option<OsString>,
    /// Profile of ~/.config/posthaste/profiles.toml for the object store
    #[arg(long, value_name = "NAME", requires = "bucket")]
    profile: Option<String>,
    /// Most to take a second, all clients together
    #[arg(long, value_name = "RATE")]
    rate: Option<ByteRate>,
    /// Hours in which services may send to it, by this machine's clock: 20-06, or "Mon-Fri 20-06, Sat-Sun 00-24". It tells them, and
    /// refuses nothing itself: data that is on its way is not thrown away [default: always]
    #[arg(long, value_name = "HOURS")]
    hours: Option<Windows>,
    /// Where the load of its machine is read, which it tells services: a file like /proc/loadavg. A container may have
    /// another
    #[arg(long, value_name = "FILE", default_value = "/proc/loadavg")]
    load_from: PathBuf,
    /// Its name, for people
    #[arg(long, default_value = "relay")]
    name: String,
    /// Don't wait for the disk: faster, but a power loss may take fragments that counted as stored
    #[arg(long)]
    no_flush: bool,
    /// The invitation of a service, from `posthaste depot invite`: the relay makes itself known there, and says from
    /// then on how it is, also when it is started again without this
    #[arg(long, value_name = "FILE")]
    join: Option<PathBuf>,
    /// Where services reach it [default: where it listens]
    #[arg(long, value_name = "https://HOST:PORT")]
    advertise: Option<String>,
    /// Print one JSON object with url, fingerprint, secret_file, hours and bucket once it listens
    #[arg(long)]
    json: bool,
    /// End when standard input does
    #[arg(long, hide = true)]
    until_stdin_closes: bool,
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// Fails if the port is in use or the directory can't be used.
pub async fn run(arguments: RelayArguments) -> Outcome {
    match (arguments.verb, arguments.run) {
        (Some(Verb::Drain { dir, moves, off }), _) => drain(&dir, moves, off),
        (None, Some(arguments)) => {
            posthaste_endpoint::raise_descriptors();
            serve(arguments).await
        }
        (None, None) => Err(Failure::new(
            Exit::Usage,
            "a relay needs --dir and --capacity",
        )),
    }
}

fn drain(dir: &Path, moves: bool, off: bool) -> Outcome {
    let draining = match (off, moves) {
        (true, _) => None,
        (false, true) => Some(Draining::Move),
        (false, false) => Some(Draining::Keep),
    };
    set_draining(dir, draining)?;
    output::line(match draining {
        None => "it is used again",
        Some(Draining::Keep) => {
            "it says that it ends: nothing new comes, what it holds stays until it expires"
        }
        Some(Draining::Move) => {
            "it says that it ends: nothing new comes, what lies only here goes on to others"
        }
    });
    Ok(ExitCode::SUCCESS)
}

fn read_invite(file: &Path) -> Result<Invite, Failure> {
    let text = posthaste_service::read_private(file)?;
    Ok(Invite::read(&text, &file.display().to_string())?)
}

async fn open_bucket(address: &OsStr, profile: Option<String>) -> Result<Bucket, Failure> {
    let location = Location::parse(address)?;
    let access = Access::new(profile, Vec::new());
    let store = access.open(location, DraftRules::default()).await?;
    Ok(Bucket::open(store).await?)
}

async fn serve(arguments: RunArguments) -> Outcome {
    let shutdown = Shutdown::watch(arguments.until_stdin_closes)?;
    if let Some(file) = &arguments.config {
        tracing::info!("with the settings of {}", file.display());
    }
    let name = arguments.name.clone();
    let hours = arguments.hours.map(|hours| hours.to_string());
    let join = arguments.join.as_deref().map(read_invite).transpose()?;
    let bucket = match &arguments.bucket {
        Some(address) => Some(open_bucket(address, arguments.profile).await?),
        None => None,
    };
    let shown = bucket.as_ref().map(Bucket::shown);
    let relay = Relay::open(RelayOptions {
        dir: arguments.dir,
        listen: arguments.listen,
        bucket,
        capacity: arguments.capacity,
        rate: arguments.rate,
        name: arguments.name,
        flush: !arguments.no_flush,
        join,
        advertise: arguments.advertise,
        hours: hours.clone(),
        load_from: arguments.load_from,
    })
    .await?;
    let address = relay.address();
    let secret_file = std::path::absolute(relay.secret_file()).map_err(anyhow::Error::from)?;
    if arguments.json {
        output::json(&serde_json::json!({
            "name": name,
            "url": address.url,
            "fingerprint": address.fingerprint.to_string(),
            "secret_file": secret_file,
            "hours": hours,
            "bucket": shown,
        }));
    } else {
        output::line(&format!(
            "posthaste depot add {name} {} --fingerprint {} --secret-file {}",
            address.url,
            address.fingerprint,
            secret_file.display()
        ));
        if let Some(shown) = shown {
            tracing::info!("it keeps the bytes in {shown}");
        }
        if let Some(hours) = hours {
            tracing::info!("it is lent {hours} by this machine's clock");
        }
    }
    relay.run(shutdown.told()).await?;
    Ok(ExitCode::SUCCESS)
}
