//! Sources of credentials: our own profile, or AWS's usual chain.

use std::{collections::HashMap, path::PathBuf, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use reqsign_aws_v4::{
    Credential, DefaultCredentialProvider, ProcessCredentialProvider, RequestSigner,
    StaticCredentialProvider,
};
use reqsign_core::{
    CommandExecute, CommandOutput, Context, Env, FileRead, HttpSend, Result as SignResult, Signer,
};

use super::Store;
use crate::{
    Error, ErrorKind, Result,
    access::Chosen,
    config::{self, Profile},
    dial::Dialler,
    printer::{self, Company},
    web,
};

/// Timeout of a metadata service: a slower one does not exist.
const METADATA_WITHIN: Duration = Duration::from_secs(2);

/// Largest answer of a credential service, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

#[derive(Debug)]
struct Files;

impl FileRead for Files {
    async fn file_read(&self, path: &str) -> SignResult<Vec<u8>> {
        config::read_small_file(path).map_err(|cause| {
            reqsign_core::Error::config_invalid("can't read a file").with_source(cause)
        })
    }
}

#[derive(Debug)]
struct Http(Client<HttpsConnector<Dialler>, Full<Bytes>>);

impl HttpSend for Http {
    async fn http_send(&self, request: http::Request<Bytes>) -> SignResult<http::Response<Bytes>> {
        let unexpected = |what: &str| reqsign_core::Error::unexpected(what);
        let asking = async {
            let answer = self
                .0
                .request(request.map(Full::new))
                .await
                .map_err(|cause| unexpected("no credential service answers").with_source(cause))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX)
                .collect()
                .await
                .map_err(|_| unexpected("a credential service broke off"))?;
            Ok(http::Response::from_parts(head, body.to_bytes()))
        };
        tokio::time::timeout(METADATA_WITHIN, asking)
            .await
            .map_err(|_| unexpected("no credential service answers"))?
    }
}

/// Environment as all code here reads it: an empty variable counts as unset.
#[derive(Debug)]
struct Environment;

impl Env for Environment {
    fn var(&self, key: &str) -> Option<String> {
        config::variable(key)
    }

    fn vars(&self) -> HashMap<String, String> {
        config::variables()
    }

    fn home_dir(&self) -> Option<PathBuf> {
        config::home()
    }
}

/// Program that prints credentials, with its arguments.
#[derive(Debug)]
struct Printer(Vec<String>);

impl CommandExecute for Printer {
    /// Runs the program as it was parsed here: the library splits its line at spaces, even inside
    /// quotes.
    async fn command_execute<'a>(
        &'a self,
        _program: &'a str,
        _arguments: &'a [&'a str],
    ) -> SignResult<CommandOutput> {
        let (program, arguments) = self.0.split_first().ok_or_else(|| {
            reqsign_core::Error::config_invalid("credential_process names no program")
        })?;
        let running = printer::run(program, arguments, Company::Terminal);
        let output = running.await.map_err(|cause| {
            reqsign_core::Error::config_invalid("can't run the credential process")
                .with_source(cause)
        })?;
        Ok(CommandOutput {
            status: output.status.code().unwrap_or(-1),
            stdout: output.stdout,
            stderr: output.stderr,
        })
    }
}

/// Addressing and signing of requests to one store.
pub(super) struct Signing {
    /// Signer; none for anonymous requests.
    pub signer: Option<Signer<Credential>>,
    /// Address of the store; `None` for Amazon's own.
    pub endpoint: Option<String>,
    pub region: String,
    /// Certificates to trust beside the system's.
    pub ca_file: Option<PathBuf>,
    /// Owner of the credentials, as far as known without a request: never a secret.
    pub owner: String,
    /// True if the requester pays.
    pub requester_pays: bool,
}

/// Chosen profile: ours with its name, or the name of one of AWS's.
type Owners<'a> = (Option<(&'a str, &'a Profile)>, Option<&'a str>);

