//! HTTP requests to bandwidth providers: short, bounded, and with their credential.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use posthaste_endpoint::{
    Error, ErrorKind, Locus, Result, WebConnector, deepest,
    gateway::{TOKEN_LIFETIME_S, mint},
    relay::read_secret_file,
    web_connector, web_trust,
};
use rustls::ClientConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::time::timeout;

use crate::{Circuit, Credential, Id, clock, line};

/// Largest answer read, in bytes: some thousand reservations of a kilobyte.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Largest credential read, in bytes: a chain of certificates.
const CREDENTIAL_BYTES_MAX: u64 = 1 << 20;

/// Most attempts at a request whose connection breaks: a kept connection may be closed just when it
/// is reused.
const ASKED_MAX: u32 = 2;

/// Time that idle connections are kept.
const IDLE_FOR: Duration = Duration::from_secs(30);

/// HTTP client of a provider.
#[derive(Clone)]
pub(crate) struct Web {
    client: Client<WebConnector, Full<Bytes>>,
    /// Address of the provider, without a slash at the end.
    base: String,
    /// Credential shown with each request.
    shown: Shown,
    patience: Duration,
}

/// Credential sent as `Bearer`.
#[derive(Clone)]
enum Shown {
    Nothing,
    Token(HeaderValue),
    /// Secret from which a token is made for each request.
    Secret([u8; 32]),
}

impl Shown {
    fn bearer(&self) -> Result<Option<HeaderValue>> {
        match self {
            Self::Nothing => Ok(None),
            Self::Token(value) => Ok(Some(value.clone())),
            Self::Secret(secret) => {
                let now_s = clock::now().as_micros() / 1_000_000;
                hide(&mint(secret, None, now_s + TOKEN_LIFETIME_S)).map(Some)
            }
        }
    }
}

