//! Direct transfers to and from a relay's object store: the relay hands out presigned URLs, each
//! for one object, and confirms what is stored.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use hyper::body::Incoming;
use posthaste_types::Digest;
use tokio::task::spawn_blocking;

use super::{
    DatasetId, RelayClient,
    cargo::{Body, Cargo, Load, read_at},
    client::ANSWER_BYTES_MAX,
    connection::{Lease, Pool},
    exchange::Call,
    growing::Growing,
    place::Place,
    pulse::Pulse,
    turnstile::Haste,
    wire::{OBJECT_BYTES_MAX, Object, PassAnswer, PassBody, Target, kind_of},
};
use crate::{BodySum, Error, ErrorKind, Locus, Pass, Result, Summer, gateway::Way};

/// Name of the operation for requests to a store.
const OPERATION: &str = "ask the store";
/// Codes with which stores report that the bytes differ from the announced ones.
const CORRUPT: [&str; 4] = [
    "BadDigest",
    "XAmzContentChecksumMismatch",
    "Md5Mismatch",
    "Crc64Mismatch",
];
/// Codes with which stores report that space is used up.
const FULL: [&str; 3] = ["QuotaExceeded", "StorageFull", "InsufficientCapacity"];
/// Largest error body of a store that is read.
const REFUSAL_BYTES_MAX: u64 = 64 << 10;
/// Headers that a presigned URL may require; no relay makes us send others.
const HEADER_PREFIXES: [&str; 4] = ["x-amz-", "x-ms-", "x-goog-", "content-md5"];

impl RelayClient {
    /// Stores an object by presigned URL: requests one, sends the bytes to the store, and reports
    /// to the relay, which checks that they are there.
    pub(super) async fn put_through(
        &self,
        dataset: &DatasetId,
        object: Object,
        load: Load,
    ) -> Result<()> {
        let Some((digest, expires)) = load.object else {
            return Err(
                Error::new(ErrorKind::Invalid, "store on", self.address.url.clone())
                    .cause("only objects are stored"),
            );
        };
        let cargo = self.arrived_whole(load.cargo).await?;
        let needs_md5 = self.pool.needs_md5.load(Ordering::Relaxed);
        let (crc64, md5) = self.checked(&cargo, digest, needs_md5).await?;
        let mut body = PassBody {
            size: cargo.len(),
            digest: digest.to_string(),
            expires_unix_s: expires.as_micros().div_ceil(1_000_000),
            crc64nvme: crc64.to_base64(),
            md5: md5.map(BodySum::to_base64),
            is_sent: false,
        };
        let mut answer = self.ask_pass(dataset, object, &body).await?;
        if matches!(answer, PassAnswer::NeedsMd5) && body.md5.is_none() {
            self.pool.needs_md5.store(true, Ordering::Relaxed);
            let (_, md5) = self.checked(&cargo, digest, true).await?;
            body.md5 = md5.map(BodySum::to_base64);
            answer = self.ask_pass(dataset, object, &body).await?;
        }
        match answer {
            PassAnswer::Stored => return Ok(()),
            PassAnswer::Send { url, headers } => {
                let pass = self.pass_of(url, headers)?;
                self.through(&pass, Method::PUT)?.send(&cargo).await?;
            }
            PassAnswer::NeedsMd5 => return Err(self.no_pass()),
        }
        body.is_sent = true;
        match self.ask_pass(dataset, object, &body).await? {
            PassAnswer::Stored => Ok(()),
            PassAnswer::NeedsMd5 | PassAnswer::Send { .. } => Err(self.no_pass()),
        }
    }

    /// Requests a presigned URL for an object, or reports that the object was sent.
    ///
    /// # Errors
    /// Errors of [`Self::put_fragment`].
    pub async fn ask_pass(
        &self,
        dataset: &DatasetId,
        object: Object,
        body: &PassBody,
    ) -> Result<PassAnswer> {
        let target = Target::Pass(*dataset, object);
        // The request for a URL is not the upload itself.
        let asker = Self {
            departure: None,
            ..self.clone()
        };
        asker.order("store on", target, body).await
    }

    /// Reads an object by a presigned URL.
    pub(super) async fn get_through(&self, url: String, expected: Digest) -> Result<Bytes> {
        let pass = Pass {
            url,
            headers: HeaderMap::new(),
        };
        self.through(&pass, Method::GET)?.read(Some(expected)).await
    }

