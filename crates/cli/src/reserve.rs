//! `posthaste reserve`: reserves bandwidth at a provider.

mod table;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Subcommand};
use jiff::Timestamp as Moment;
use posthaste_circuit::{
    Answer, Ask, Capabilities, Change, Circuit, Id, Placing, Provider, Refusal, What, open, place,
    read_circuits, read_rate, show_rate,
};
use posthaste_types::{ByteRate, Bytes, Timestamp};

use crate::{
    failure::{Exit, Failure, Outcome},
    moment::parse_coming,
};

/// Reserves bandwidth at whoever sells it: OSCARS, a gateway, or what else `circuits.toml` names
///
/// Requests of the service reserve by themselves where their deadline needs it. This is for
/// people: to try a circuit, to see what is reserved, to give something back.
///
/// Examples:
///   posthaste reserve new --provider east --rate 1Gbit --from 14:00 --until 16:00
///   posthaste reserve new --to lab --volume 2T --deadline 18:00 --dry-run
///   posthaste reserve list
///   posthaste reserve modify --provider east ID --until 15:30
///   posthaste reserve release --provider east ID
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct ReserveArguments {
    #[command(subcommand)]
    command: ReserveCommand,
}

#[derive(Debug, Subcommand)]
enum ReserveCommand {
    New(NewArguments),
    List(ListArguments),
    Show(OneArguments),
    Modify(ModifyArguments),
    Release(OneArguments),
}

/// Where circuits are written down.
#[derive(Debug, Args)]
struct Where {
    /// The file of circuits
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/posthaste/circuits.toml"
    )]
    circuits: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Holds what is asked for and commits it
#[derive(Debug, Args)]
struct NewArguments {
    #[command(flatten)]
    place: Where,
    /// The circuit
    #[arg(long, value_name = "NAME", required_unless_present = "to")]
    provider: Option<String>,
    /// A depot or gateway that the circuit leads to, instead of its name
    #[arg(long, value_name = "NAME", conflicts_with = "provider")]
    to: Option<String>,
    /// Rate: 1Gbit, 400Mbit or 100MiB/s; of a volume, never faster than this
    #[arg(long, value_name = "RATE", value_parser = read_rate, required_unless_present = "volume")]
    rate: Option<ByteRate>,
    /// From when: 14:00, 2h, 2026-11-20T18:00; now without it
    #[arg(long, value_name = "WHEN")]
    from: Option<String>,
    /// Until when
    #[arg(long, value_name = "WHEN", required_unless_present = "volume")]
    until: Option<String>,
    /// Instead of a rate and an end: so many bytes
    #[arg(
        long,
        value_name = "SIZE",
        conflicts_with = "until",
        requires = "deadline"
    )]
    volume: Option<Bytes>,
    /// All of the volume by then
    #[arg(long, value_name = "WHEN", requires = "volume")]
    deadline: Option<String>,
    /// A name for it: asked again with the same name, it is the same reservation
    #[arg(long, value_name = "NAME")]
    key: Option<String>,
    /// Say what would be asked for, and ask for nothing
    #[arg(long)]
    dry_run: bool,
}

/// Shows all that is reserved
#[derive(Debug, Args)]
struct ListArguments {
    #[command(flatten)]
    place: Where,
    /// Only at this circuit
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
}

/// Reservation: its circuit and its provider's name of it
#[derive(Debug, Args)]
struct OneArguments {
    #[command(flatten)]
    place: Where,
    /// The circuit
    #[arg(long, value_name = "NAME")]
    provider: String,
    /// The provider's name of the reservation
    id: String,
}

