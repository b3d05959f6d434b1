//! `posthaste serve`: runs the service.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use clap::{Args, CommandFactory, Parser};
use posthaste_endpoint::gateway::{Gateways, Pattern};
use posthaste_service::{
    Encode, LendingOptions, Logs, Options, QueueUrl, Reloaded, Reloader, RestOptions, Scheduler,
    Service, Site,
};
use posthaste_types::{ByteRate, Bytes};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    Cli, Command, config, database,
    failure::{Failure, Outcome, said_by_parser},
    logs::{self, LogArguments},
    output, settings,
    shutdown::Shutdown,
    traces::TraceArguments,
};

/// Runs the service: takes requests, decides, moves data through depots
///
/// Keeps its journal, token and the depots' secrets in the state directory, and goes on where it
/// was when started again, also after kill -9 or a power loss. Listens on loopback.
///
/// With --database the journal is in PostgreSQL, and several services may be started with the same database and
/// the same state directory, on several hosts: one leads, the others wait and take its place when it ends or dies. A password
/// is taken from PGPASSWORD, PGPASSFILE or ~/.pgpass, as psql takes it.
///
/// With --source-listen it hands out sources that are still on scratch to whoever pulls them: over TLS with a
/// pinned key and a token for that dataset alone, two chunks at a time.
///
/// Examples:
///   posthaste serve --state ~/posthaste &
///   posthaste serve --config /etc/posthaste/posthaste.toml &
///   posthaste serve --state /shared/posthaste --database postgres:///posthaste &
///   posthaste serve --source-listen 0.0.0.0:7422 --source-url https://dtn1:7422 &
///   posthaste serve --scratch /scratch/alice --queue slurm --just-in-time &
///
/// SIGHUP has it read its settings again, with the files that they name; what can change without a restart does.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, args_override_self = true)]
pub struct ServeArguments {
    /// File of settings, whose table `[serve]` has these options as keys, with `_` for `-`. What is typed wins; `posthaste check-config`
    /// checks it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to keep the journal and the secrets [default: ~/.local/state/posthaste]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Begin with an empty journal, also where secrets and datasets of a service lie beside it: what that knew is lost
    #[arg(long)]
    new: bool,
    /// Where to keep the journal instead: `postgres://[USER@]HOST[:PORT]/NAME`, without a host the socket on this machine
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// Where the REST API listens; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7420")]
    listen: SocketAddr,
    /// Where FTS's REST interface listens too, as on port 8446; the API has it below /fts3 anyway [default: nowhere else]
    #[arg(long, value_name = "ADDRESS")]
    fts_listen: Option<SocketAddr>,
    /// Listen beyond loopback: a TLS proxy stands in front, for the API itself speaks plain HTTP
    #[arg(long)]
    behind_tls: bool,
    /// Touch files with the rights of each request's owner, which is the name of a local account: run as root. Movers that act for
    /// others run as root too [default: the rights of the service's own user]
    #[arg(long)]
    as_owners: bool,
    /// Move files with root's rights for everybody who has a token for some directories (--below), where it runs as root without
    /// --as-owners: such tokens are refused else
    #[arg(long)]
    as_root: bool,
    /// Let users have it open this address of its own machine, link or cloud, which are refused else: 127.0.0.1:9000, 127.0.0.0/8:*
    /// or `[::1]:443`; can be repeated. Where profiles lead is not refused
    #[arg(long, value_name = "HOSTS:PORTS")]
    allow_address: Vec<Pattern>,
    /// The file with the key under which the credentials that users give are kept, made with the first of them
    /// [default: credentials.key in the state directory]
    #[arg(long, value_name = "FILE")]
    credentials_key: Option<PathBuf>,
    /// Hand out sources to whoever pulls, here; port 0 takes any free one [default: not at all]
    #[arg(long, value_name = "ADDRESS")]
    source_listen: Option<SocketAddr>,
    /// Address at which whoever pulls reaches that [default: https://ADDRESS]
    #[arg(long, value_name = "URL", requires = "source_listen")]
    source_url: Option<String>,
    /// Most that is handed out of sources in a second, like 50M
    #[arg(long, value_name = "BYTES", requires = "source_listen")]
    source_rate: Option<Bytes>,
    /// Where chunks are coded: centre, relays (each chunk leaves once, whole; relays code it and send fragments
    /// on), or auto (relays where the way out binds)
    #[arg(long, value_name = "WHERE", default_value = "centre")]
    encode: Encode,
    /// Rate of the way out, in a second, like 100M, all depots together [default: not known]
    #[arg(long, value_name = "BYTES")]
    way_out: Option<Bytes>,
    /// Memory for directories that were listed for whoever asks: the least used are forgotten first. A directory of a million
    /// entries takes about 50M
    #[arg(long, value_name = "BYTES", default_value = "64M")]
    listing_cache: Bytes,
    /// The gateways known, and which depots lie behind them; read at the start
    #[arg(long, value_name = "FILE")]
    gateways: Option<PathBuf>,
    /// The ways on which bandwidth can be reserved, and what they lead to; read at the start [default: none]
    #[arg(long, value_name = "FILE")]
    circuits: Option<PathBuf>,
    /// A directory below which jobs may have data moved, as `/scratch`; may be given several times
    #[arg(long, value_name = "DIR")]
    scratch: Vec<PathBuf>,
    /// The rules by which the site's purge removes files, as `purge-report` reads them: what leaves this machine is to be
    /// safe before the first of its files goes, where nobody says when that is. Read again when it changed [default: none]
    #[arg(long, value_name = "FILE")]
    purge_policy: Option<PathBuf>,
    /// File of alarms: who is told when a deadline is in danger, and what else happens: by webhook, e-mail or a program; read at the start
    /// [default: nobody]
    #[arg(long, value_name = "FILE")]
    alarms: Option<PathBuf>,
    /// Note in this file who asked for a change, and what was decided and removed, a line of JSON each; it is opened anew each time, so it can be moved away
    /// [default: nowhere]
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
    /// Look at the queue of the batch system every 30 s, which costs a `squeue` and a `sinfo`, or a `qstat` and a `pbsnodes`, and
    /// forecast when its jobs start: slurm or pbs. `posthaste queue` shows that [default: not at all]
    #[arg(long, value_name = "SCHEDULER")]
    queue: Option<Scheduler>,
    /// Ask slurmrestd for that queue of Slurm, in place of its programs: where it listens, as unix:///PATH or https://HOST:PORT; http:// on this
    /// machine only [default: the programs]
    #[arg(long, value_name = "URL", requires = "queue")]
    queue_url: Option<QueueUrl>,
    /// The file with the token that slurmrestd knows the service by, as `scontrol token` prints it; read anew for each question
    /// [default: none, for a socket that goes by who is at its other end]
    #[arg(long, value_name = "FILE", requires = "queue_url")]
    queue_token_file: Option<PathBuf>,
    /// Certificates of authorities that are trusted there beside the system's [default: none]
    #[arg(long, value_name = "FILE", requires = "queue_url")]
    queue_ca_file: Option<PathBuf>,
    /// Let what jobs of that queue read come so that it is there a minute before one in ten such jobs starts, rather than
    /// at once: less lies on scratch, and a job that starts unexpectedly early waits for its data
    #[arg(long, requires = "queue")]
    just_in_time: bool,
    #[command(flatten)]
    pub logs: LogArguments,
    #[command(flatten)]
    pub traces: TraceArguments,
    /// Print one JSON object with url, token_file, source_url and fts_url once it listens
    #[arg(long)]
    json: bool,
    /// End when standard input does
    #[arg(long, hide = true)]
    until_stdin_closes: bool,
}

