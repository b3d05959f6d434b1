//! `posthaste relay`: lends disk to other people's datasets.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use clap::Args;
use posthaste_relay::{Relay, RelayOptions};
use posthaste_types::{ByteRate, Bytes};

use crate::{failure::Outcome, output, shutdown::Shutdown};

/// Runs a relay: a depot that lends disk to datasets on their way
///
/// Keeps fragments it knows nothing about, each verified before it counts as stored, never more
/// than its capacity, and forgets a dataset when it expires. Makes a key and a secret at its first
/// start, and prints the line that makes it known to a service.
///
/// Example:
///   posthaste relay --dir /data/relay --capacity 2T --listen 127.0.0.1:7421
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct RelayArguments {
    /// Where to keep fragments, key and secret; made if it isn't there
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Where to listen; port 0 takes any free one. Beyond loopback only if you say so
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7421")]
    listen: SocketAddr,
    /// Most to store
    #[arg(long, value_name = "SIZE")]
    capacity: Bytes,
    /// Most to take a second, all clients together
    #[arg(long, value_name = "RATE")]
    rate: Option<ByteRate>,
    /// Its name, for people
    #[arg(long, default_value = "relay")]
    name: String,
    /// Don't wait for the disk: faster, but a power loss may take fragments that counted as stored
    #[arg(long)]
    no_flush: bool,
    /// Print one JSON object with url, fingerprint and secret_file once it listens
    #[arg(long)]
    json: bool,
    /// End when standard input does
    #[arg(long, hide = true)]
    until_stdin_closes: bool,
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// When the port is in use or the directory can't be used.
pub async fn run(arguments: RelayArguments) -> Outcome {
    let shutdown = Shutdown::watch(arguments.until_stdin_closes)?;
    let name = arguments.name.clone();
    let relay = Relay::open(RelayOptions {
        dir: arguments.dir,
        listen: arguments.listen,
        capacity: arguments.capacity,
        rate: arguments.rate,
        name: arguments.name,
        flush: !arguments.no_flush,
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
        }));
    } else {
        output::line(&format!(
            "posthaste depot add {name} {} --fingerprint {} --secret-file {}",
            address.url,
            address.fingerprint,
            secret_file.display()
        ));
    }
    relay.run(shutdown.told()).await?;
    Ok(ExitCode::SUCCESS)
}
