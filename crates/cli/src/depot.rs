//! `posthaste depot add|invite|list|rank|drain|undrain|remove`: the depots registered with the
//! service.

mod rank;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use hyper::Method;
use posthaste_api as api;
use posthaste_core::contract::Windows;
use posthaste_types::{ByteRate, Bytes};

use crate::{
    client::{ServiceArguments, ServiceClient},
    failure::Outcome,
    moment::parse_seconds,
    output,
    wishes::parse_dollars,
};

/// Adds, invites, lists and removes depots: the relays that data may go through
#[derive(Debug, Args)]
pub struct DepotArguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Adds a depot; `posthaste relay` prints the line to paste
    ///
    /// With a token to submit it is yours: it is called NAME@OWNER, your requests use it, and nobody else's do.
    Add(Box<AddArguments>),
    /// Invites somebody to lend disk: writes what their relay needs to make itself known
    ///
    /// They start `posthaste relay --join FILE`, and the depot is in the books. The invitation is a secret and good
    /// for one relay. The service must run with --source-listen: that is where relays come in.
    ///
    /// Example:
    ///   posthaste depot invite campus --output campus.invite --domain campus --hours 20-06
    #[command(verbatim_doc_comment)]
    Invite(Box<InviteArguments>),
    /// Lists the depots and what each is forecast to take
    List {
        #[command(flatten)]
        service: ServiceArguments,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Lists the depots on the way to a destination, those near the centre first
    ///
    /// So they are taken while nothing is known of what their paths carry: near the centre and far from the destination first,
    /// landmarks last. FROM CENTRE and ONWARD are round trips; a depot of `--level auto` is of level 2 for a destination that
    /// is nearer than the centre. What is not known is a dash: `posthaste paths --probe TO --from DEPOT` measures it.
    ///
    /// Example:
    ///   posthaste depot rank --to home
    #[command(verbatim_doc_comment)]
    Rank(rank::RankArguments),
    /// Drains a depot that is to be switched off: nothing new goes there, what is under way ends
    ///
    /// What it holds counts and is given out as before. `depot list` says `empty` once it may be switched
    /// off and nobody misses anything.
    Drain {
        /// The depot's name
        name: String,
        /// Send on what lies only there to other depots; else it stays until it expires
        #[arg(long = "move")]
        moves: bool,
        #[command(flatten)]
        service: ServiceArguments,
    },
    /// Uses a depot again that was drained
    Undrain {
        /// The depot's name
        name: String,
        #[command(flatten)]
        service: ServiceArguments,
    },
    /// Takes a depot out of the books; what it holds stays until it expires. Refused while datasets whose source is gone need that
    Remove {
        /// The depot's name
        name: String,
        /// Remove it even if datasets whose source is gone need what it holds
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        service: ServiceArguments,
    },
}

#[derive(Debug, Args)]
struct AddArguments {
    /// The name people will use
    name: String,
    /// Where the relay listens, https://host:port
    url: String,
    /// The key it must show
    #[arg(long, value_name = "sha256:…")]
    fingerprint: String,
    /// File with the relay's secret, readable only by you
    #[arg(long, value_name = "FILE")]
    secret_file: PathBuf,
    #[command(flatten)]
    terms: TermsArguments,
    #[command(flatten)]
    service: ServiceArguments,
}

/// On which terms a depot is lent
#[derive(Debug, Args)]
struct TermsArguments {
    /// Most to keep there [default: what the relay lends]
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Bytes>,
    /// Most to send there a second [default: what the relay lends]
    #[arg(long, value_name = "RATE")]
    rate: Option<ByteRate>,
    /// Hours in which it may be used, by the service's clock: 20-06, or "Mon-Fri 20-06, Sat-Sun 00-24"
    /// [default: always]
    #[arg(long, value_name = "HOURS")]
    hours: Option<Windows>,
    /// Send nothing there while the load of its machine is this or more, as cores' worth for each core: 0.5
    /// [default: whatever it is]
    #[arg(long, value_name = "LOAD")]
    load_max: Option<f64>,
    /// Failure domains, which fail together with it: its site, its provider, its region, separated by commas; can be repeated.
    /// No domain gets more fragments of a chunk than may be lost
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    domain: Vec<String>,
    /// Belongs to the site: use it when the other depots of a request do not suffice
    #[arg(long)]
    landmark: bool,
    /// Hops from the centre, 1 to 9: depots push on to those of a higher level, nearer the destination.
    /// `auto`: how far it is decides, for each destination [default: 1]
    #[arg(long, value_name = "N", value_parser = parse_level)]
    level: Option<u8>,
    /// Price of sending a gigabyte (10^9 bytes) there, in dollars
    #[arg(long, value_name = "PRICE", value_parser = parse_dollars)]
    usd_per_gb: Option<f64>,
    /// Price of keeping a gigabyte there for a month, in dollars
    #[arg(long, value_name = "PRICE", value_parser = parse_dollars)]
    usd_per_gb_month: Option<f64>,
    /// Price of a thousand PUTs, in dollars: a fragment stored there is one
    #[arg(long, value_name = "PRICE", value_parser = parse_dollars)]
    usd_per_1000_puts: Option<f64>,
    /// Price of a thousand GETs, in dollars: a fragment read from there is one
    #[arg(long, value_name = "PRICE", value_parser = parse_dollars)]
    usd_per_1000_gets: Option<f64>,
    /// Price of a gigabyte that leaves it, in dollars
    #[arg(long, value_name = "PRICE", value_parser = parse_dollars)]
    usd_per_gb_out: Option<f64>,
    /// Price of a gigabyte that goes to a depot or a domain; can be repeated
    #[arg(long, value_name = "NAME=PRICE", value_parser = parse_price_to)]
    usd_per_gb_out_to: Vec<(String, f64)>,
}

