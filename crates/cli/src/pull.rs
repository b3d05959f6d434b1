//! `posthaste pull`: fetches a dataset from all depots that hold it at once.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use clap::Args;
use hyper::Method;
use posthaste_api as api;
use posthaste_endpoint::{
    ErrorKind,
    gateway::Gateways,
    relay::{Credential, RelayAddress, RelayClient},
};
use posthaste_engine::{
    dataset::Manifest,
    envelope,
    pull::{self, ExtrasUnkept, Holder, Progress, PullOptions, PullReport, Ticket},
};
use posthaste_types::{ByteRate, Bytes};

use crate::{
    client::{ServiceArguments, ServiceClient},
    failure::{Exit, Failure, Outcome},
    keys::IdentityArguments,
    output,
    screen::{Line, Screen, Style},
    through,
};

/// Files left out at the source that are named, at most: more are only counted.
const NAMED_MAX: usize = 100;

/// Interval between two looks at a source that is being read.
const READ_LOOK: Duration = Duration::from_millis(300);

/// Pulls a dataset to DIR from every depot that holds it, rebuilding what is missing
///
/// Verifies every chunk. Each file appears under its name only when it is whole. Killed and run
/// again, it goes on where it was. Nothing that is in DIR is replaced by another content unless --overwrite says so: it is left
/// out and named (exit 6), as are files and links that DIR refuses. Where the service hands out sources, whatever still lies at the source
/// comes from there too: then a request can be pulled as soon as it is taken.
///
/// Depots that gateways.toml says lie behind a gateway (its `to`) are reached through it, and straight while it fails.
///
/// Example:
///   posthaste pull r7 ~/results
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct PullArguments {
    /// The request's id, like r7
    id: String,
    /// Where to put it; made if it isn't there
    directory: PathBuf,
    #[command(flatten)]
    identities: IdentityArguments,
    /// The gateways known, and which depots lie behind them [default: gateways.toml beside profiles.toml, if there]
    #[arg(long, value_name = "FILE")]
    gateways: Option<PathBuf>,
    /// Replace files and links of DIR that are others than the dataset has under their names
    #[arg(long)]
    overwrite: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Runs the command.
///
/// # Errors
/// Fails if too few depots can be reached, the destination can't be written, or the service
/// refuses.
pub async fn run(arguments: PullArguments) -> Outcome {
    let service = ServiceClient::open(&arguments.service)?;
    let screen = Screen::new(!arguments.json);
    let PullArguments {
        id,
        directory,
        identities,
        ..
    } = &arguments;
    let gateways = through::known(arguments.gateways.as_deref())?;
    let options = PullOptions {
        overwrite: arguments.overwrite,
        ..PullOptions::default()
    };
    let ends = (directory.as_path(), identities);
    let report = fetch(&service, id, ends, &gateways, &options, screen).await?;
    if arguments.json {
        output::json(&serde_json::json!({
            "bytes": report.bytes,
            "files": report.files,
            "rebuilt_chunks": report.rebuilt_chunks,
            "corrupt_fragments": report.corrupt_fragments,
            "depots_lost": report.depots_lost,
            "skipped_chunks": report.skipped_chunks,
            "modes_not_kept": report.unkept.modes,
            "times_not_kept": report.unkept.times,
            "left_out": report.left_out.count + report.not_sent.len() as u64,
        }));
    } else {
        output::line(&format!(
            "{}: {} in {} pulled and verified to {} ({} rebuilt)",
            arguments.id,
            Bytes::new(report.bytes),
            output::counted(report.files as u64, "file"),
            arguments.directory.display(),
            output::counted(report.rebuilt_chunks, "chunk")
        ));
        if report.left_out.count == 0
            && let Some(kept) = what_is_kept(&service, id).await
        {
            output::line(&format!(
                "{kept} (`posthaste forget {id}` frees their space)"
            ));
        }
    }
    Ok(tell_losses(&arguments, &report))
}

/// Returns what depots still do with the pulled dataset, if anything.
async fn what_is_kept(service: &ServiceClient, id: &str) -> Option<String> {
    let request: Result<api::Request, Failure> = service.get(&format!("/v1/requests/{id}")).await;
    let request = request.ok()?;
    let is_held = request.shares.iter().any(|share| share.stored_bytes > 0);
    let lacks_it = |delivery: &api::Delivery| delivery.delivered.is_none();
    let is_safe = matches!(
        request.state,
        api::RequestState::Safe | api::RequestState::Released
    );
    if !is_held {
        None
    } else if request.state == api::RequestState::Delivered {
        Some("depots keep it too".into())
    } else if is_safe && request.delivery.as_ref().is_some_and(lacks_it) {
        let to = &request.to;
        Some(format!("depots keep it until all of it is at {to} too"))
    } else {
        None
    }
}

/// Reports the losses, and returns the exit code for them.
fn tell_losses(arguments: &PullArguments, report: &PullReport) -> ExitCode {
    let left_out = &report.left_out;
    let mut lines = left_out.named.clone();
    lines.extend(output::not_kept(report.unkept, left_out.links));
    lines.extend(extras_not_kept(report.extras_unkept));
    lines.extend(output::lent_rights_not_given(
        report.extras_unkept.lent_rights,
    ));
    lines.extend(report.unclean.clone());
    let named = report.not_sent.iter().take(NAMED_MAX);
    lines.extend(named.map(|path| format!("not in it: {}", output::one_line(path))));
    if !report.not_sent.is_empty() {
        let files = output::counted(report.not_sent.len() as u64, "file");
        lines.push(format!(
            "{files} not in it, left out when it was sent (posthaste status {} says why)",
            arguments.id
        ));
    }
    if left_out.count > 0 {
        lines.push(format!(
            "{} left out; depots keep {} until all of it is pulled (pull it again to another directory)",
            match left_out.count {
                1 => "1 entry".to_owned(),
                count => format!("{count} entries"),
            },
            arguments.id,
        ));
    }
    for line in lines {
        output::complain(&line);
    }
    match left_out.count == 0 && report.not_sent.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(Exit::LessSerious as u8),
    }
}

