//! `posthaste parked list|resume|drop`: streams that could not reach their destination.

pub(crate) mod places;

use std::{ffi::OsString, path::PathBuf, process::ExitCode, sync::Arc};

use clap::{Args, Subcommand};
use posthaste_endpoint::{Access, Endpoint, Error, ErrorKind, Location, posix::DraftRules};
use posthaste_engine::parked::{self, ParkId, Parked};
use posthaste_types::Bytes;
use serde_json::{Value, json};

use crate::{
    failure::{Exit, Failure, Outcome},
    output, through,
};
use places::Place;

/// Lists, completes and drops streams that `posthaste cp - DST` parked
#[derive(Debug, Args)]
pub struct ParkedArguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Lists the streams that are parked
    List {
        #[command(flatten)]
        at: PlaceArguments,
    },
    /// Completes a stream at its destination, without its source, and removes it from its place
    Resume {
        /// The stream's id, as `parked list` shows it
        id: ParkId,
        /// Complete a stream whose end was never seen with the bytes there are
        #[arg(long)]
        cut_short: bool,
        #[command(flatten)]
        at: PlaceArguments,
    },
    /// Removes a stream from its place, and what its destination has of it
    Drop {
        /// The stream's id, as `parked list` shows it
        id: ParkId,
        /// Also one whose end was never seen, which may still be running
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        at: PlaceArguments,
    },
}

#[derive(Debug, Args)]
struct PlaceArguments {
    /// The parking place [default: all where you parked before]
    #[arg(long, value_name = "URL")]
    at: Option<OsString>,
    /// Profile for the place and the destination [default: the one each was used with]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Option for ssh as in ssh_config, like Port=2222; may be repeated
    #[arg(long, value_name = "OPTION")]
    ssh_option: Vec<String>,
    /// The gateways known, and which hosts lie behind them [default: gateways.toml beside profiles.toml, if there]
    #[arg(long, value_name = "FILE")]
    gateways: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl PlaceArguments {
    fn places(&self) -> Result<Vec<Place>, Failure> {
        match &self.at {
            None => Ok(places::known()),
            Some(at) => Ok(vec![Place {
                url: places::absolute(at)?,
                profile: self.profile.clone(),
            }]),
        }
    }

    fn access(&self, profile: Option<&String>) -> Result<Access, Error> {
        let profile = self.profile.as_ref().or(profile).cloned();
        let gateways = through::known(self.gateways.as_deref())?;
        Ok(Access::new(profile, self.ssh_option.clone()).with_gateways(gateways))
    }

    async fn open(&self, url: &str, profile: Option<&String>) -> Result<Arc<dyn Endpoint>, Error> {
        let rules = DraftRules {
            verify: false,
            fsync: true,
            ..DraftRules::default()
        };
        let location = Location::parse(url.as_ref())?;
        self.access(profile)?.open(location, rules).await
    }

    /// Returns the place that has the stream, and the facts of the stream.
    async fn find(&self, id: &ParkId) -> Result<(Arc<dyn Endpoint>, Parked), Failure> {
        let mut failure = None;
        for place in self.places()? {
            let found = match self.open(&place.url, place.profile.as_ref()).await {
                Ok(endpoint) => parked::find(&endpoint, id)
                    .await
                    .map(|found| (endpoint, found)),
                Err(error) => Err(error),
            };
            match found {
                Ok(found) => return Ok(found),
                // A place that can't be asked may be the one.
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    failure = Some(Failure::from(error));
                }
                Err(_) => {}
            }
        }
        Err(failure.unwrap_or_else(|| {
            Failure::new(
                Exit::FileNotFound,
                format!("can't find the parked stream {id}: it is at none of the places you parked at (name another with --at)"),
            )
        }))
    }
}

