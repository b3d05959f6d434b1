//! Addresses of PostgreSQL databases, as PostgreSQL's own programs write them, and their passwords,
//! which are never part of an address.

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use rustls::{ClientConfig, RootCertStore, crypto::ring};
use tokio_postgres::config::{Config, Host, SslMode};

/// Socket folder of Debian's servers and clients, used if no host is named.
const SOCKET_FOLDER: &str = "/var/run/postgresql";
/// Port if none is named.
const PORT: u16 = 5432;
/// Longest time to connect: less than a lease lasts.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Longest time that sent data may stay unacknowledged: the same.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(5);

/// Address of a PostgreSQL database: `postgres://[USER@]HOST[:PORT]/NAME[?OPTION=VALUE]`; without a
/// host the socket on this machine. It is shown without user and password.
#[derive(Clone)]
pub struct DatabaseUrl {
    config: Config,
    shown: String,
    /// TLS configuration, once the trusted authorities are known.
    tls: Option<Arc<ClientConfig>>,
}

/// Reason why a text is no acceptable database address. Never holds a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadAddress(String);

impl fmt::Display for BadAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadAddress {}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseUrl({})", self.shown)
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl DatabaseUrl {
    /// Reads an address; `user` connects if the address names none.
    ///
    /// # Errors
    /// If it is none, contains a password, which everybody on this machine could read, or leads to
    /// another machine without TLS.
    pub fn parse(text: &str, user: Option<&str>) -> Result<Self, BadAddress> {
        if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
            let hint =
                "write postgres://HOST/NAME, or postgres:///NAME for the socket on this machine";
            return Err(BadAddress(format!("that is no database ({hint})")));
        }
        let mut config: Config = text.parse().map_err(|cause: tokio_postgres::Error| {
            let detail = std::error::Error::source(&cause).map(ToString::to_string);
            BadAddress(format!(
                "that is no database: {} (write postgres://HOST/NAME)",
                detail.unwrap_or_else(|| cause.to_string())
            ))
        })?;
        if config.get_password().is_some() {
            let hint = "put it into ~/.pgpass or PGPASSWORD";
            return Err(BadAddress(format!(
                "a password does not belong into an argument, where others can read it ({hint})"
            )));
        }
        if config.get_hosts().len() > 1 || config.get_hostaddrs().len() > 1 {
            let cause = "several hosts are not supported: name the one that writes";
            return Err(BadAddress(cause.into()));
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            config.host(SOCKET_FOLDER);
        }
        if let (None, Some(user)) = (config.get_user(), user) {
            config.user(user);
        }
        config
            .application_name("posthaste")
            .connect_timeout(CONNECT_MAX)
            .tcp_user_timeout(UNACKNOWLEDGED_MAX)
            .keepalives_idle(UNACKNOWLEDGED_MAX);
        let mut address = Self {
            config,
            shown: String::new(),
            tls: None,
        };
        address.shown = address.show();
        address.require_tls()?;
        Ok(address)
    }

    /// Requires TLS: without it, data that crosses a network can be read and changed there.
    fn require_tls(&mut self) -> Result<(), BadAddress> {
        if self.is_here() {
            return Ok(());
        }
        if self.config.get_ssl_mode() == SslMode::Disable {
            let cause = format!("{} is on another machine, which takes TLS", self.shown);
            return Err(BadAddress(cause));
        }
        if self.config.get_hosts().is_empty() {
            let hint = "host=NAME, beside hostaddr";
            return Err(BadAddress(format!(
                "it does not say whose certificate is expected ({hint})"
            )));
        }
        self.config.ssl_mode(SslMode::Require);
        Ok(())
    }

    /// Returns whether TLS is used, and [`DatabaseUrl::with_roots`] has to supply the trusted
    /// authorities.
    #[must_use]
    pub fn needs_tls(&self) -> bool {
        let is_socket = matches!(self.config.get_hosts(), [Host::Unix(_)]);
        !is_socket && self.config.get_ssl_mode() == SslMode::Require
    }

    /// Trusts certificates that these authorities signed, if TLS is used.
    ///
    /// # Errors
    /// If TLS can't be set up.
    pub fn with_roots(mut self, roots: RootCertStore) -> Result<Self, BadAddress> {
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|cause| BadAddress(format!("TLS can't be set up: {cause}")))?;
        let tls = tls.with_root_certificates(roots).with_no_client_auth();
        self.tls = Some(Arc::new(tls));
        Ok(self)
    }

    /// Returns whether the database is on this machine.
    fn is_here(&self) -> bool {
        let hosts = self.config.get_hosts().iter().all(|host| match host {
            Host::Unix(_) => true,
            Host::Tcp(name) => {
                name == "localhost"
                    || name
                        .parse()
                        .is_ok_and(|address: IpAddr| address.is_loopback())
            }
        });
        hosts && self.config.get_hostaddrs().iter().all(IpAddr::is_loopback)
    }

    fn host(&self) -> String {
        match self.config.get_hosts().first() {
            Some(Host::Tcp(name)) => name.clone(),
            Some(Host::Unix(folder)) => folder.display().to_string(),
            None => {
                let first = self.config.get_hostaddrs().first();
                first.map(IpAddr::to_string).unwrap_or_default()
            }
        }
    }

    fn port(&self) -> u16 {
        self.config.get_ports().first().copied().unwrap_or(PORT)
    }

    fn name(&self) -> &str {
        let named = self.config.get_dbname().or(self.config.get_user());
        named.unwrap_or_default()
    }

    fn show(&self) -> String {
        let (host, port) = (self.host(), self.port());
        match self.config.get_hosts().first() {
            Some(Host::Unix(_)) => format!("postgres:///{} in {host}:{port}", self.name()),
            Some(Host::Tcp(_)) | None if host.contains(':') => {
                format!("postgres://[{host}]:{port}/{}", self.name())
            }
            Some(Host::Tcp(_)) | None => format!("postgres://{host}:{port}/{}", self.name()),
        }
    }

    /// Sets the password.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> Self {
        self.config.password(password);
        self
    }

    /// Uses the password that a password file of PostgreSQL (`~/.pgpass`) has for it, if any.
    #[must_use]
    pub fn with_password_of(self, file: &str) -> Self {
        let host = match self.config.get_hosts().first() {
            // The default socket counts as this machine.
            Some(Host::Unix(folder)) if folder.as_os_str() == SOCKET_FOLDER => "localhost".into(),
            Some(Host::Unix(_) | Host::Tcp(_)) | None => self.host(),
        };
        let port = self.port().to_string();
        let wanted = [
            host.as_str(),
            &port,
            self.name(),
            self.config.get_user().unwrap_or_default(),
        ];
        match find_password(file, wanted) {
            Some(password) => self.with_password(&password),
            None => self,
        }
    }

    /// Returns the TLS configuration, if TLS is used.
    pub(crate) fn tls(&self) -> Option<Arc<ClientConfig>> {
        self.tls.clone().filter(|_| self.needs_tls())
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }
}