    pub(super) fn through<'a>(&self, pass: &'a Pass, method: Method) -> Result<Through<'a>> {
        let uri = uri_of(pass)?;
        let store = self.pool.store(&base_of(&uri))?;
        let mut through = Through::new(pass, uri, method, store, self.haste);
        through.call.departure.clone_from(&self.departure);
        Ok(through)
    }

    /// Returns the presigned URL that a relay handed out, if it is valid.
    pub(super) fn pass_of(&self, url: String, headers: BTreeMap<String, String>) -> Result<Pass> {
        let read = |(name, value): (String, String)| {
            let is_known = HEADER_PREFIXES.iter().any(|known| name.starts_with(known));
            let name = is_known.then(|| HeaderName::try_from(name).ok())??;
            Some((name, HeaderValue::try_from(value).ok()?))
        };
        let headers = headers.into_iter().map(read).collect::<Option<HeaderMap>>();
        let headers = headers.ok_or_else(|| self.no_pass())?;
        Ok(Pass { url, headers })
    }

    pub(super) fn no_pass(&self) -> Error {
        Error::new(ErrorKind::Other, "store on", self.address.url.clone())
            .at(Locus::Network)
            .cause("it hands out no pass that makes sense")
    }

    /// Waits for a file that still arrives: only a complete one is sent to a store.
    async fn arrived_whole(&self, cargo: Cargo) -> Result<Cargo> {
        let Cargo::Growing(mut growing) = cargo else {
            return Ok(cargo);
        };
        let whole = growing.whole().await;
        whole.map_err(|cause| {
            Error::new(ErrorKind::Cancelled, "send on to", self.address.url.clone())
                .at(Locus::Source)
                .cause(cause)
        })?;
        Ok(Cargo::File(growing.file, growing.size))
    }

    /// Checks the object's BLAKE3 digest here, which no store knows, and returns the checksum that
    /// the store will check.
    async fn checked(
        &self,
        cargo: &Cargo,
        digest: Digest,
        needs_md5: bool,
    ) -> Result<(BodySum, Option<BodySum>)> {
        let cargo = cargo.clone();
        let summed = spawn_blocking(move || Sums::of(&cargo, needs_md5)).await;
        let url = || self.address.url.clone();
        let failed = |cause| Error::io("read for", url(), cause).at(Locus::Source);
        let sums = summed
            .map_err(|cause| failed(std::io::Error::other(cause)))?
            .map_err(failed)?;
        if sums.digest == digest {
            return Ok((sums.crc64, sums.md5));
        }
        Err(Error::new(ErrorKind::Corrupt, "read for", url())
            .at(Locus::Source)
            .cause("its digest is wrong"))
    }
}

/// Object in transit to or from a store.
pub(super) struct Through<'a> {
    pub(super) store: Arc<Pool>,
    call: Call,
    pass: &'a Pass,
    method: Method,
    uri: Uri,
}

fn uri_of(pass: &Pass) -> Result<Uri> {
    let uri = pass.url.parse::<Uri>().ok();
    let uri = uri.filter(|uri| uri.scheme().is_some() && uri.authority().is_some());
    uri.ok_or_else(|| {
        Error::new(ErrorKind::Invalid, OPERATION, pass.shown()).cause("the pass makes no sense")
    })
}

/// Returns `https://host:port`.
fn base_of(uri: &Uri) -> String {
    let (scheme, authority) = (uri.scheme_str(), uri.authority());
    format!(
        "{}://{}",
        scheme.unwrap_or_default(),
        authority.map_or("", |authority| authority.as_str())
    )
}

/// Sends an object by a presigned URL; once this returns, the store has checked it. Issuers of such
/// URLs use it to test them.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if the store found other bytes than the URL is for; errors of connecting,
/// and refusals of the store.
pub async fn send_by_pass(pass: &Pass, bytes: Bytes) -> Result<()> {
    alone(pass, Method::PUT)?.send(&Cargo::Bytes(bytes)).await
}

/// Reads an object by a presigned URL; otherwise like [`send_by_pass`].
///
/// # Errors
/// Errors of [`send_by_pass`].
pub async fn read_by_pass(pass: &Pass) -> Result<Bytes> {
    alone(pass, Method::GET)?.read(None).await
}

/// Returns the transfer for a presigned URL of our own.
fn alone(pass: &Pass, method: Method) -> Result<Through<'_>> {
    let uri = uri_of(pass)?;
    let place = Place::of_store(&base_of(&uri), uri.host().unwrap_or_default())?;
    let store = Arc::new(Pool::of(place, vec![Way::straight()]));
    Ok(Through::new(pass, uri, method, store, Haste::default()))
}

impl<'a> Through<'a> {
    fn new(pass: &'a Pass, uri: Uri, method: Method, store: Arc<Pool>, haste: Haste) -> Self {
        let call = Call {
            operation: OPERATION,
            path: uri.path().to_owned(),
            is_urgent: false,
            haste,
            departure: None,
        };
        Self {
            store,
            call,
            pass,
            method,
            uri,
        }
    }

    /// Sends the object; once this returns, the store has checked it.
    async fn send(&self, cargo: &Cargo) -> Result<()> {
        let (lease, response) = self.ask(cargo).await?;
        self.store
            .collect(&self.call, lease, response, ANSWER_BYTES_MAX, None)
            .await
            .map(drop)
    }

