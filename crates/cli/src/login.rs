//! `posthaste login` and `logout`: users without a token of the service log in with their site's
//! identity provider.

mod device;
pub mod stored;

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use http::Uri;
use posthaste_api as api;
use posthaste_endpoint::relay::is_loopback;
use posthaste_service::Issuer;
use serde_json::json;

use crate::{
    client::ServiceClient,
    config,
    failure::{Exit, Failure, Outcome},
    output, whoami,
};
use stored::{Login, Stored};

/// Logs in to a service with your site's identity provider, in a browser anywhere
///
/// Shows an address and a code. Whoever opens the address, on any machine, enters the code and says yes there is logged in here.
/// What comes of it is kept in a file that only you can read, and other commands show it to this service from then on where neither
/// --token-file nor POSTHASTE_TOKEN_FILE names another token. It is renewed as long as the provider allows.
///
/// Examples:
///   posthaste login --service https://dtn0
///   posthaste whoami --service https://dtn0
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct LoginArguments {
    /// An authority whose certificates of the provider and the service are trusted beside the system's [default: none]
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// File with the client's secret, which only you can read, for providers that want one [default: none]
    #[arg(long, value_name = "FILE")]
    client_secret_file: Option<PathBuf>,
    /// Print JSON: a line with the address and the code, and one when it is done
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    service: Where,
}

/// Forgets what `posthaste login` got from a service's identity provider, and gives it back there
#[derive(Debug, Args)]
pub struct LogoutArguments {
    #[command(flatten)]
    service: Where,
}

/// Which service.
#[derive(Debug, Args)]
struct Where {
    /// Where the service listens
    #[arg(id = "service", long = "service", value_name = "URL", env = "POSTHASTE_SERVICE",
          default_value = config::SERVICE_URL, help_heading = "Service")]
    url: String,
}

/// Logs in.
///
/// # Errors
/// Fails if the service offers no login, nobody confirmed in time, or the service grants the user
/// nothing.
pub async fn run(arguments: LoginArguments) -> Outcome {
    let url = arguments.service.url.trim_end_matches('/').to_owned();
    check_address(&url)?;
    let ca_file = arguments.ca_file.map(std::path::absolute).transpose();
    let ca_file = ca_file.map_err(anyhow::Error::from)?;
    let secret_file = arguments.client_secret_file.map(std::path::absolute);
    let secret_file = secret_file.transpose().map_err(anyhow::Error::from)?;
    let service = ServiceClient::anonymous(&url, ca_file.as_deref())?;
    let told: api::Identity = service.get("/v1/identity").await?;
    let issuer = Issuer::open(&told.issuer, ca_file.as_deref())?;
    let secret = secret_file.as_deref().map(posthaste_service::read_private);
    let client = device::Client {
        issuer: &issuer,
        discovery: issuer.discover().await?,
        id: &told.client_id,
        secret: secret.transpose()?,
    };
    let offer = client.ask(&told.scopes).await?;
    announce(&offer, &told.issuer, arguments.json);
    let tokens = client.wait(&offer).await?;
    let stored = Stored {
        service: url.clone(),
        issuer: told.issuer,
        client_id: told.client_id,
        bearer: told.bearer,
        ca_file,
        client_secret_file: secret_file,
        tokens: tokens.kept(told.bearer, None)?,
    };
    let login = Login::keep(&stored)?;
    let who = ServiceClient::logged_in(&url, login.clone())?;
    let who: Result<api::Whoami, _> = who.get("/v1/whoami").await;
    let who = match who {
        Ok(who) => who,
        Err(failure) => {
            // It is good for nothing here.
            if !failure.may_pass() {
                login.forget()?;
            }
            return Err(failure);
        }
    };
    if arguments.json {
        output::json(&who);
    } else {
        output::line(&format!("logged in to {url}"));
        whoami::show(&who);
    }
    Ok(ExitCode::SUCCESS)
}

/// Logs out.
///
/// # Errors
/// Fails if nobody is logged in, and with the operating system's errors.
pub async fn end(arguments: LogoutArguments) -> Outcome {
    let url = arguments.service.url;
    let Some(login) = Login::find(&url)? else {
        return Err(Failure::new(
            Exit::FileNotFound,
            format!("can't log out of {url}: nobody is logged in there"),
        ));
    };
    let stored = login.forget()?;
    if let Err(failure) = device::give_back(&stored).await {
        output::complain(&format!(
            "{failure}; it is forgotten here, and good until it ends by itself"
        ));
    }
    output::line(&format!("logged out of {url}"));
    Ok(ExitCode::SUCCESS)
}

/// Checks that nobody on the network can read the token.
fn check_address(url: &str) -> Result<(), Failure> {
    let uri: Option<Uri> = url.parse().ok();
    let place = uri
        .as_ref()
        .and_then(|uri| uri.scheme_str().zip(uri.host()));
    match place {
        Some(("https", _)) => Ok(()),
        Some(("http", host)) if is_loopback(host) => Ok(()),
        _ => Err(Failure::usage(format!(
            "can't log in to {url}: it is neither https:// nor on this machine, and others could read what is shown"
        ))),
    }
}

fn announce(offer: &device::Offer, issuer: &str, as_json: bool) {
    if as_json {
        output::json(&json!({
            "verification_uri": offer.verification_uri,
            "verification_uri_complete": offer.verification_uri_complete,
            "user_code": offer.user_code,
            "expires_in_s": offer.expires_in,
            "issuer": issuer,
        }));
        return;
    }
    output::line(&format!(
        "Open {} and enter the code {}",
        offer.verification_uri, offer.user_code
    ));
    if let Some(address) = &offer.verification_uri_complete {
        output::line(&format!(
            "or open {address} and see that it shows that code."
        ));
    }
    output::line(&format!(
        "{issuer} then asks who you are. Waiting for at most {} minutes.",
        offer.expires_in.div_ceil(60)
    ));
}
