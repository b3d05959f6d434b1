//! Where credentials come from: a profile of ours, or AWS's usual chain.

use std::{path::PathBuf, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use reqsign_aws_v4::{
    Credential, DefaultCredentialProvider, RequestSigner, StaticCredentialProvider,
};
use reqsign_core::{
    CommandExecute, CommandOutput, Context, FileRead, HttpSend, OsEnv, Result as SignResult, Signer,
};

use super::Store;
use crate::{
    Error, ErrorKind, Result,
    access::Chosen,
    config::{self, Profile},
    dial::Dialler,
    web,
};

/// A metadata service that takes longer is not there.
const METADATA_WITHIN: Duration = Duration::from_secs(2);

/// Longest answer of a credential service, in bytes.
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

#[derive(Debug)]
struct Commands;

impl CommandExecute for Commands {
    async fn command_execute<'a>(
        &'a self,
        program: &'a str,
        arguments: &'a [&'a str],
    ) -> SignResult<CommandOutput> {
        let output = tokio::process::Command::new(program)
            .args(arguments)
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|cause| {
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

/// How requests to one store are addressed and signed.
pub(super) struct Signing {
    pub signer: Signer<Credential>,
    /// Where the store listens; `None` for Amazon's own.
    pub endpoint: Option<String>,
    pub region: String,
    /// Certificates to trust beside the system's.
    pub ca_file: Option<PathBuf>,
    /// Whose credentials they are, as far as that is known without looking: never a secret.
    pub owner: String,
}

impl Signing {
    /// The credentials of the profile chosen, ours before AWS's, or those of the environment.
    pub(super) fn load(chosen: Option<&Chosen>) -> Result<Self> {
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
        let (mut endpoint, mut region) = config::aws_address(theirs);
        let mut ca_file = config::aws_ca_bundle(theirs);
        let mut owner = format!("aws {}", theirs.unwrap_or_default());
        if let Some((name, profile)) = ours {
            endpoint = profile.endpoint.clone();
            region = profile.region.clone().unwrap_or(region);
            ca_file = profile.ca_file.clone();
            owner = format!("profile {name}");
        }
        let context = Context::new()
            .with_env(OsEnv)
            .with_file_read(Files)
            .with_http_send(Http(web::client(&Dialler::default(), None)?))
            .with_command_execute(Commands);
        let request = RequestSigner::new("s3", &region);
        let signer = match ours {
            Some((name, profile)) => Signer::new(context, keys(name, profile)?, request),
            None => {
                let mut chain = DefaultCredentialProvider::builder();
                if let Some(name) = theirs {
                    // A profile somebody asked for wins over the environment.
                    chain = chain.with_profile(name).no_env();
                }
                Signer::new(context, chain.build(), request)
            }
        };
        Ok(Self {
            signer,
            endpoint,
            region,
            ca_file,
            owner,
        })
    }
}

impl Signing {
    /// The keys of a store somebody names in full.
    pub(super) fn with_keys(store: &Store) -> Result<Self> {
        let keys = StaticCredentialProvider::new(&store.access_key_id, &store.secret_access_key);
        let request = RequestSigner::new("s3", &store.region);
        Ok(Self {
            signer: Signer::new(Context::new(), keys, request),
            endpoint: Some(store.endpoint.clone()),
            region: store.region.clone(),
            ca_file: store.ca_file.clone(),
            owner: format!("key {}", store.access_key_id),
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