/// Runs the command.
///
/// # Errors
/// Returns the errors of the parking place and of the destination.
pub async fn run(arguments: ParkedArguments) -> Outcome {
    match arguments.verb {
        Verb::List { at } => list(&at).await,
        Verb::Resume { id, cut_short, at } => resume(&at, &id, cut_short).await,
        Verb::Drop { id, force, at } => drop_stream(&at, &id, force).await,
    }
}

async fn list(at: &PlaceArguments) -> Outcome {
    let mut code = ExitCode::SUCCESS;
    let (mut shown, mut rows) = (Vec::new(), Vec::new());
    rows.push(
        [
            "ID",
            "STATE",
            "PARKED",
            "THERE",
            "BEGAN",
            "DESTINATION",
            "PLACE",
        ]
        .map(str::to_owned)
        .to_vec(),
    );
    for place in at.places()? {
        let found = match self::found(at, &place).await {
            Ok(found) => found,
            Err(error) => {
                let failure = Failure::from(error);
                output::complain(&failure);
                code = failure.exit_code();
                continue;
            }
        };
        for parked in found {
            rows.push(row(&parked, &place));
            shown.push(described(&parked, &place));
        }
    }
    if at.json {
        output::json(&shown);
    } else if !shown.is_empty() {
        output::table(&rows);
    }
    Ok(code)
}

async fn found(at: &PlaceArguments, place: &Place) -> Result<Vec<Parked>, Error> {
    let endpoint = at.open(&place.url, place.profile.as_ref()).await?;
    parked::list(&endpoint).await
}

fn state(parked: &Parked) -> &'static str {
    if parked.record.whole.is_some() {
        "whole"
    } else {
        "open"
    }
}

fn row(parked: &Parked, place: &Place) -> Vec<String> {
    let record = &parked.record;
    vec![
        record.id.to_string(),
        state(parked).to_owned(),
        Bytes::new(parked.bytes).to_string(),
        Bytes::new(record.confirmed.bytes()).to_string(),
        record.began.clone(),
        output::one_line(&record.destination),
        output::one_line(&place.url),
    ]
}

fn described(parked: &Parked, place: &Place) -> Value {
    let record = &parked.record;
    json!({
        "id": record.id.to_string(),
        "state": state(parked),
        "destination": record.destination,
        "place": place.url,
        "began": record.began,
        "reason": record.why,
        "size_bytes": record.whole.map(|(size, _)| size),
        "parked_bytes": parked.bytes,
        "confirmed_bytes": record.confirmed.bytes(),
    })
}

async fn resume(at: &PlaceArguments, id: &ParkId, cut_short: bool) -> Outcome {
    let (place, found) = at.find(id).await?;
    let record = &found.record;
    let destination = at
        .open(&record.destination, record.profile.as_ref())
        .await?;
    let resumed = parked::resume(&place, &destination, id, cut_short).await?;
    if at.json {
        output::json(&json!({
            "id": id.to_string(),
            "destination": record.destination,
            "size_bytes": resumed.size,
            "kept_bytes": resumed.kept,
            "sent_bytes": resumed.sent,
        }));
    } else {
        output::line(&format!(
            "{} is whole: {}, of which {} were there and {} came from the parking place",
            output::one_line(&record.destination),
            Bytes::new(resumed.size),
            Bytes::new(resumed.kept),
            Bytes::new(resumed.sent),
        ));
    }
    Ok(ExitCode::SUCCESS)
}

async fn drop_stream(at: &PlaceArguments, id: &ParkId, force: bool) -> Outcome {
    let (place, found) = at.find(id).await?;
    let record = &found.record;
    let destination = at.open(&record.destination, record.profile.as_ref()).await;
    let dropped = parked::drop_stream(&place, destination, id, force).await?;
    let left = dropped.left.as_ref().map(ToString::to_string);
    if at.json {
        output::json(&json!({ "id": id.to_string(), "files": dropped.files, "left": left }));
    } else {
        output::line(&format!("{id} dropped: {} files removed", dropped.files));
        if let Some(left) = left {
            output::complain(&format!(
                "an unfinished copy may be left at the destination: {left}"
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}
