//! `posthaste credential add|list|check|remove|rekey`: users' credentials, with which the service
//! reaches their places.

use std::{
    collections::BTreeMap,
    io::Read,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Subcommand};
use hyper::Method;
use posthaste_api as api;
use posthaste_endpoint::{encode, is_secret};

use crate::{
    client::{ServiceArguments, ServiceClient},
    failure::{Failure, Outcome},
    output,
};

/// Longest text of secrets, in bytes.
const SECRETS_BYTES_MAX: u64 = 64 << 10;

/// Gives the service credentials of your own, with which it opens `NAME:path` in what you ask for
///
/// Nobody else can use or see them, and the service keeps them encrypted.
#[derive(Debug, Args)]
pub struct CredentialArguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Gives a credential
    ///
    /// Its secrets are read from a file that only you can read, or from standard input: lines of `key = "value"`, as in
    /// profiles.toml.
    ///
    /// Examples:
    ///   posthaste credential add archive --url s3://results/alice --set access_key_id=AKIA --secrets archive.keys
    ///   posthaste credential add dav --url webdavs://dav.example.org/alice --set user=alice --secrets - < password
    #[command(verbatim_doc_comment)]
    Add(AddArguments),
    /// Lists yours, without what they are; an operator's token lists all
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        whose: WhoseArguments,
        #[command(flatten)]
        service: ServiceArguments,
    },
    /// Sees whether the service can open the place of one
    Check(OneArguments),
    /// Removes one: what is under way with it may still end well
    Remove(OneArguments),
    /// Has the service make a new key and encrypt all credentials with it; operators only
    Rekey {
        #[command(flatten)]
        service: ServiceArguments,
    },
}

#[derive(Debug, Args)]
struct AddArguments {
    /// Name that stands for it in addresses, as in `NAME:path`
    name: String,
    /// The address that `NAME:` stands for, like s3://bucket/prefix; of s3, azblob, gs, http(s), webdav(s) or ftp(s)
    #[arg(long, value_name = "ADDRESS")]
    url: String,
    /// A key of profiles that is no secret, and its value; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The file with the secrets, or `-` for standard input
    #[arg(long, value_name = "FILE")]
    secrets: PathBuf,
    /// Let it take the place of one of that name
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    whose: WhoseArguments,
    #[command(flatten)]
    service: ServiceArguments,
}

#[derive(Debug, Args)]
struct OneArguments {
    /// The credential's name
    name: String,
    #[command(flatten)]
    whose: WhoseArguments,
    #[command(flatten)]
    service: ServiceArguments,
}

#[derive(Debug, Args)]
struct WhoseArguments {
    /// Whose, with an operator's token [default: the token's owner]
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
}

impl WhoseArguments {
    fn query(&self) -> String {
        let owner = self.owner.as_ref();
        owner.map_or_else(String::new, |owner| {
            format!("?owner={}", encode(owner.as_bytes(), false))
        })
    }
}

impl OneArguments {
    fn path(&self, verb: &str) -> String {
        let name = encode(self.name.as_bytes(), false);
        format!("/v1/credentials/{name}{verb}{}", self.whose.query())
    }
}

/// Runs the command.
///
/// # Errors
/// Fails if secrets can't be read, the service refuses, or it can't be reached.
pub async fn run(arguments: CredentialArguments) -> Outcome {
    match arguments.verb {
        Verb::Add(arguments) => add(arguments).await?,
        Verb::List {
            json,
            whose,
            service,
        } => list(&service, &whose, json).await?,
        Verb::Check(one) => {
            let service = ServiceClient::open(&one.service)?;
            service.tell(Method::POST, &one.path("/check")).await?;
            output::line(&format!("the service can open {}:", one.name));
        }
        Verb::Remove(one) => {
            let service = ServiceClient::open(&one.service)?;
            service.tell(Method::DELETE, &one.path("")).await?;
        }
        Verb::Rekey { service } => {
            let service = ServiceClient::open(&service)?;
            let none = serde_json::Value::Null;
            let done: api::Rekeyed = service.post("/v1/credentials-key", &none).await?;
            output::line(&format!("{} credentials have a new key", done.credentials));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn add(arguments: AddArguments) -> Result<(), Failure> {
    let mut settings = secrets(&arguments.secrets)?;
    for pair in &arguments.set {
        let (key, value) = pair.split_once('=').ok_or_else(|| {
            // It may be a secret that lost its key.
            Failure::usage("can't understand --set: it is no KEY=VALUE")
        })?;
        if is_secret(key) {
            return Err(Failure::usage(format!(
                "can't take {key} from the command line, which others can see: write it to the file of --secrets"
            )));
        }
        settings.insert(key.to_owned(), value.to_owned());
    }
    let new = api::NewCredential {
        name: arguments.name,
        owner: arguments.whose.owner,
        url: arguments.url,
        settings,
        replace: arguments.replace,
    };
    let service = ServiceClient::open(&arguments.service)?;
    let kept: api::Credential = service.post("/v1/credentials", &new).await?;
    output::line(&format!("{}: is {} from now on", kept.name, kept.url));
    Ok(())
}

/// Reads the keys and values in a file, or standard input.
fn secrets(path: &Path) -> Result<BTreeMap<String, String>, Failure> {
    let text = if path == Path::new("-") {
        let mut text = String::new();
        let mut input = std::io::stdin().lock().take(SECRETS_BYTES_MAX);
        input.read_to_string(&mut text).map_err(|cause| {
            Failure::usage(format!("can't read secrets from standard input: {cause}"))
        })?;
        text
    } else {
        posthaste_service::read_private(path)?
    };
    toml::from_str(&text).map_err(|_| {
        // The message does not quote the text, which may be a secret.
        let shown = path.display();
        Failure::usage(format!(
            "can't understand the secrets in {shown}: they are no lines of key = \"value\""
        ))
    })
}

async fn list(
    service: &ServiceArguments,
    whose: &WhoseArguments,
    json: bool,
) -> Result<(), Failure> {
    let path = format!("/v1/credentials{}", whose.query());
    let known: Vec<api::Credential> = ServiceClient::open(service)?.get(&path).await?;
    if json {
        output::json(&known);
        return Ok(());
    }
    let heading = ["NAME", "OWNER", "PLACE", "HAS", "SINCE"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(known.into_iter().map(|one| {
        vec![
            one.name,
            one.owner.unwrap_or_default(),
            one.url,
            one.settings.join(" "),
            one.created,
        ]
    }));
    output::table(&rows);
    Ok(())
}