/// Runs until SIGTERM or SIGINT; SIGHUP has it read its settings again.
///
/// # Errors
/// Fails if the state or the port is in use or can't be opened, and if the journal fails.
pub async fn run(arguments: ServeArguments) -> Outcome {
    posthaste_endpoint::raise_descriptors();
    let shutdown = Shutdown::watch(arguments.until_stdin_closes)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(anyhow::Error::from)?;
    if let Some(file) = &arguments.config {
        tracing::info!("with the settings of {}", file.display());
    }
    let as_json = arguments.json;
    let options = options(arguments)?;
    let mut told = Box::pin(shutdown.told());
    let service = tokio::select! {
        service = Service::open(&options) => service?,
        // The service may have waited to lead.
        () = &mut told => return Ok(ExitCode::SUCCESS),
    };
    announce(&service, as_json)?;
    let reloader = service.reloader();
    let reloading = async {
        while hangup.recv().await.is_some() {
            let (said, others) = reload(&reloader).await;
            // The line is logged if either the old or the new levels allow it.
            let is_heard = logs::says(module_path!(), tracing::Level::INFO);
            if is_heard {
                tracing::info!("{said}");
            }
            if let Some(others) = others {
                others.go_by();
            }
            if !is_heard {
                tracing::info!("{said}");
            }
        }
        std::future::pending().await
    };
    tokio::select! {
        ended = service.run(told) => ended?,
        () = reloading => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Combines the options and the files that they name.
fn options(arguments: ServeArguments) -> Result<Options, Failure> {
    let database = arguments.database.as_deref();
    let database = database.map(|url| database::address("--database", url));
    let slurmrestd = arguments.queue_url.map(|url| RestOptions {
        url,
        token_file: arguments.queue_token_file,
        ca_file: arguments.queue_ca_file,
    });
    if slurmrestd.is_some() && arguments.queue != Some(Scheduler::Slurm) {
        return Err(Failure::usage(
            "can't use --queue-url: slurmrestd has the queue of slurm, and no other",
        ));
    }
    Ok(Options {
        audit: arguments.audit,
        state: arguments.state.unwrap_or_else(config::state_directory),
        is_new: arguments.new,
        database: database.transpose()?,
        listen: arguments.listen,
        fts_listen: arguments.fts_listen,
        behind_tls: arguments.behind_tls,
        as_owners: arguments.as_owners,
        as_root: arguments.as_root,
        allow_address: arguments.allow_address,
        credentials_key: arguments.credentials_key,
        lending: arguments.source_listen.map(|listen| LendingOptions {
            listen,
            url: arguments.source_url,
            rate: arguments
                .source_rate
                .map(|rate| ByteRate::new(rate.get().max(1))),
        }),
        listing_cache: arguments.listing_cache,
        encode: arguments.encode,
        way_out: arguments
            .way_out
            .map(|rate| ByteRate::new(rate.get().max(1))),
        gateways: match &arguments.gateways {
            Some(file) => Gateways::read(file)?,
            None => Gateways::default(),
        },
        circuits: match &arguments.circuits {
            Some(file) => posthaste_circuit::read_circuits(file)?,
            None => Vec::new(),
        },
        scratch: arguments.scratch,
        purge_policy: arguments.purge_policy,
        alarms: match &arguments.alarms {
            Some(file) => posthaste_service::read_alarms(file)?,
            None => Vec::new(),
        },
        queue: arguments.queue,
        slurmrestd,
        just_in_time: arguments.just_in_time,
        logs: Logs {
            level: arguments.logs.level(),
            format: arguments.logs.format(),
            traces: arguments.traces.url().map(str::to_owned),
        },
        site: match &arguments.config {
            Some(file) => settings::site(file)?,
            None => Site::default(),
        },
    })
}

/// Reloads all settings into the service. Returns a line with the result, and the new log options
/// if they changed.
async fn reload(reloader: &Reloader) -> (String, Option<LogArguments>) {
    let read = settings::expanded(Cli::command, config::typed()).and_then(|words| {
        // The command line was valid at the start, so the mistake is in the file.
        let parsed =
            Cli::try_parse_from(words).map_err(|error| Failure::usage(said_by_parser(&error).0))?;
        let Command::Serve(arguments) = parsed.command else {
            return Err(Failure::usage("they are those of another command"));
        };
        let logs = arguments.logs.clone();
        Ok((options(arguments)?, logs))
    });
    let reloaded = match read {
        Ok((options, logs)) => {
            let reloaded = reloader.reload(options).await.map_err(Failure::from);
            reloaded.map(|reloaded| (reloaded, logs))
        }
        Err(failure) => Err(failure),
    };
    match reloaded {
        Err(failure) => {
            let why = failure.to_string().replace('\n', "; ");
            (format!("the settings stay as they are: {why}"), None)
        }
        Ok((Reloaded { changed, restart }, logs)) => {
            let mut said = "read the settings again".to_owned();
            for (what, keys) in [("changed", &changed), ("a restart is needed for", &restart)] {
                if !keys.is_empty() {
                    said.push_str(&format!("; {what} {}", keys.join(", ")));
                }
            }
            if changed.is_empty() && restart.is_empty() {
                said.push_str("; nothing is new");
            }
            let is_other = changed.contains(&"log_level");
            (said, is_other.then_some(logs))
        }
    }
}

/// Prints the service's address.
fn announce(service: &Service, as_json: bool) -> Result<(), Failure> {
    let url = format!("http://{}", service.address()?);
    let fts_url = service
        .fts_address()?
        .map(|address| format!("http://{address}"));
    let token_file = service.token_file().display().to_string();
    if as_json {
        let source_url = service.source_url();
        output::json(&serde_json::json!({
            "url": url,
            "token_file": token_file,
            "source_url": source_url,
            "fts_url": fts_url,
        }));
    } else {
        output::line(&format!("posthaste serves {url} (token in {token_file})"));
        if let Some(url) = &fts_url {
            output::line(&format!("speaks FTS's interface at {url}"));
        }
        if let Some(url) = service.source_url() {
            output::line(&format!("hands out sources at {url}"));
        }
    }
    Ok(())
}
