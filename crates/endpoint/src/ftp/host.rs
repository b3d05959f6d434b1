//! Address of a server, protection of its connections, and its observed behaviour.

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

use crate::{Error, ErrorKind, Locus, Result, config::Secret};

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

/// Address and login.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) scheme: &'static str,
    pub(super) name: String,
    pub(super) port: u16,
    /// True if the user wrote the port.
    pub(super) shows_port: bool,
    pub(super) security: Security,
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) user: String,
    pub(super) password: Secret,
    pub(super) ways: Ways,
}

/// Observed behaviour of a server, in any session.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// True if it loses commands that arrive before its answer to the last one.
    pub(super) is_lockstep: AtomicBool,
    /// True if it has listened after EPSV.
    pub(super) knows_epsv: AtomicBool,
}

impl Host {
    /// Formats `ftp://host:port`.
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

    /// Protects a connection. Data connections resume the TLS session of their control connection,
    /// which servers require: `config` is the session's. That takes TLS 1.2, since tickets of 1.3
    /// are valid once, and servers hand out fewer than there are files.
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