impl std::fmt::Debug for Web {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Web")
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

/// Request to a provider.
pub(crate) struct Question<'a> {
    /// Verb for errors.
    pub operation: &'static str,
    pub method: Method,
    /// Path after the address.
    pub path: &'a str,
    /// `Content-Type` and bytes; `None` for no body.
    pub body: Option<(&'static str, Bytes)>,
    /// Extra header.
    pub header: Option<(&'static str, HeaderValue)>,
}

/// Answer of any meaning.
#[derive(Debug)]
pub(crate) struct Answered {
    pub status: StatusCode,
    pub body: Bytes,
}

impl Web {
    /// Opens a client for the provider of `circuit`.
    ///
    /// # Errors
    /// Errors of the files it names.
    pub(crate) fn open(circuit: &Circuit) -> Result<Self> {
        let connector = web_connector(tls(circuit)?, circuit.patience);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_FOR)
            .build(connector);
        let shown = match &circuit.credential {
            Credential::Token(file) => Shown::Token(bearer(file)?),
            Credential::Secret(file) => Shown::Secret(read_secret_file(file)?),
            Credential::None | Credential::Certificate { .. } => Shown::Nothing,
        };
        Ok(Self {
            client,
            base: circuit.address.clone(),
            shown,
            patience: circuit.patience,
        })
    }

    /// Makes an error of this provider.
    pub(crate) fn fail(&self, kind: ErrorKind, operation: &'static str) -> Error {
        Error::new(kind, operation, format!("at {}", self.base)).at(Locus::Destination)
    }

    /// Makes an error for a name that no reservation there can have.
    pub(crate) fn no_name(&self, id: &Id, of: &str) -> Error {
        let error = self.fail(ErrorKind::Invalid, "read the name of a reservation");
        error.cause(format!("`{}` is no {of}", line::one(id.as_str())))
    }

    /// Sends a request and reads the whole answer. Repeats it once if the connection breaks, so
    /// every request must be repeatable.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`], [`ErrorKind::TimedOut`], [`ErrorKind::Unauthenticated`],
    /// [`ErrorKind::PermissionDenied`], [`ErrorKind::Busy`] for an overloaded server;
    /// [`ErrorKind::Other`] for an answer without end. All other statuses are answers.
    pub(crate) async fn ask(&self, question: &Question<'_>) -> Result<Answered> {
        self.ask_up_to(ASKED_MAX, question).await
    }

    /// Sends a request that can't be repeated.
    ///
    /// # Errors
    /// Errors of [`Web::ask`].
    pub(crate) async fn ask_once(&self, question: &Question<'_>) -> Result<Answered> {
        self.ask_up_to(1, question).await
    }

    async fn ask_up_to(&self, most: u32, question: &Question<'_>) -> Result<Answered> {
        let mut asked = 1;
        loop {
            let answered = timeout(self.patience, self.try_to_ask(question)).await;
            let answered = answered.unwrap_or_else(|_| {
                let error = self.fail(ErrorKind::TimedOut, question.operation);
                let waited = format!("no answer within {} s", self.patience.as_secs());
                Err((false, error.cause(waited).at(Locus::Network)))
            });
            match answered {
                Ok(answered) => return self.judge(answered, question.operation),
                Err((true, _)) if asked < most => asked += 1,
                Err((_, error)) => return Err(error),
            }
        }
    }

    /// Sends a request once. An error comes with true if the connection broke under the request.
    async fn try_to_ask(&self, question: &Question<'_>) -> Result<Answered, (bool, Error)> {
        let invalid = |cause: http::Error| {
            let error = self.fail(ErrorKind::Invalid, question.operation);
            (false, error.cause(cause).at(Locus::Client))
        };
        let broken = |again: bool, cause: &dyn std::error::Error| {
            let reason = deepest(cause);
            let error = if reason.contains("certificate") {
                let error = self.fail(ErrorKind::Unauthenticated, question.operation);
                error.hint("name its authority's certificate as ca_file")
            } else {
                self.fail(ErrorKind::Unreachable, question.operation)
            };
            (again, error.cause(reason).at(Locus::Network))
        };
        let mut request = Request::builder()
            .method(question.method.clone())
            .uri(format!("{}{}", self.base, question.path));
        if let Some(bearer) = self.shown.bearer().map_err(|error| (false, error))? {
            request = request.header(header::AUTHORIZATION, bearer);
        }
        if let Some((name, value)) = &question.header {
            request = request.header(*name, value);
        }
        let mut body = Bytes::new();
        if let Some((kind, bytes)) = &question.body {
            request = request.header(header::CONTENT_TYPE, *kind);
            body = bytes.clone();
        }
        let request = request.body(Full::new(body)).map_err(invalid)?;
        let asked = self.client.request(request).await;
        let answer = asked.map_err(|cause| broken(!cause.is_connect(), &cause))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await;
        let body =
            body.map_err(
                |cause| match cause.downcast_ref::<http_body_util::LengthLimitError>() {
                    Some(_) => {
                        let error = self.fail(ErrorKind::Other, question.operation);
                        (false, error.cause("the answer is longer than 4 MiB"))
                    }
                    None => broken(true, &*cause),
                },
            )?;
        Ok(Answered {
            status,
            body: body.to_bytes(),
        })
    }

    fn judge(&self, answered: Answered, operation: &'static str) -> Result<Answered> {
        let (kind, hint) = match answered.status.as_u16() {
            // A gateway's status is that of a proxy.
            401 | 407 => (ErrorKind::Unauthenticated, "check the circuit's credential"),
            403 => (
                ErrorKind::PermissionDenied,
                "check what the circuit's credential allows",
            ),
            408 | 429 | 502..=504 => (ErrorKind::Busy, "try again later"),
            _ => return Ok(answered),
        };
        let error = self.fail(kind, operation).hint(hint);
        Err(error.cause(format!("the server answered {}", answered.status)))
    }
}

fn tls(circuit: &Circuit) -> Result<ClientConfig> {
    let is_spoken = circuit.address.starts_with("https://");
    let trusting = web_trust(is_spoken, circuit.ca_file.as_deref())?;
    let Credential::Certificate { chain, key } = &circuit.credential else {
        return Ok(trusting.with_no_client_auth());
    };
    let wrong = |file: &Path, cause: String| {
        Error::new(ErrorKind::Invalid, "read", file.display().to_string()).cause(cause)
    };
    let pem = read_credential(chain)?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|cause| wrong(chain, cause.to_string()))?;
    let secret = PrivateKeyDer::from_pem_slice(&read_secret(key)?)
        .map_err(|_| wrong(key, "it holds no key in PEM".to_owned()))?;
    trusting
        .with_client_auth_cert(certificates, secret)
        .map_err(|cause| wrong(chain, cause.to_string()))
}

fn bearer(file: &Path) -> Result<HeaderValue> {
    let shown = file.display().to_string();
    let invalid = || {
        let error = Error::new(ErrorKind::Invalid, "read the token in", shown.clone());
        error.cause("it is not one line of visible letters")
    };
    let text = String::from_utf8(read_secret(file)?).map_err(|_| invalid())?;
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(invalid());
    }
    hide(token).map_err(|_| invalid())
}

/// Builds the header of a token, and marks it as sensitive.
fn hide(token: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|cause| Error::new(ErrorKind::Invalid, "show", "a token").cause(cause))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Reads a file that only its owner may read.
fn read_secret(file: &Path) -> Result<Vec<u8>> {
    let shown = file.display().to_string();
    let metadata = fs::metadata(file);
    let metadata =
        metadata.map_err(|cause| Error::io("read the secret in", shown.clone(), cause))?;
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(
            Error::new(ErrorKind::Invalid, "read the secret in", shown.clone())
                .cause("others may read it")
                .hint(format!("chmod 600 {shown}, and consider the secret known")),
        );
    }
    read_credential(file)
}

fn read_credential(file: &Path) -> Result<Vec<u8>> {
    let failed = |cause| Error::io("read", file.display().to_string(), cause);
    if fs::metadata(file).map_err(failed)?.len() > CREDENTIAL_BYTES_MAX {
        let error = Error::new(ErrorKind::Invalid, "read", file.display().to_string());
        return Err(error.cause("it is larger than 1 MiB"));
    }
    fs::read(file).map_err(failed)
}