    async fn read(&self, expected: Option<Digest>) -> Result<Bytes> {
        let (lease, response) = self.ask(&Cargo::Bytes(Bytes::new())).await?;
        self.store
            .collect(&self.call, lease, response, OBJECT_BYTES_MAX, expected)
            .await
    }

    async fn ask(&self, cargo: &Cargo) -> Result<(Lease, http::Response<Incoming>)> {
        let request = |pulse: &Arc<Pulse>| self.request(cargo, pulse);
        let (lease, response) = self.store.exchange(&self.call, &request).await?;
        if response.status().is_success() {
            return Ok((lease, response));
        }
        Err(self.refusal(lease, response).await)
    }

    fn request(&self, cargo: &Cargo, pulse: &Arc<Pulse>) -> Result<Request<Body>> {
        self.request_with(cargo.len(), cargo.body(Some(pulse)))
    }

    /// Builds the request with a body of `length` bytes.
    pub(super) fn request_with<B>(&self, length: u64, body: B) -> Result<Request<B>> {
        let invalid = || {
            let url = self.pass.shown().to_owned();
            Error::new(ErrorKind::Invalid, OPERATION, url).cause("the pass makes no sense")
        };
        let target = self.uri.path_and_query().ok_or_else(invalid)?;
        let host = self.uri.authority().ok_or_else(invalid)?;
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(target.as_str())
            .header(header::HOST, host.as_str());
        if self.method == Method::PUT {
            request = request.header(header::CONTENT_LENGTH, length);
        }
        let mut request = request.body(body).map_err(|_| invalid())?;
        request.headers_mut().extend(self.pass.headers.clone());
        Ok(request)
    }

    /// Returns the error for a store's refusal. Only its code is shown, since its text may contain
    /// signed data.
    async fn refusal(&self, lease: Lease, response: http::Response<Incoming>) -> Error {
        let status = response.status();
        let body = self
            .store
            .collect(&self.call, lease, response, REFUSAL_BYTES_MAX, None)
            .await
            .unwrap_or_default();
        let code = code_in(&body);
        let kind = match code {
            Some(code) if CORRUPT.contains(&code) => ErrorKind::Corrupt,
            Some(code) if FULL.iter().any(|full| code.contains(full)) => ErrorKind::Full,
            _ if status == StatusCode::FORBIDDEN => ErrorKind::PermissionDenied,
            _ => kind_of(status.as_u16()),
        };
        let locus = match self.method == Method::PUT {
            true => Locus::Destination,
            false => Locus::Source,
        };
        Error::new(kind, OPERATION, self.store.place.url.clone())
            .at(locus)
            .with("path", self.uri.path())
            .with("status", status.as_u16())
            .cause(match code {
                Some(code) => format!("the store answered {status}: {code}"),
                None => format!("the store answered {status}"),
            })
    }
}

/// Returns the code of an XML error, if it has one that is a word.
fn code_in(body: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let is_word = code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_word.then_some(code)
}

/// Checksums that identify a body.
struct Sums {
    digest: Digest,
    crc64: BodySum,
    md5: Option<BodySum>,
}

impl Sums {
    /// Computes the checksums of a body in one read. Blocking.
    fn of(cargo: &Cargo, needs_md5: bool) -> std::io::Result<Self> {
        use md5::{Digest as _, Md5};
        let (mut hasher, mut crc64) = (blake3::Hasher::new(), Summer::default());
        let mut md5 = needs_md5.then(Md5::new);
        let mut add = |bytes: &[u8]| {
            hasher.update(bytes);
            crc64.add(bytes);
            if let Some(md5) = &mut md5 {
                md5.update(bytes);
            }
        };
        match cargo {
            Cargo::Bytes(bytes) => add(bytes),
            Cargo::Led(first, rest) => [first, rest].into_iter().for_each(|bytes| add(bytes)),
            Cargo::File(file, length)
            | Cargo::Growing(Growing {
                file, size: length, ..
            }) => {
                let mut at = 0;
                while at < *length {
                    let piece = read_at(file, at, length - at)?;
                    add(&piece);
                    at += piece.len() as u64;
                }
            }
        }
        Ok(Self {
            digest: Digest::new(*hasher.finalize().as_bytes()),
            crc64: BodySum::Crc64(crc64.sum()),
            md5: md5.map(|md5| BodySum::Md5(md5.finalize().into())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_store_s_code_is_taken_from_its_words() {
        let refusal = b"<Error><Code>BadDigest</Code><Message>X-Amz-Signature=1</Message></Error>";
        assert_eq!(code_in(refusal), Some("BadDigest"));
        assert_eq!(code_in(b"<Code>sig=abc&x</Code>"), None);
        assert_eq!(code_in(b"\xff<Code>A</Code>"), None);
    }
}