/// Reports files that arrived without their owner, their other names, or attributes.
fn extras_not_kept(unkept: ExtrasUnkept) -> Option<String> {
    let kinds = [
        (unkept.owners, "owner"),
        (unkept.attributes, "extended attribute"),
        (unkept.links, "hard link"),
    ];
    let refused = kinds.into_iter().filter(|&(count, _)| count > 0);
    let refused: Vec<_> = refused
        .map(|(count, kind)| output::counted(count, kind))
        .collect();
    let refused = (!refused.is_empty()).then(|| refused.join(", "))?;
    Some(format!("not kept, as the destination refuses: {refused}"))
}

/// Pulls the request's dataset to `directory` and reports to the service that it is delivered,
/// unless a file was left out.
///
/// # Errors
/// Fails if too few depots can be reached, the destination can't be written, or the service
/// refuses.
pub async fn fetch(
    service: &ServiceClient,
    id: &str,
    (directory, identities): (&Path, &IdentityArguments),
    gateways: &Gateways,
    options: &PullOptions,
    screen: Screen,
) -> Result<PullReport, Failure> {
    let screen = Mutex::new(screen);
    let ticket = find_ticket(service, id, &screen).await?;
    let manifest = Arc::new(find_manifest(service, id, identities).await?);
    let holders = find_holders(&ticket, &manifest, gateways).await?;
    let ticket = Ticket { manifest, holders };
    let draw = |progress: &Progress| {
        let mut screen = screen.lock().unwrap_or_else(PoisonError::into_inner);
        screen.draw(&frame(id, progress));
    };
    let report = pull::pull(ticket, directory, options, &draw).await?;
    if report.left_out.count == 0 {
        service
            .tell(Method::POST, &format!("/v1/requests/{id}/delivered"))
            .await?;
    }
    Ok(report)
}

