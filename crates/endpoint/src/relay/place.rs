//! Targets of connections: a relay, or the store of one of its presigned URLs.

use std::{net::IpAddr, sync::Arc, time::Duration};

use http::Uri;
use rustls_pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::{RelayAddress, pin};
use crate::{Error, ErrorKind, Locus, Result, web::tls};

/// Longest idle time of a connection to a relay, which closes it after 60 s.
const RELAY_IDLE_MAX: Duration = Duration::from_secs(20);
/// Longest idle time of a connection to a store: some close it after 5 s.
const STORE_IDLE_MAX: Duration = Duration::from_secs(4);

/// Target of connections.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) host: String,
    pub(super) port: u16,
    /// TLS settings and expected name; none without TLS.
    pub(super) tls: Option<(TlsConnector, ServerName<'static>)>,
    /// URL for messages.
    pub(super) url: String,
    /// Connections idle for longer are not used again.
    pub(super) idle_max: Duration,
    /// Hint for the user if nothing answers.
    pub(super) hint: &'static str,
}

impl Place {
    pub(super) fn of_relay(address: &RelayAddress) -> Result<Self> {
        let (host, port) = address.host_and_port()?;
        let invalid = || Error::new(ErrorKind::Invalid, "use the depot", address.url.clone());
        let server_name =
            ServerName::try_from(host.clone()).map_err(|cause| invalid().cause(cause))?;
        let config =
            pin::client_config(address.fingerprint).map_err(|cause| invalid().cause(cause))?;
        Ok(Self {
            host,
            port,
            tls: Some((TlsConnector::from(Arc::new(config)), server_name)),
            url: address.url.clone(),
            idle_max: RELAY_IDLE_MAX,
            hint: "is the relay running, and does a firewall let its port through?",
        })
    }

    /// Returns the store at an address that the relay at `relay_host` gave out. It must be
    /// `https://`, so that the system's certificate authorities vouch for it; without TLS only if
    /// both are on this machine. So no relay directs a client to an internal service.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for any other address; errors of reading the system's certificates.
    pub(super) fn of_store(base: &str, relay_host: &str) -> Result<Self> {
        let invalid = |cause: &'static str| {
            Error::new(ErrorKind::Invalid, "use the store", base)
                .at(Locus::Network)
                .cause(cause)
        };
        let uri: Uri = base.parse().map_err(|_| invalid("it is no address"))?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let tls = match uri.scheme_str() {
            Some("https") => {
                let name = ServerName::try_from(host.to_owned())
                    .map_err(|_| invalid("it names no host"))?;
                Some((
                    TlsConnector::from(Arc::new(tls::client_config(None)?)),
                    name,
                ))
            }
            Some("http") if is_loopback(host) && is_loopback(relay_host) => None,
            Some("http") => {
                return Err(invalid("it speaks no TLS")
                    .hint("the relay's --bucket is to have an https:// address"));
            }
            _ => return Err(invalid("it is neither https:// nor http://")),
        };
        let usual = if tls.is_some() { 443 } else { 80 };
        Ok(Self {
            host: host.to_owned(),
            port: uri.port_u16().unwrap_or(usual),
            tls,
            url: base.to_owned(),
            idle_max: STORE_IDLE_MAX,
            hint: "does a firewall let it through to the store?",
        })
    }
}

/// Returns whether a host name stands for this machine.
#[must_use]
pub fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_relay_leads_to_where_nobody_says_who_answers() {
        for (base, relay) in [
            ("http://169.254.169.254", "relay.example"),
            ("http://store.example:9000", "relay.example"),
            ("http://relay.example:9000", "relay.example"),
            ("http://127.0.0.1:9000", "relay.example"),
            ("ftp://relay.example", "relay.example"),
            ("/path", "relay.example"),
        ] {
            let refused = Place::of_store(base, relay).err().unwrap();
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{base}");
        }
        for (base, relay, port) in [
            ("http://[::1]:9000", "127.0.0.1", 9000),
            ("https://store.example", "relay.example", 443),
        ] {
            assert_eq!(Place::of_store(base, relay).unwrap().port, port, "{base}");
        }
    }
}