/// Changes the rate or the end
#[derive(Debug, Args)]
struct ModifyArguments {
    #[command(flatten)]
    one: OneArguments,
    /// Another rate
    #[arg(long, value_name = "RATE", value_parser = read_rate, required_unless_present = "until")]
    rate: Option<ByteRate>,
    /// Another end, later or earlier
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// Returns the provider's refusal, or fails if the provider can't be reached or does not know us,
/// or a file or the command line is invalid.
pub async fn run(arguments: ReserveArguments) -> Outcome {
    match arguments.command {
        ReserveCommand::New(arguments) => new(arguments).await,
        ReserveCommand::List(arguments) => list(arguments).await,
        ReserveCommand::Show(arguments) => show(arguments).await,
        ReserveCommand::Modify(arguments) => modify(arguments).await,
        ReserveCommand::Release(arguments) => release(arguments).await,
    }
}

async fn new(arguments: NewArguments) -> Outcome {
    let circuit = chosen(&arguments)?;
    let provider = open(&circuit)?;
    let what = what(&arguments, &circuit)?;
    if arguments.dry_run {
        return try_out(
            &what,
            &circuit,
            &provider.capabilities(),
            arguments.place.json,
        );
    }
    let ask = Ask {
        key: arguments
            .key
            .unwrap_or_else(|| format!("cli-{}", Moment::now().as_microsecond())),
        what,
    };
    let held = granted(provider.hold(&ask).await?, "hold", &circuit)?;
    // Committed or released: no reservation is left that its owner does not know.
    let committed = match provider.commit(&held.id).await {
        Ok(answer) => granted(answer, "commit", &circuit),
        Err(error) => Err(Failure::from(error)),
    };
    if let Err(failure) = committed {
        let released = provider.release(&held.id).await;
        let left = match released {
            Ok(()) => String::new(),
            Err(_) => format!("; {} may be left there: release it", held.id),
        };
        return Err(failure.and(&left));
    }
    table::tell_one(
        &circuit,
        &provider.status(&held.id).await?,
        arguments.place.json,
    );
    Ok(ExitCode::SUCCESS)
}

/// Reports the terms that would be requested.
fn try_out(what: &What, circuit: &Circuit, can: &Capabilities, json: bool) -> Outcome {
    match place(what, can, circuit.rate_max, now()) {
        Placing::At(terms) => {
            table::tell_terms(circuit, &terms, json);
            Ok(ExitCode::SUCCESS)
        }
        Placing::TooMuch { done } => Err(Failure::new(
            Exit::Refused,
            format!(
                "can't reserve on {}: all of its {} would be done at {} (give a later deadline)",
                circuit.name,
                show_rate(circuit.rate_max),
                table::show_time(done)
            ),
        )),
    }
}

async fn list(arguments: ListArguments) -> Outcome {
    let mut rows = Vec::new();
    for circuit in circuits(&arguments.place.circuits)? {
        if arguments
            .provider
            .as_ref()
            .is_some_and(|name| *name != circuit.name)
        {
            continue;
        }
        let mut all = open(&circuit)?.list().await?;
        all.sort_by(|one, other| one.id.cmp(&other.id));
        rows.extend(all.into_iter().map(|status| (circuit.clone(), status)));
    }
    if let Some(name) = &arguments.provider {
        find(&arguments.place.circuits, name)?;
    }
    table::tell_all(&rows, arguments.place.json);
    Ok(ExitCode::SUCCESS)
}

async fn show(arguments: OneArguments) -> Outcome {
    let (circuit, provider) = at(&arguments)?;
    let status = provider.status(&Id::new(arguments.id)).await?;
    table::tell_one(&circuit, &status, arguments.place.json);
    Ok(ExitCode::SUCCESS)
}

async fn modify(arguments: ModifyArguments) -> Outcome {
    let (circuit, provider) = at(&arguments.one)?;
    let change = Change {
        rate: arguments.rate,
        until: arguments
            .until
            .as_deref()
            .map(|text| coming("end", text))
            .transpose()?,
        ..Change::default()
    };
    let id = Id::new(arguments.one.id);
    granted(provider.modify(&id, &change).await?, "change", &circuit)?;
    table::tell_one(
        &circuit,
        &provider.status(&id).await?,
        arguments.one.place.json,
    );
    Ok(ExitCode::SUCCESS)
}

async fn release(arguments: OneArguments) -> Outcome {
    let (_circuit, provider) = at(&arguments)?;
    provider.release(&Id::new(arguments.id)).await?;
    Ok(ExitCode::SUCCESS)
}

fn at(arguments: &OneArguments) -> Result<(Circuit, Box<dyn Provider>), Failure> {
    let circuit = find(&arguments.place.circuits, &arguments.provider)?;
    let provider = open(&circuit)?;
    Ok((circuit, provider))
}

fn circuits(file: &Path) -> Result<Vec<Circuit>, Failure> {
    Ok(read_circuits(file)?)
}

fn find(file: &Path, name: &str) -> Result<Circuit, Failure> {
    let mut all = circuits(file)?;
    let at = all.iter().position(|circuit| circuit.name == name);
    at.map(|at| all.swap_remove(at)).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|circuit| circuit.name.as_str()).collect();
        Failure::usage(format!(
            "can't find the circuit {name}: {} has {}",
            file.display(),
            if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            }
        ))
    })
}

