//! `posthaste peer`: the other end of `posthaste cp`, which starts it over SSH.

use std::{io, net::IpAddr, os::fd::AsFd, process::ExitCode, time::Duration};

use clap::Args;
use posthaste_relay::{Peer, PeerOptions};

use crate::{
    config,
    failure::{Failure, Outcome},
    output,
    ports::PortRange,
};

/// Serves this user's files to the one `posthaste cp` that started it over SSH, through standard
/// input and output and on a port of its own, until standard input ends.
#[derive(Debug, Args)]
pub struct PeerArguments {
    /// Ports to choose from
    #[arg(long, value_name = "LOW-HIGH")]
    ports: Option<PortRange>,
    /// Listen on no port
    #[arg(long, conflicts_with = "ports")]
    no_port: bool,
    /// Say that this is where it listens, wherever it does
    #[arg(long, value_name = "ADDRESS")]
    announce: Option<IpAddr>,
}

/// Threads that encrypt and decrypt. Disks are read and written on others.
const WORKER_THREADS: usize = 2;

/// Time for writes under way to end after the client is gone.
const ENDING: Duration = Duration::from_secs(5);

/// Serves until standard input ends.
///
/// # Errors
/// Fails if standard input and output are no pipes.
pub fn run(arguments: PeerArguments) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)?;
    let outcome = runtime.block_on(serve(arguments));
    runtime.shutdown_timeout(ENDING);
    outcome
}

async fn serve(arguments: PeerArguments) -> Outcome {
    let listen = config::ssh_server_address();
    let peer = Peer::open(&PeerOptions {
        listen: listen.filter(|_| !arguments.no_port),
        ports: arguments.ports.map(PortRange::range),
    })?;
    let mut invitation = peer.invitation().clone();
    if arguments.announce.is_some() {
        invitation.address = arguments.announce;
    }
    output::line(invitation.line().trim_end());
    let copy = |fd: &dyn AsFd| {
        fd.as_fd()
            .try_clone_to_owned()
            .map_err(|cause| Failure::from(anyhow::Error::from(cause)))
    };
    let (input, output) = (copy(&io::stdin())?, copy(&io::stdout())?);
    peer.run(input, output).await?;
    Ok(ExitCode::SUCCESS)
}
