//! A server: its address, the protection of connections to it, and its observed behaviour.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::{
    Error, ErrorKind, Locus, Result,
    config::Secret,
    reach::{REFUSED, REFUSED_HINT, Reach},
};

/// Timeout of a connection, over all addresses of a host.
const CONNECTED_WITHIN: Duration = Duration::from_secs(15);

/// Timeout of an answer.
pub(super) const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// Protection of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Security {
    /// None.
    Plain,
    /// TLS after `AUTH TLS` (RFC 4217).
    Explicit,
    /// TLS from the first byte.
    Implicit,
}

/// Host to log in to, and the user.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) scheme: &'static str,
    pub(super) name: String,
    pub(super) port: u16,
    /// Set if people wrote the port.
    pub(super) shows_port: bool,
    pub(super) security: Security,
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) user: String,
    pub(super) password: Secret,
    pub(super) ways: Ways,
    /// Addresses that connections may reach.
    pub(super) reach: Reach,
}

/// Behaviour of a server, as any session learnt it.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// Set if the server loses commands that come before its answer to the last one.
    pub(super) is_lockstep: AtomicBool,
    /// Set if the server has listened after EPSV.
    pub(super) knows_epsv: AtomicBool,
}

impl Host {
    /// Returns `ftp://host:port`.
    pub(super) fn show(&self) -> String {
        let name = if self.name.contains(':') {
            format!("[{}]", self.name)
        } else {
            self.name.clone()
        };
        match self.shows_port {
            true => format!("{}://{name}:{}", self.scheme, self.port),
            false => format!("{}://{name}", self.scheme),
        }
    }

    pub(super) fn fail(&self, kind: ErrorKind, operation: &'static str) -> Error {
        Error::new(kind, operation, self.show()).at(Locus::Network)
    }

    pub(super) fn broken(&self, operation: &'static str, cause: io::Error) -> Error {
        let is_tls = cause
            .get_ref()
            .is_some_and(|inner| inner.is::<rustls::Error>());
        let kind = if is_tls {
            ErrorKind::Unauthenticated
        } else if cause.kind() == io::ErrorKind::TimedOut {
            ErrorKind::TimedOut
        } else {
            ErrorKind::Unreachable
        };
        let said = cause.to_string();
        if said.contains(REFUSED) {
            let error = self.fail(ErrorKind::PermissionDenied, operation);
            return error.cause(said).hint(REFUSED_HINT);
        }
        let error = self.fail(kind, operation).cause(cause);
        if is_tls {
            return error
                .hint("a certificate the system doesn't know goes into the profile's ca_file");
        }
        error
    }

    pub(super) async fn connect(&self, addresses: Vec<SocketAddr>) -> Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        let dialling = async {
            for address in addresses {
                if let Err(refused) = self.reach.check(address) {
                    last = refused;
                    continue;
                }
                match TcpStream::connect(address).await {
                    Ok(stream) => return Ok(stream),
                    Err(cause) => last = cause,
                }
            }
            Err(last)
        };
        let late = || io::Error::new(io::ErrorKind::TimedOut, "no answer");
        let connected = timeout(CONNECTED_WITHIN, dialling).await;
        let stream = connected
            .unwrap_or_else(|_| Err(late()))
            .map_err(|cause| self.broken("connect to", cause))?;
        // Commands are short and wait for one another.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    /// Protects a connection. A session's data connections resume the TLS session of its own
    /// control connection, which servers insist on: `config` is the session's. That takes TLS 1.2:
    /// tickets of 1.3 serve once, and servers hand out fewer than there are files.
    pub(super) async fn protect(
        &self,
        stream: Box<dyn Wire>,
        config: Option<&Arc<ClientConfig>>,
    ) -> Result<Box<dyn Wire>> {
        let Some(config) = config else {
            return Ok(stream);
        };
        let name = ServerName::try_from(self.name.clone())
            .map_err(|cause| self.fail(ErrorKind::Invalid, "connect to").cause(cause))?;
        let connector = TlsConnector::from(Arc::clone(config));
        let shaking = timeout(ANSWERED_WITHIN, connector.connect(name, stream));
        let late = |_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"));
        let stream = shaking.await.unwrap_or_else(late);
        let stream = stream.map_err(|cause| self.broken("connect to", cause))?;
        Ok(Box::new(stream))
    }
}

/// Connection, protected or not.
pub(super) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}
