//! Addresses that connections for users may reach: none that trusts its own machine.
//!
//! Loopback and link-local addresses, and those at which clouds tell machines their secrets, are
//! refused in every notation: also mapped into IPv6, behind NAT64 or 6to4. The address of the
//! connection counts, not an earlier answer for its name.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use tokio::net::{TcpStream, lookup_host};

use crate::{
    Error, ErrorKind, Locus, Result,
    gateway::{Pattern, is_of_this_machine},
};

/// Reason shown for each refused address.
pub(crate) const REFUSED: &str = "is of this machine, its link or its cloud's own";
/// Remedy shown with it.
pub(crate) const REFUSED_HINT: &str = "an operator allows it with `serve --allow-address`";

/// Addresses that connections may reach.
#[derive(Debug, Clone, Default)]
pub struct Reach {
    /// Addresses that are allowed all the same; `None` if everything is.
    exceptions: Option<Arc<[Pattern]>>,
}

impl Reach {
    /// Permits everything but addresses that trust this machine; of those, only `exceptions`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an exception that is a name: its meaning is up to name servers.
    pub fn beyond(exceptions: &[Pattern]) -> Result<Self> {
        if let Some(named) = exceptions.iter().find(|one| !one.is_of_addresses()) {
            return Err(Error::new(ErrorKind::Invalid, "allow", named.to_string())
                .cause("it is no address")
                .hint("write 127.0.0.1:9000, 127.0.0.0/8:* or [::1]:443"));
        }
        Ok(Self {
            exceptions: Some(exceptions.into()),
        })
    }

    /// Returns whether everything may be reached.
    pub(crate) fn is_anywhere(&self) -> bool {
        self.exceptions.is_none()
    }

    fn may(&self, address: SocketAddr) -> bool {
        let Some(exceptions) = &self.exceptions else {
            return true;
        };
        let (ip, port) = (address.ip(), address.port());
        let is_allowed = |one: &Pattern| one.is_about_address(ip, port);
        !is_of_this_machine(ip) || exceptions.iter().any(is_allowed)
    }

    /// Checks that a connection may go to `address`.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] with [`REFUSED`].
    pub(crate) fn check(&self, address: SocketAddr) -> io::Result<()> {
        if self.may(address) {
            return Ok(());
        }
        let why = format!("{address} {REFUSED}");
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }

    /// Connects to a host by the first of its addresses that may be reached and answers.
    ///
    /// # Errors
    /// Errors of [`Self::check`], of finding the host, and of the last address.
    pub(crate) async fn connect(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        if self.is_anywhere() {
            return TcpStream::connect((host, port)).await;
        }
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in lookup_host((host, port)).await? {
            let connected = match self.check(address) {
                Ok(()) => TcpStream::connect(address).await,
                Err(refused) => Err(refused),
            };
            match connected {
                Ok(stream) => return Ok(stream),
                Err(cause) => last = cause,
            }
        }
        Err(last)
    }

    /// Checks the host of a connection that another program makes, as far as its addresses are
    /// known here.
    ///
    /// # Errors
    /// Errors of [`Self::check`].
    pub(crate) async fn check_host(&self, host: &str, port: u16) -> io::Result<()> {
        if self.exceptions.is_none() {
            return Ok(());
        }
        let host = host.trim_matches(['[', ']']);
        if let Ok(ip) = host.parse::<IpAddr>() {
            return self.check((ip, port).into());
        }
        // An unknown host is refused, or resolved, by the program that connects.
        let Ok(mut found) = lookup_host((host, port)).await else {
            return Ok(());
        };
        found.try_for_each(|address| self.check(address))
    }

    /// Checks as [`Self::check_host`] does, with an error for people.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`].
    pub(crate) async fn refuse_host(&self, shown: &str, host: &str, port: u16) -> Result<()> {
        let checked = self.check_host(host, port).await;
        checked.map_err(|cause| {
            Error::new(ErrorKind::PermissionDenied, "connect to", shown)
                .cause(cause.to_string())
                .hint(REFUSED_HINT)
                .at(Locus::Network)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_trusts_this_machine_is_out_of_reach_however_it_is_written() {
        let exceptions = ["127.0.0.1:9000".parse().unwrap()];
        let reach = Reach::beyond(&exceptions).unwrap();
        let may = |address: &str| reach.may(address.parse().unwrap());
        for address in [
            "127.0.0.1:80",
            "127.9.9.9:9000",
            "0.0.0.0:80",
            "169.254.169.254:80",
            "100.100.100.200:80",
            "168.63.129.16:80",
            "[::1]:80",
            "[::]:80",
            "[::ffff:127.0.0.1]:80",
            "[::127.0.0.1]:80",
            "[64:ff9b::169.254.169.254]:80",
            "[64:ff9b::7f00:1]:80",
            "[64:ff9b:1::127.0.0.1]:80",
            "[2002:7f00:1::]:80",
            "[fd00:ec2::254]:80",
            "[fd20:ce::254]:80",
            "[fd00:42::42]:80",
            "[fd00:c1::a9fe:a9fe]:80",
            "[::ffff:0:7f00:1]:80",
            "[2001:0:7f00:1::1]:80",
            "[fe80::1]:80",
        ] {
            assert!(!may(address), "{address}");
            assert!(Reach::default().may(address.parse().unwrap()));
        }
        for address in [
            "127.0.0.1:9000",
            "[::ffff:127.0.0.1]:9000",
            "10.1.2.3:80",
            "192.0.2.1:80",
            "[2001:db8::1]:80",
            "[64:ff9b::192.0.2.1]:80",
            "[2002:c000:201::1]:80",
            "[fd00::1]:80",
        ] {
            assert!(may(address), "{address}");
        }
        let named = ["localhost:80".parse().unwrap()];
        assert!(Reach::beyond(&named).is_err());
        assert!(Reach::beyond(&["*:80".parse().unwrap()]).is_err());
    }
}