/// Gets the ticket for the pull. If the source is served and was not read yet, this waits until it
/// was: only then are the digests of its chunks known.
async fn find_ticket(
    service: &ServiceClient,
    id: &str,
    screen: &Mutex<Screen>,
) -> Result<api::Ticket, Failure> {
    loop {
        let ticket: api::Ticket = service
            .post(&format!("/v1/requests/{id}/ticket"), &serde_json::json!({}))
            .await?;
        if ticket.unread_chunks == 0 {
            return Ok(ticket);
        }
        let left = format!(
            "{} chunks of its source are still to be read",
            ticket.unread_chunks
        );
        let line = Line::new(format!("pulling {id}  "), Style::Bold).and(left, Style::Plain);
        screen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .draw(&[line]);
        tokio::time::sleep(READ_LOOK).await;
    }
}

/// Returns the manifest, decrypted if needed.
async fn find_manifest(
    service: &ServiceClient,
    id: &str,
    identities: &IdentityArguments,
) -> Result<Manifest, Failure> {
    let bytes = service
        .get_bytes(&format!("/v1/requests/{id}/manifest"))
        .await?;
    if !envelope::is_envelope(&bytes) {
        return Ok(Manifest::from_bytes(&bytes)?);
    }
    let opened = Manifest::open(&bytes, &identities.load()?);
    let error = match opened {
        Ok(manifest) => return Ok(manifest),
        Err(error) => error,
    };
    if error.kind() != ErrorKind::PermissionDenied {
        return Err(error.into());
    }
    let request: api::Request = service.get(&format!("/v1/requests/{id}")).await?;
    Err(Failure::new(
        Exit::Fatal,
        format!(
            "can't open {id}: it is encrypted for {}, and the identity in {} is another (name its file with --identity)",
            request.encrypt_for.join(", "),
            identities.shown(),
        ),
    ))
}

/// Asks every depot for its fragments; one that does not answer holds nothing for now.
async fn find_holders(
    ticket: &api::Ticket,
    manifest: &Manifest,
    gateways: &Gateways,
) -> Result<Vec<Holder>, Failure> {
    let mut asked = tokio::task::JoinSet::new();
    for (place, holder) in ticket.holders.iter().enumerate() {
        let address = RelayAddress {
            url: holder.url.clone(),
            fingerprint: holder.fingerprint.parse().map_err(anyhow::Error::from)?,
        };
        let ways = gateways.ways_to_relay(&address)?;
        let client = RelayClient::by_ways(address, Credential::Token(holder.token.clone()), ways)?;
        let (name, dataset) = (holder.name.clone(), manifest.dataset);
        asked.spawn(async move {
            let held = match client.inventory(&dataset).await {
                Ok(held) => held
                    .into_iter()
                    .map(|(chunk, index, _)| (chunk, index))
                    .collect(),
                Err(error) => {
                    output::complain(&format!("going on without {name}: {error}"));
                    return None;
                }
            };
            Some((place, Holder { name, client, held }))
        });
    }
    let mut holders: Vec<_> = asked.join_all().await.into_iter().flatten().collect();
    holders.sort_by_key(|(place, _)| *place);
    Ok(holders.into_iter().map(|(_, holder)| holder).collect())
}

fn frame(id: &str, progress: &Progress) -> Vec<Line> {
    let per_cent = (progress.bytes_done * 100)
        .checked_div(progress.bytes_total)
        .unwrap_or(100);
    let rate: ByteRate = progress.holders.iter().map(|holder| holder.rate).sum();
    let left = Bytes::new(progress.bytes_total.saturating_sub(progress.bytes_done));
    let eta = crate::moment::show_seconds(rate.time_for(left).as_secs_f64());
    let mut lines = vec![Line::new(format!("pulling {id}  "), Style::Bold).and(
        format!(
            "{per_cent} %  {} of {}  {} of {} files  {rate}, ETA {eta}",
            Bytes::new(progress.bytes_done),
            Bytes::new(progress.bytes_total),
            progress.files_done,
            progress.files_total,
        ),
        Style::Plain,
    )];
    lines.extend(progress.holders.iter().map(|holder| {
        let (state, style) = if holder.lost {
            ("lost", Style::Bad)
        } else {
            ("reading", Style::Good)
        };
        Line::new(format!("{:<12} ", holder.name), Style::Plain)
            .and(format!("{state:<8} "), style)
            .and(
                format!(
                    "{:>12} {:>14}",
                    holder.received.to_string(),
                    holder.rate.to_string()
                ),
                Style::Plain,
            )
    }));
    lines
}
