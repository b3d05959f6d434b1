//! `posthaste gateway`: forwards streams.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use clap::Args;
use posthaste_endpoint::gateway::Pattern;
use posthaste_gateway::{Forward, Gateway, GatewayOptions, Reserve, Table};
use posthaste_types::Bytes;

use crate::{failure::Outcome, logs::LogArguments, output, shutdown::Shutdown};

/// Runs a gateway: forwards streams, so that each segment of a long path has its own TCP
///
/// Programs come in by SOCKS5 or HTTP CONNECT on one port, with any name and a token as password;
/// `posthaste through` makes tokens by itself. It leads only where --allow or the table says, and a
/// `*` never means its own machine. Makes a secret at its first start, and prints the lines that make it
/// known to `posthaste through`.
///
/// Examples:
///   posthaste gateway --dir /var/lib/posthaste/gateway --listen 192.0.2.7:7423 --allow '*.example.org:*'
///   posthaste gateway --dir DIR --allow '10.2.0.0/16:*' --routes routes.toml --congestion bbr
///   posthaste gateway --dir DIR --forward 127.0.0.1:2222=dtn.example.org:22
///   posthaste gateway --dir DIR --allow '*.example.org:*' --reserve eth1=9.4Gbit
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct GatewayArguments {
    /// Where to keep its secret; made if it isn't there
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Where to listen; port 0 takes any free one. Beyond loopback only if you say so
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7423")]
    listen: SocketAddr,
    /// A place it may lead to, such as dtn.example.org:22, *.example.org:* or 10.2.0.0/16:2000-2100; may be given
    /// several times
    #[arg(long, value_name = "HOSTS:PORTS")]
    allow: Vec<Pattern>,
    /// A TOML file with more of that, and with the next gateway for each network
    #[arg(long, value_name = "FILE")]
    routes: Option<PathBuf>,
    /// A port that leads to one place, for programs that know no proxies. Whoever can connect to it gets through
    #[arg(long, value_name = "ADDRESS=HOST:PORT", value_parser = forward)]
    forward: Vec<Forward>,
    /// Congestion control of its connections, such as bbr or cubic
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Bytes each connection may have under way: rate times round trip. The kernel finds out by itself without
    #[arg(long, value_name = "SIZE")]
    buffer: Option<Bytes>,
    /// Most streams at once
    #[arg(long, value_name = "COUNT", default_value = "1024", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    streams: u32,
    /// A device on whose way out rates can be reserved in advance, and what its link carries: the gateway makes an HTB
    /// tree of it, for as long as it runs, and needs CAP_NET_ADMIN. Say a little less than the link, so that packets
    /// wait here and not where nobody knows of reservations. May be given several times
    #[arg(long, value_name = "DEVICE=RATE")]
    reserve: Vec<Reserve>,
    #[command(flatten)]
    pub logs: LogArguments,
    /// Print one JSON object with address and secret_file once it listens
    #[arg(long)]
    json: bool,
    /// End when standard input does
    #[arg(long, hide = true)]
    until_stdin_closes: bool,
}

fn forward(text: &str) -> Result<Forward, String> {
    let (listen, target) = text.split_once('=').ok_or("write ADDRESS=HOST:PORT")?;
    Ok(Forward {
        listen: listen
            .parse()
            .map_err(|_| format!("`{listen}` is no address with a port"))?,
        target: target
            .parse()
            .map_err(|error: posthaste_endpoint::Error| error.to_string())?,
    })
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// Fails if a port is in use, the directory can't be used, or the rules are invalid.
pub async fn run(arguments: GatewayArguments) -> Outcome {
    let shutdown = Shutdown::watch(arguments.until_stdin_closes)?;
    let table = match &arguments.routes {
        Some(file) => Table::read(file)?,
        None => Table::default(),
    };
    let gateway = Gateway::open(GatewayOptions {
        dir: arguments.dir,
        listen: arguments.listen,
        forwards: arguments.forward,
        table: table
            .allowing(arguments.allow)
            .with_segment(arguments.congestion, arguments.buffer),
        streams_max: arguments.streams as usize,
        reserve: arguments.reserve,
    })
    .await?;
    let secret_file = std::path::absolute(gateway.secret_file()).map_err(anyhow::Error::from)?;
    if arguments.json {
        output::json(&serde_json::json!({
            "address": gateway.local().to_string(),
            "forwards": gateway.forwards(),
            "secret_file": secret_file,
        }));
    } else {
        output::line(&format!(
            "posthaste through {} --secret-file {} -- COMMAND",
            gateway.local(),
            secret_file.display()
        ));
    }
    gateway.run(shutdown.told()).await;
    Ok(ExitCode::SUCCESS)
}