fn owners(chosen: Option<&Chosen>) -> Result<Owners<'_>> {
    let ours = chosen.and_then(|chosen| Some((&*chosen.name, chosen.ours.as_ref()?)));
    let theirs = match (chosen, ours) {
        (Some(chosen), None) => Some(&*chosen.name),
        (Some(_), Some(_)) | (None, _) => None,
    };
    if let Some(wanted) = theirs
        && !config::aws_knows(wanted)
    {
        return Err(config::no_profile(wanted));
    }
    Ok((ours, theirs))
}

/// Returns the address of the store of the chosen profile or of the environment; `None` for
/// Amazon's own.
///
/// # Errors
/// [`ErrorKind::Invalid`] for an unknown profile.
pub(crate) fn address_of(chosen: Option<&Chosen>) -> Result<Option<String>> {
    Ok(match owners(chosen)? {
        (Some((_, profile)), _) => profile.endpoint.clone(),
        (None, theirs) => config::aws_address(theirs).0,
    })
}

impl Signing {
    /// Loads the credentials of the chosen profile, ours before AWS's, or those of the environment.
    pub(super) fn load(chosen: Option<&Chosen>, unsigned: bool) -> Result<Self> {
        let (ours, theirs) = owners(chosen)?;
        let (mut endpoint, mut region) = config::aws_address(theirs);
        let mut ca_file = config::aws_ca_bundle(theirs);
        let mut owner = format!("aws {}", theirs.unwrap_or_default());
        if let Some((name, profile)) = ours {
            endpoint = profile.endpoint.clone();
            region = profile.region.clone().unwrap_or(region);
            ca_file = profile.ca_file.clone();
            owner = format!("profile {name}");
        }
        let process = match ours {
            Some(_) => None,
            None => config::aws_credential_process(theirs)?,
        };
        let context = Context::new()
            .with_env(Environment)
            .with_file_read(Files)
            .with_http_send(Http(web::client(&Dialler::new()?, None)?))
            .with_command_execute(Printer(process.clone().unwrap_or_default()));
        let request = RequestSigner::new("s3", &region);
        let signer = match ours {
            _ if unsigned => None,
            Some((_, profile)) if profile.anonymous => None,
            Some((name, profile)) => Some(Signer::new(context, keys(name, profile)?, request)),
            None => {
                let mut chain = match process {
                    // The provider only requires a name.
                    Some(_) => DefaultCredentialProvider::builder()
                        .process(ProcessCredentialProvider::new().with_command("printer")),
                    None => DefaultCredentialProvider::builder().no_process(),
                };
                if let Some(name) = theirs {
                    // An explicitly chosen profile wins over the environment.
                    chain = chain.with_profile(name).no_env();
                }
                Some(Signer::new(context, chain.build(), request))
            }
        };
        Ok(Self {
            signer,
            endpoint,
            region,
            ca_file,
            owner,
            requester_pays: ours.is_some_and(|(_, profile)| profile.requester_pays),
        })
    }
}

impl Signing {
    /// Uses the keys of a store that the caller specifies in full.
    pub(super) fn with_keys(store: &Store) -> Result<Self> {
        let keys = StaticCredentialProvider::new(&store.access_key_id, &store.secret_access_key);
        let request = RequestSigner::new("s3", &store.region);
        Ok(Self {
            signer: Some(Signer::new(Context::new(), keys, request)),
            endpoint: Some(store.endpoint.clone()),
            region: store.region.clone(),
            ca_file: store.ca_file.clone(),
            owner: format!("key {}", store.access_key_id),
            requester_pays: false,
        })
    }
}

fn keys(name: &str, profile: &Profile) -> Result<StaticCredentialProvider> {
    let (Some(key), Some(secret)) = (&profile.access_key_id, &profile.secret_access_key) else {
        return Err(Error::new(ErrorKind::Invalid, "use profile", name)
            .cause("access_key_id and secret_access_key are not both there"));
    };
    let keys = StaticCredentialProvider::new(key, secret.reveal());
    Ok(match &profile.session_token {
        Some(token) => keys.with_session_token(token.reveal()),
        None => keys,
    })
}
