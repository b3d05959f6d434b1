//! `posthaste through`: runs a command whose connections go through gateways.

use std::{
    fs,
    io::Write,
    os::unix::{fs::OpenOptionsExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{ExitCode, ExitStatus},
};

use clap::Args;
use posthaste_endpoint::{
    Error, ErrorKind,
    gateway::{Gateways, Hop, Reserved, mint},
    relay::read_secret_file,
};
use posthaste_gateway::LocalDoor;
use tokio::{process::Command, task::JoinSet};

use crate::{
    config,
    failure::{Exit, Failure, Outcome},
    moment, output,
};

/// Paths at which packages install proxychains' library, which hands a program's connections to a
/// SOCKS5 port.
const LIBRARIES: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu/libproxychains.so.4",
    "/usr/lib/aarch64-linux-gnu/libproxychains.so.4",
    "/usr/lib64/libproxychains4.so",
    "/usr/lib64/proxychains-ng/libproxychains4.so",
    "/usr/lib/libproxychains4.so",
    "/usr/lib/libproxychains.so.4",
];
/// Exit code of shells for a command that can't be run or does not exist.
const CANT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Runs a command whose TCP connections go through one or more gateways
///
/// A gateway is HOST:PORT with --secret-file, or a name from gateways.toml beside profiles.toml, which has
/// a table for each with its address and secret_file.
///
/// Each connection gets a token of its own, good for its one place and two minutes. Connections to
/// 127.0.0.1 stay here. The command's connections are handed over by the library of proxychains
/// (package proxychains4 or proxychains-ng), which programs linked statically do not load; those that read
/// ALL_PROXY, HTTPS_PROXY or HTTP_PROXY need no library. The exit code is the command's.
///
/// Examples:
///   posthaste through far -- rsync -a results/ dtn.example.org:/data/
///   posthaste through near,far -- globus-url-copy -vb file:///tmp/a gsiftp://dtn.example.org/a
///   posthaste through far --reservation night-7 -- rsync -a results/ dtn.example.org:/data/
///   posthaste through gw.example.org:7423 --secret-file far.secret --no-preload -- curl -O data.example.org/a
///   curl -x "http://me:$(posthaste through far --token 8h)@gw.example.org:7423" data.example.org/a
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct ThroughArguments {
    /// The gateways on the way, the nearest first
    #[arg(value_name = "GATEWAY", value_delimiter = ',', required = true)]
    gateways: Vec<String>,
    /// The file with the secret of each gateway that is given as HOST:PORT, in their order
    #[arg(long, value_name = "FILE")]
    secret_file: Vec<PathBuf>,
    /// The reservation at the gateways that the connections belong to
    #[arg(long, value_name = "ID", conflicts_with = "token")]
    reservation: Option<String>,
    /// Only tell the command by ALL_PROXY, HTTPS_PROXY and HTTP_PROXY; what it connects without asking them goes straight
    #[arg(long)]
    no_preload: bool,
    /// Print a token for all places, good for so long, and run nothing: the password for other programs' proxy settings
    #[arg(long, value_name = "TIME", value_parser = moment::parse_seconds, conflicts_with = "command")]
    token: Option<u64>,
    /// The command and its arguments
    #[arg(last = true, required_unless_present = "token")]
    command: Vec<String>,
}

/// Runs the command and ends as it does.
///
/// # Errors
/// Fails if a gateway or its secret isn't known, the library is missing, or the command can't be
/// started.
pub async fn run(arguments: ThroughArguments) -> Outcome {
    let hops = hops(&arguments.gateways, &arguments.secret_file)?;
    if let Some(seconds) = arguments.token {
        return show_token(&hops, seconds);
    }
    let library = if arguments.no_preload {
        None
    } else {
        Some(library()?)
    };
    let Some((program, rest)) = arguments.command.split_first() else {
        return Err(Failure::usage("no command (write it behind --)"));
    };
    let reservation = arguments.reservation.map(Reserved::required).transpose()?;
    let door = LocalDoor::open(hops).await?.reserved(reservation);
    let mut command = Command::new(program);
    command.args(rest);
    let folder = tempfile::tempdir().map_err(anyhow::Error::from)?;
    hand_over(&mut command, &door, library, folder.path())?;
    let mut serving = JoinSet::new();
    serving.spawn(door.run(|error| tracing::warn!("{error}")));
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(cause) => {
            crate::output::note!("posthaste: can't run {program}: {cause}");
            let is_missing = cause.kind() == std::io::ErrorKind::NotFound;
            return Ok(ExitCode::from(if is_missing {
                NOT_FOUND
            } else {
                CANT_RUN
            }));
        }
    };
    let status = child.wait().await.map_err(anyhow::Error::from)?;
    Ok(ExitCode::from(code_of(status)))
}