impl TermsArguments {
    fn read(self) -> api::LentTerms {
        api::LentTerms {
            capacity_bytes: self.capacity.map(Bytes::get),
            rate_bytes_per_s_max: self.rate.map(ByteRate::get),
            hours: self.hours.map(|hours| hours.to_string()),
            load_max: self.load_max,
            domain: (!self.domain.is_empty()).then(|| self.domain.join(",")),
            landmark: self.landmark,
            level: self.level,
            usd_per_gb: self.usd_per_gb,
            usd_per_gb_month: self.usd_per_gb_month,
            usd_per_1000_puts: self.usd_per_1000_puts,
            usd_per_1000_gets: self.usd_per_1000_gets,
            usd_per_gb_out: self.usd_per_gb_out,
            usd_per_gb_out_to: self.usd_per_gb_out_to.into_iter().collect(),
        }
    }
}

#[derive(Debug, Args)]
struct InviteArguments {
    /// New name of the depot
    name: String,
    /// Where to write the invitation, readable only by you [default: standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// For how long it is good, if no relay uses it: 7d, 12h
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = parse_seconds)]
    expires: u64,
    /// Take the invitation of that name back; a relay that used it stays in the books
    #[arg(long, conflicts_with_all = ["output", "expires"])]
    withdraw: bool,
    #[command(flatten)]
    terms: TermsArguments,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Runs the command.
