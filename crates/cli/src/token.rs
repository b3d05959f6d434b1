//! `posthaste token add|list|remove`: tokens for others than the service's own user.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Subcommand, ValueEnum};
use hyper::Method;
use posthaste_api as api;

use crate::{
    client::{ServiceArguments, ServiceClient},
    failure::{Failure, Outcome},
    moment::parse_seconds,
    output,
};

/// Gives tokens of the service to people and programs, each with what it may, and takes them back
#[derive(Debug, Args)]
pub struct TokenArguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Makes a token and writes it to a file that only you can read
    ///
    /// Nobody can say it again: the service keeps a hash. Whoever has it names the file with --token-file, or shows its content as
    /// `Authorization: Bearer`.
    ///
    /// Examples:
    ///   posthaste token add prometheus --scope read --output prometheus.token
    ///   posthaste token add alice --scope submit --owner alice --project climate --below /scratch/alice --expires 90d --output alice.token
    #[command(verbatim_doc_comment)]
    Add(AddArguments),
    /// Lists the tokens that were given out
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        service: ServiceArguments,
    },
    /// Takes a token back: it is good for nothing from now on
    Remove {
        /// The token's name
        name: String,
        #[command(flatten)]
        service: ServiceArguments,
    },
}

/// Rights of a token.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Scope {
    /// Look at everything, and change nothing
    Read,
    /// And submit requests of its owner, change them, and get their data
    Submit,
    /// Be a mover: take work and do it, and nothing else
    Move,
    /// Everything
    Operate,
}

#[derive(Debug, Args)]
struct AddArguments {
    /// Name of it
    name: String,
    /// Rights of it
    #[arg(long, value_enum)]
    scope: Scope,
    /// Whose requests it makes, whatever they say themselves; one that submits needs it
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// On whose account they go
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// A directory of the service's host, below which everything lies that it moves; may be given several times, and one that
    /// submits needs it
    #[arg(long, value_name = "DIR")]
    below: Vec<PathBuf>,
    /// A profile of the service's user whose credentials its stage-ins may use; may be given several times [default: none]
    #[arg(long, value_name = "NAME")]
    profile: Vec<String>,
    /// For how long it is good, like 90d [default: until it is removed]
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    expires: Option<u64>,
    /// The file to write it to, which must not be there yet
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Runs the command.
///
/// # Errors
/// Returns the service's refusal, or fails if it can't be reached.
pub async fn run(arguments: TokenArguments) -> Outcome {
    match arguments.verb {
        Verb::Add(arguments) => add(arguments).await?,
        Verb::List { json, service } => list(&service, json).await?,
        Verb::Remove { name, service } => {
            ServiceClient::open(&service)?
                .tell(Method::DELETE, &format!("/v1/tokens/{name}"))
                .await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn add(arguments: AddArguments) -> Result<(), Failure> {
    if arguments.output.symlink_metadata().is_ok() {
        let shown = arguments.output.display();
        return Err(Failure::usage(format!(
            "can't write the token to {shown}: it is there already (remove it, or name another file)"
        )));
    }
    let below = arguments.below.iter();
    let below = below.map(|path| text(path)).collect::<Result<_, _>>()?;
    let new = api::NewToken {
        name: arguments.name,
        scope: match arguments.scope {
            Scope::Read => api::Scope::Read,
            Scope::Submit => api::Scope::Submit,
            Scope::Move => api::Scope::Move,
            Scope::Operate => api::Scope::Operate,
        },
        owner: arguments.owner,
        project: arguments.project,
        below,
        profiles: arguments.profile,
        lifetime_s: arguments.expires,
    };
    let service = ServiceClient::open(&arguments.service)?;
    let made: api::MadeToken = service.post("/v1/tokens", &new).await?;
    let written = posthaste_service::write_private(&arguments.output, &format!("{}\n", made.token));
    if let Err(error) = written {
        // Nobody has it: it must not stay good.
        let path = format!("/v1/tokens/{}", made.known.name);
        service.tell(Method::DELETE, &path).await?;
        return Err(error.into());
    }
    let until = made.known.expires.map_or_else(
        || "until it is removed".to_owned(),
        |until| format!("until {until}"),
    );
    output::line(&format!(
        "{} has the token {}, good {until}",
        arguments.output.display(),
        made.known.name
    ));
    Ok(())
}

fn text(path: &Path) -> Result<String, Failure> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        let shown = path.display();
        Failure::usage(format!("can't give out {shown}: its name is not UTF-8"))
    })
}

async fn list(service: &ServiceArguments, json: bool) -> Result<(), Failure> {
    let tokens: Vec<api::Token> = ServiceClient::open(service)?.get("/v1/tokens").await?;
    if json {
        output::json(&tokens);
        return Ok(());
    }
    let heading = [
        "NAME", "SCOPE", "OWNER", "PROJECT", "BELOW", "PROFILES", "EXPIRES",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(tokens.into_iter().map(|token| {
        vec![
            token.name,
            token.scope.word().to_owned(),
            token.owner.unwrap_or_default(),
            token.project.unwrap_or_default(),
            token.below.join(" "),
            token.profiles.join(" "),
            token.expires.unwrap_or_else(|| "never".to_owned()),
        ]
    }));
    output::table(&rows);
    Ok(())
}