fn show_token(hops: &[Hop], seconds: u64) -> Outcome {
    let [hop] = hops else {
        return Err(Failure::usage("a token is for one gateway (name one)"));
    };
    let expires = moment::unix_s().saturating_add(seconds);
    output::line(&mint(&hop.secret, None, expires));
    Ok(ExitCode::SUCCESS)
}

/// Returns the exit code by shells' convention: the code, or 128 and the signal.
fn code_of(status: ExitStatus) -> u8 {
    let signal = || status.signal().map(|signal| 128 + signal);
    let code = status.code().or_else(signal).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

/// Passes the door's address to a command, in its environment: never in its arguments, which
/// everybody can see.
fn hand_over(
    command: &mut Command,
    door: &LocalDoor,
    library: Option<&Path>,
    folder: &Path,
) -> Result<(), Failure> {
    let (port, password) = (door.local().port(), door.password());
    let url = format!("socks5h://posthaste:{password}@127.0.0.1:{port}");
    for name in ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY"] {
        command.env(name, &url).env(name.to_ascii_lowercase(), &url);
    }
    for name in ["NO_PROXY", "no_proxy"] {
        command.env(name, "127.0.0.1,localhost,::1");
    }
    let Some(library) = library else {
        return Ok(());
    };
    let file = folder.join("proxychains.conf");
    let text = format!(
        "strict_chain\nquiet_mode\nproxy_dns\nlocalnet 127.0.0.1/255.255.255.255\nlocalnet ::1/128\n\
         [ProxyList]\nsocks5 127.0.0.1 {port} posthaste {password}\n"
    );
    let write = || {
        let mut options = fs::OpenOptions::new();
        let mut out = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&file)?;
        out.write_all(text.as_bytes())
    };
    write().map_err(|cause: std::io::Error| {
        Failure::new(
            Exit::Other,
            format!("can't write {}: {cause}", file.display()),
        )
    })?;
    command
        .env("LD_PRELOAD", library)
        .env("PROXYCHAINS_CONF_FILE", &file)
        .env("PROXYCHAINS_QUIET_MODE", "1");
    Ok(())
}

fn library() -> Result<&'static Path, Failure> {
    let mut all = LIBRARIES.iter().map(Path::new);
    all.find(|path| path.exists()).ok_or_else(|| {
        Failure::usage(
            "can't hand connections over: libproxychains isn't there (install the package proxychains4, or \
             proxychains-ng; or give --no-preload for a command that reads ALL_PROXY)",
        )
    })
}

/// Returns the gateways by address, or by name from the user's file.
fn hops(gateways: &[String], secret_files: &[PathBuf]) -> Result<Vec<Hop>, Failure> {
    let mut secrets = secret_files.iter();
    let mut hops = Vec::new();
    for gateway in gateways {
        if !gateway.contains(':') {
            hops.extend(known(None)?.hops(gateway)?);
            continue;
        }
        let file = secrets.next().ok_or_else(|| {
            Failure::usage(format!(
                "no secret for the gateway {gateway} (give --secret-file, or its name from gateways.toml)"
            ))
        })?;
        hops.push(Hop {
            address: gateway.parse()?,
            secret: read_secret_file(file)?,
        });
    }
    if secrets.next().is_some() {
        return Err(Failure::usage(
            "more secrets than gateways by address (a name brings its own)",
        ));
    }
    Ok(hops)
}

/// Returns the gateways in a file; without one, those in the user's own file, if it exists.
///
/// # Errors
/// Fails if the file can't be read.
pub fn known(file: Option<&Path>) -> Result<Gateways, Error> {
    let own = config::config_directory().join("gateways.toml");
    match Gateways::read(file.unwrap_or(&own)) {
        Err(error) if file.is_none() && error.kind() == ErrorKind::NotFound => {
            Ok(Gateways::none(own))
        }
        known => known,
    }
}