fn chosen(arguments: &NewArguments) -> Result<Circuit, Failure> {
    let file = &arguments.place.circuits;
    if let Some(name) = &arguments.provider {
        return find(file, name);
    }
    let to = arguments.to.as_deref().unwrap_or_default();
    let mut leading = circuits(file)?;
    leading.retain(|circuit| circuit.leads_to.iter().any(|name| name == to));
    match leading.len() {
        1 => Ok(leading.swap_remove(0)),
        0 => Err(Failure::usage(format!(
            "can't find a circuit to {to}: none in {} leads there (see its leads_to)",
            file.display()
        ))),
        _ => Err(Failure::usage(format!(
            "can't choose a circuit to {to}: several lead there (name one with --provider)"
        ))),
    }
}

fn what(arguments: &NewArguments, circuit: &Circuit) -> Result<What, Failure> {
    let from = arguments
        .from
        .as_deref()
        .map(|text| coming("start", text))
        .transpose()?;
    let end = |text: &Option<String>, name| match text {
        Some(text) => coming(name, text),
        None => Err(Failure::usage("say --until, or --volume and --deadline")),
    };
    if let Some(bytes) = arguments.volume {
        return Ok(What::Volume {
            bytes,
            earliest: from.unwrap_or_else(now),
            deadline: end(&arguments.deadline, "deadline")?,
            rate_max: arguments.rate.unwrap_or(circuit.rate_max),
        });
    }
    let terms = posthaste_circuit::Terms {
        rate: arguments.rate.unwrap_or(ByteRate::ZERO),
        from: from.unwrap_or_else(now),
        until: end(&arguments.until, "end")?,
    };
    if terms.rate == ByteRate::ZERO || terms.until <= terms.from {
        return Err(Failure::usage(
            "can't reserve nothing: give a rate, and an end after the start",
        ));
    }
    Ok(What::Fixed(terms))
}

fn granted<T>(answer: Answer<T>, doing: &str, circuit: &Circuit) -> Result<T, Failure> {
    match answer {
        Answer::Granted(it) => Ok(it),
        Answer::Refused(Refusal { why, fits }) => {
            let fits = fits.map(|rate| format!(" ({} would fit)", show_rate(rate)));
            let line = format!(
                "can't {doing} a reservation on {}: {why}{}",
                circuit.name,
                fits.unwrap_or_default()
            );
            Err(Failure::new(Exit::Refused, line))
        }
    }
}

/// Parses a future moment: in the format of deadlines, or the next one with a time of day.
fn coming(what: &str, text: &str) -> Result<Timestamp, Failure> {
    let at = match text.parse::<jiff::civil::Time>() {
        Ok(time) if text.contains(':') && !text.contains('T') => next(time)?,
        Ok(_) | Err(_) => parse_coming(what, text)?,
    };
    Ok(timestamp(at))
}

fn next(time: jiff::civil::Time) -> Result<Moment, Failure> {
    let now = jiff::Zoned::now();
    let unreal =
        |cause: jiff::Error| Failure::usage(format!("can't read the time {time}: {cause}"));
    let today = now.with().time(time).build().map_err(unreal)?;
    let at = if today > now {
        today
    } else {
        today.tomorrow().map_err(unreal)?
    };
    Ok(at.timestamp())
}

fn timestamp(at: Moment) -> Timestamp {
    Timestamp::from_micros(u64::try_from(at.as_microsecond()).unwrap_or(0))
}

fn now() -> Timestamp {
    timestamp(Moment::now())
}