/// Finds the password of the first line that fits `host:port:database:user:password`.
fn find_password(file: &str, wanted: [&str; 4]) -> Option<String> {
    file.lines().find_map(|line| {
        if line.starts_with('#') {
            return None;
        }
        let fields = fields(line);
        let fits = |(field, wanted): (&String, &str)| field == "*" || field == wanted;
        let is_it = fields.len() == 5 && fields.iter().zip(wanted).all(fits);
        is_it.then(|| fields[4].clone())
    })
}

/// Returns the fields of a line, between colons; a backslash escapes the next character.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        let taken = match letter {
            ':' => {
                fields.push(String::new());
                continue;
            }
            '\\' => letters.next(),
            other => Some(other),
        };
        if let Some(field) = fields.last_mut() {
            field.extend(taken);
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<DatabaseUrl, BadAddress> {
        DatabaseUrl::parse(text, Some("ann"))
    }

    #[test]
    fn an_address_is_shown_without_its_user() {
        for (text, wanted) in [
            (
                "postgres://bob@localhost/haste",
                "postgres://localhost:5432/haste",
            ),
            (
                "postgresql://[::1]:5433/haste",
                "postgres://[::1]:5433/haste",
            ),
            (
                "postgres:///haste",
                "postgres:///haste in /var/run/postgresql:5432",
            ),
            (
                "postgres:///haste?host=/tmp/x&port=7",
                "postgres:///haste in /tmp/x:7",
            ),
            ("postgres://127.0.0.1", "postgres://127.0.0.1:5432/ann"),
        ] {
            let address = parse(text).unwrap();
            assert_eq!(address.to_string(), wanted);
            assert_eq!(format!("{address:?}"), format!("DatabaseUrl({wanted})"));
        }
    }

    #[test]
    fn a_password_in_an_address_is_refused_without_showing_it() {
        for text in [
            "postgres://bob:hunter2@localhost/haste",
            "postgres://localhost/haste?password=hunter2",
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(".pgpass"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn what_is_elsewhere_takes_tls() {
        for (text, wanted) in [
            ("postgres://db.example/haste", true),
            ("postgres://db.example/haste?sslmode=prefer", true),
            ("postgres://db.example/haste?hostaddr=127.0.0.1", true),
            ("postgres://192.0.2.1/haste", true),
            ("postgres://localhost/haste", false),
            ("postgres://localhost/haste?sslmode=require", true),
            ("postgres:///haste?sslmode=require", false),
            ("postgres://[::1]/haste", false),
        ] {
            let address = parse(text).unwrap();
            assert_eq!(address.needs_tls(), wanted, "{text}");
            assert!(address.tls().is_none(), "{text}: nobody is trusted yet");
        }
    }

    #[test]
    fn what_is_no_address_here_is_refused_in_one_line() {
        for (text, wanted) in [
            ("journal.db", "write postgres://HOST/NAME"),
            ("postgres://localhost/a?colour=red", "colour"),
            ("postgres://localhost:x/a", "port"),
            ("postgres://a,b/c", "several hosts"),
            (
                "postgres://db.example/haste?sslmode=disable",
                "db.example:5432/haste is on another machine",
            ),
            (
                "postgres:///haste?hostaddr=192.0.2.1",
                "whose certificate is expected",
            ),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{text}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn the_password_is_that_of_the_first_line_that_fits() {
        let file = "# mine\n\
            localhost:5432:other:ann:wrong\n\
            short:line\n\
            *:5432:haste:ann:a\\:b\\\\c\n\
            *:*:*:*:rest";
        for (text, wanted) in [
            ("postgres:///haste", "a:b\\c"),
            ("postgres://localhost/haste", "a:b\\c"),
            ("postgres://localhost/other", "wrong"),
            ("postgres:///other", "wrong"),
            ("postgres://bob@localhost/other", "rest"),
            ("postgres://localhost:1/haste", "rest"),
        ] {
            let address = parse(text).unwrap().with_password_of(file);
            let found = address.config().get_password().unwrap();
            assert_eq!(found, wanted.as_bytes(), "{text}");
            assert!(!format!("{address:?}").contains(wanted));
        }
        let address = parse("postgres:///haste").unwrap();
        let without = address.with_password_of("elsewhere:*:*:*:x\n");
        assert_eq!(without.config().get_password(), None);
    }
}
