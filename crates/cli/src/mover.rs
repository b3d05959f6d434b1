//! `posthaste mover`: transfers data for a service, on any host.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use posthaste_mover::{Notice, Options, run as run_mover};
use posthaste_types::Bytes;

use crate::{
    config,
    failure::{Failure, Outcome},
    logs::LogArguments,
    output,
    shutdown::Shutdown,
    traces::TraceArguments,
};

/// Moves data for a service: takes work by lease, does it, and keeps nothing
///
/// May run on any number of hosts that see the same files under the same paths. The more there are, the more
/// hosts' processors and networks carry one dataset. One that dies or hangs loses nothing: its work is given to
/// others after ten seconds. Told to end (SIGTERM) it takes nothing more and ends when what it has is done; told
/// again it ends at once.
///
/// The token is one of the scope `move`, which the operator makes once with `posthaste token add movers
/// --scope move --output FILE`.
///
/// Examples:
///   posthaste mover --server https://dtn0 --token-file movers.token
///   posthaste mover --server http://127.0.0.1:7420 --token-file movers.token --slots 8
///   srun --nodes 4 --ntasks-per-node 1 posthaste mover --config /etc/posthaste/posthaste.toml
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, args_override_self = true)]
pub struct MoverArguments {
    /// File of settings, whose table `[mover]` has these options as keys, with `_` for `-`. What is typed wins; `posthaste check-config`
    /// checks it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the service listens, as https://HOST, or http:// on its own host; may be given several times where several
    /// wait to lead: the one that answers is asked
    #[arg(
        long = "server",
        visible_alias = "service",
        value_name = "URL",
        required = true,
        value_delimiter = ','
    )]
    server: Vec<String>,
    /// File with a token of the scope `move`
    #[arg(long, value_name = "FILE", env = "POSTHASTE_TOKEN_FILE")]
    token_file: PathBuf,
    /// Name of it: one of the same name that was there before is gone [default: HOST-PID]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Chunks that it moves at once
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    slots: u32,
    /// Memory for chunks under way: those that find none wait
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    memory: Bytes,
    /// Certificates in PEM that are trusted beside the system's
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    #[command(flatten)]
    pub logs: LogArguments,
    #[command(flatten)]
    pub traces: TraceArguments,
    /// Print one JSON object with its name and the service's address once it works
    #[arg(long)]
    json: bool,
    /// End when standard input does
    #[arg(long, hide = true)]
    until_stdin_closes: bool,
}

/// Runs until SIGTERM or SIGINT, then finishes its chores.
///
/// # Errors
/// Fails if the service does not accept it; temporary failures are waited out.
pub async fn run(arguments: MoverArguments) -> Outcome {
    posthaste_endpoint::raise_descriptors();
    let shutdown = Shutdown::watch(arguments.until_stdin_closes)?;
    if let Some(file) = &arguments.config {
        tracing::info!("with the settings of {}", file.display());
    }
    let host = config::host_name();
    let name = arguments.name;
    let name = name.unwrap_or_else(|| format!("{host}-{}", std::process::id()));
    let options = Options {
        services: arguments.server,
        token: posthaste_service::read_private(&arguments.token_file)?,
        ca_file: arguments.ca_file,
        name: name.clone(),
        host,
        slots: arguments.slots,
        memory: arguments.memory,
    };
    let (told, mut again) = tokio::sync::mpsc::channel(1);
    let first = async move {
        shutdown.told().await;
        let _ = told.send(()).await;
    };
    let is_told = std::cell::Cell::new(!arguments.json);
    let moving = run_mover(options, first, move |notice| match notice {
        Notice::Joined(address) => {
            tracing::info!(mover = name, "mover {name} works for {address}");
            if !is_told.replace(true) {
                output::json(&serde_json::json!({ "name": name, "service": address }));
            }
        }
        Notice::Lost(why) => tracing::warn!(mover = name, "{why}; goes on trying"),
        Notice::Draining(0) => tracing::info!(mover = name, "ends"),
        Notice::Draining(left) => {
            tracing::info!(
                mover = name,
                "takes nothing more; {left} under way (tell it again to end at once)"
            );
        }
    });
    let at_once = async {
        again.recv().await;
        let second = Shutdown::watch(false)?;
        second.told().await;
        Ok::<(), Failure>(())
    };
    tokio::select! {
        moved = moving => moved?,
        told = at_once => told?,
    }
    Ok(ExitCode::SUCCESS)
}