///
/// # Errors
/// Returns the service's refusal, or fails if it can't be reached.
pub async fn run(arguments: DepotArguments) -> Outcome {
    match arguments.verb {
        Verb::Add(arguments) => add(*arguments).await?,
        Verb::Invite(arguments) => invite(*arguments).await?,
        Verb::List { service, json } => list(&service, json).await?,
        Verb::Rank(arguments) => rank::run(arguments).await?,
        Verb::Drain {
            name,
            moves,
            service,
        } => drain(&service, &name, moves).await?,
        Verb::Undrain { name, service } => undrain(&service, &name).await?,
        Verb::Remove {
            name,
            force,
            service,
        } => {
            let path = format!("/v1/depots/{name}?force={force}");
            ServiceClient::open(&service)?
                .tell(Method::DELETE, &path)
                .await?;
            output::line(&format!(
                "depot {name} is removed: what it holds stays until it expires"
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn add(arguments: AddArguments) -> Result<(), crate::failure::Failure> {
    let service = ServiceClient::open(&arguments.service)?;
    let new = api::NewDepot {
        name: arguments.name,
        url: arguments.url,
        fingerprint: arguments.fingerprint,
        secret: posthaste_service::read_private(&arguments.secret_file)?,
        ..arguments.terms.read().into()
    };
    let depot: api::Depot = service.post("/v1/depots", &new).await?;
    output::line(&format!(
        "depot {} added: {} to fill",
        depot.name,
        Bytes::new(depot.capacity_bytes)
    ));
    Ok(())
}

async fn invite(arguments: InviteArguments) -> Result<(), crate::failure::Failure> {
    let service = ServiceClient::open(&arguments.service)?;
    let name = arguments.name;
    let path = format!("/v1/depots/{name}/invite");
    if arguments.withdraw {
        return service.tell(Method::DELETE, &path).await;
    }
    let new = api::NewInvite {
        terms: arguments.terms.read(),
        expires_s: Some(arguments.expires),
    };
    let invite: api::Invite = service.post(&path, &new).await?;
    let Some(file) = arguments.output else {
        output::line(invite.text.trim_end());
        return Ok(());
    };
    posthaste_service::write_private(&file, &invite.text)?;
    output::line(&format!(
        "the invitation of {name} is in {}, good until {}",
        file.display(),
        invite.expires_at
    ));
    Ok(())
}

async fn drain(
    service: &ServiceArguments,
    name: &str,
    moves: bool,
) -> Result<(), crate::failure::Failure> {
    let path = format!("/v1/depots/{name}/drain");
    let new = api::NewDrain { moves };
    let depot: api::Depot = ServiceClient::open(service)?.post(&path, &new).await?;
    let then = if moves {
        "what lies only there goes on to others"
    } else {
        "what it holds stays until it expires"
    };
    output::line(&format!(
        "depot {} is drained: nothing new goes there, {then}",
        depot.name
    ));
    Ok(())
}

async fn undrain(service: &ServiceArguments, name: &str) -> Result<(), crate::failure::Failure> {
    let path = format!("/v1/depots/{name}/drain");
    let depot: api::Depot = ServiceClient::open(service)?.delete(&path).await?;
    output::line(&match depot.drain {
        Some(_) => format!(
            "depot {name} stays drained: it says itself that it ends; `posthaste relay drain --off` there takes that back"
        ),
        None => format!("depot {name} is used again"),
    });
    Ok(())
}

async fn list(service: &ServiceArguments, json: bool) -> Result<(), crate::failure::Failure> {
    let depots: Vec<api::Depot> = ServiceClient::open(service)?.get("/v1/depots").await?;
    if json {
        output::json(&depots);
        return Ok(());
    }
    let heading = [
        "NAME", "STATE", "HEARD", "VERSION", "FREE", "CAPACITY", "RATE p10", "p50", "p90", "LENT",
        "URL",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(depots.into_iter().map(|depot| {
        let lent = lent(&depot);
        let state = state(&depot);
        vec![
            depot.name,
            state,
            depot
                .heard_s_ago
                .map_or_else(String::new, |ago| format!("{ago:.0} s ago")),
            depot.version.unwrap_or_default(),
            Bytes::new(depot.free_bytes).to_string(),
            Bytes::new(depot.capacity_bytes).to_string(),
            ByteRate::new(depot.rate_p10_bytes_per_s).to_string(),
            ByteRate::new(depot.rate_p50_bytes_per_s).to_string(),
            ByteRate::new(depot.rate_p90_bytes_per_s).to_string(),
            lent,
            depot.url,
        ]
    }));
    output::table(&rows);
    Ok(())
}

/// Describes whether the depot is up, and the progress of its draining.
fn state(depot: &api::Depot) -> String {
    let drain = match &depot.drain {
        None => return depot.state.to_string(),
        Some(drain) if drain.is_empty => "empty".into(),
        Some(api::DepotDrain {
            only_there: Some(left),
            ..
        }) => format!("draining, {left} only there"),
        Some(_) => "draining".into(),
    };
    format!("{}, {drain}", depot.state)
}

/// Parses a level; `auto` is 0, as the service writes it.
fn parse_level(text: &str) -> Result<u8, String> {
    match text {
        "auto" => Ok(0),
        _ => match text.parse() {
            // The service sets the upper limit.
            Ok(level @ 1..) => Ok(level),
            _ => Err("a level is from 1 to 9, or auto".into()),
        },
    }
}

/// Parses the egress price to one place.
fn parse_price_to(text: &str) -> Result<(String, f64), String> {
    let form = || "write NAME=PRICE, like campus=0.02".to_owned();
    let (name, price) = text.split_once('=').ok_or_else(form)?;
    let price = parse_dollars(price).map_err(|_| form())?;
    match name.is_empty() {
        true => Err(form()),
        false => Ok((name.to_owned(), price)),
    }
}

/// Describes when the depot is lent: also in its owner's terms, if they say something.
fn hours(depot: &api::Depot) -> String {
    let Some(own) = &depot.own_hours else {
        return depot.hours.clone();
    };
    let (sign, off) = (
        if own.ahead_of_utc_min < 0 { '-' } else { '+' },
        own.ahead_of_utc_min.unsigned_abs(),
    );
    let clock = format!("UTC{sign}{:02}:{:02}", off / 60, off % 60);
    format!("{}; says {} ({clock})", depot.hours, own.open)
}

/// Summarizes the terms on which a depot is lent.
fn lent(depot: &api::Depot) -> String {
    let mut words = vec![hours(depot)];
    if let Some(most) = depot.load_max {
        let now = depot
            .load
            .map_or("unknown".into(), |load| format!("{load:.2}"));
        words.push(format!("below load {most} (now {now})"));
    }
    if depot.joined {
        words.push("joined".into());
    }
    if !depot.domain.is_empty() {
        words.push(format!("domain {}", depot.domain));
    }
    match depot.level {
        0 => words.push("level auto".into()),
        1 => {}
        level => words.push(format!("level {level}")),
    }
    if depot.landmark {
        words.push("landmark".into());
    }
    if depot.usd_per_gb > 0.0 || depot.usd_per_gb_month > 0.0 {
        let (send, keep) = (depot.usd_per_gb, depot.usd_per_gb_month);
        words.push(format!("${send}/GB, ${keep}/GB a month"));
    }
    if depot.usd_per_1000_puts > 0.0 || depot.usd_per_1000_gets > 0.0 {
        let (puts, gets) = (depot.usd_per_1000_puts, depot.usd_per_1000_gets);
        words.push(format!("${puts} for 1000 PUTs, ${gets} for 1000 GETs"));
    }
    if depot.usd_per_gb_out > 0.0 {
        words.push(format!("${}/GB out", depot.usd_per_gb_out));
    }
    for (to, price) in &depot.usd_per_gb_out_to {
        words.push(format!("${price}/GB to {to}"));
    }
    words.join("; ")
}
