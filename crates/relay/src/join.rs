//! Registration of the relay with a service that invited it, and its heartbeats.
//!
//! A file beside the relay's data names the service, so a restarted relay continues without the
//! invitation. The file has no secret: the relay shows tokens made from its own.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use posthaste_endpoint::{
    Error, ErrorKind, Result,
    relay::{
        Credential, Fingerprint, RelayAddress, RelayClient,
        join::{HeartbeatBody, Invite, PROTOCOL, RegisterBody},
    },
};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout};

use crate::{drain, request::Service};

/// Interval of the relay's heartbeats, while nothing changes.
const BEAT_EVERY: Duration = Duration::from_secs(30);
/// Interval of checks for changes that can't wait.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Pauses after a failure: the first, and the longest.
const RETRY_AFTER: Duration = Duration::from_secs(1);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// Time limit of a good-bye: without one, the service finds out by itself.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Service with which this relay is registered, as stored on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Joined {
    service: String,
    fingerprint: String,
    name: String,
}

/// Relation of the relay to a service.
pub(crate) struct Member {
    file: PathBuf,
    service: Arc<Service>,
    /// Address at which services reach it, and its key.
    address: RelayAddress,
    invite: Option<Invite>,
    joined: Option<Joined>,
}

impl Member {
    /// Opens the membership from what is stored and from an invitation. `None` if no service ever
    /// invited the relay.
    ///
    /// # Errors
    /// Errors of reading what is stored; [`ErrorKind::Invalid`] if nobody could tell how to reach
    /// the relay.
    pub(crate) fn open(
        dir: &Path,
        service: &Arc<Service>,
        address: RelayAddress,
        invite: Option<Invite>,
    ) -> Result<Option<Self>> {
        let file = dir.join("joined");
        let mut joined = read(&file)?;
        if let (Some(invite), Some(before)) = (&invite, &joined)
            && !before.is_of(invite)
        {
            // Another service, or another name there: the new one counts.
            joined = None;
        }
        if joined.is_none() && invite.is_none() {
            return Ok(None);
        }
        let (host, _) = address.host_and_port()?;
        if host
            .parse()
            .is_ok_and(|ip: std::net::IpAddr| ip.is_unspecified())
        {
            return Err(Error::new(ErrorKind::Invalid, "make known", address.url)
                .cause("that is every address of this machine, and none to tell others")
                .hint("say how it is reached: --advertise https://HOST:PORT"));
        }
        Ok(Some(Self {
            file,
            service: Arc::clone(service),
            address,
            invite,
            joined,
        }))
    }

    /// Registers if necessary, then sends heartbeats until it is dropped.
    ///
    /// # Errors
    /// The reason why an invitation is of no use, permanently.
    pub(crate) async fn keep(&mut self) -> Result<()> {
        let (mut pause, mut told) = (RETRY_AFTER, String::new());
        loop {
            let Err(error) = self.turn().await else {
                (pause, told) = (RETRY_AFTER, String::new());
                self.rest().await;
                continue;
            };
            if self.joined.is_none() && !error.is_temporary() {
                return Err(error);
            }
            // A repeated error is reported once.
            let line = error.to_string();
            if line != told {
                tracing::warn!("{line}");
                told = line;
            }
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_AFTER_MAX);
        }
    }

    /// Tells the service that the relay ends, if that works soon.
    pub(crate) async fn leave(&self) {
        if let Some(joined) = &self.joined {
            let _ = timeout(LEAVE_TIMEOUT, self.beat(joined, true)).await;
        }
    }

    async fn turn(&mut self) -> Result<()> {
        let Some(joined) = self.joined.clone() else {
            return self.register().await;
        };
        match self.beat(&joined, false).await {
            // The service removed the depot from its books, or lost them: an invitation that is
            // still good brings it back.
            Err(error) if is_unknown(&error) && self.invite.is_some() => self.register().await,
            said => said,
        }
    }

    async fn register(&mut self) -> Result<()> {
        let Some(invite) = &self.invite else {
            return Ok(());
        };
        let body = RegisterBody {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").into(),
            name: invite.name.clone(),
            url: self.address.url.clone(),
            fingerprint: self.address.fingerprint.to_string(),
            secret: posthaste_types::Digest::new(self.service.secret).to_string(),
        };
        let token = Credential::Token(invite.token.clone());
        let client = RelayClient::new(invite.service.clone(), token)?;
        client.register(&body).await?;
        let joined = Joined {
            service: invite.service.url.clone(),
            fingerprint: invite.service.fingerprint.to_string(),
            name: invite.name.clone(),
        };
        if self.joined.as_ref() != Some(&joined) {
            write(&self.file, &joined)?;
        }
        tracing::info!(
            depot = joined.name,
            "{} knows it as depot {}",
            joined.service,
            joined.name
        );
        self.joined = Some(joined);
        Ok(())
    }

    async fn beat(&self, joined: &Joined, leaves: bool) -> Result<()> {
        let fingerprint: Fingerprint = joined.fingerprint.parse().map_err(|cause| {
            Error::new(ErrorKind::Invalid, "read", self.file.display().to_string()).cause(cause)
        })?;
        let service = RelayAddress {
            url: joined.service.clone(),
            fingerprint,
        };
        let client = RelayClient::new(service, Credential::Secret(self.service.secret))?;
        let body = HeartbeatBody {
            protocol: PROTOCOL,
            name: joined.name.clone(),
            url: self.address.url.clone(),
            leaves,
            status: self.service.status(),
        };
        client.heartbeat(&body).await
    }

    /// Waits until the next report is due.
    async fn rest(&self) {
        let said = drain::draining(&self.service.dir);
        let since = Instant::now();
        while since.elapsed() < BEAT_EVERY && drain::draining(&self.service.dir) == said {
            sleep(LOOK_EVERY).await;
        }
    }
}

impl Joined {
    fn is_of(&self, invite: &Invite) -> bool {
        self.fingerprint == invite.service.fingerprint.to_string()
            && self.service == invite.service.url
            && self.name == invite.name
    }
}

fn is_unknown(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::Unauthenticated
    )
}

fn read(file: &Path) -> Result<Option<Joined>> {
    let shown = || file.display().to_string();
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(Error::io("read", shown(), cause)),
    };
    let joined = serde_json::from_str(&text).map_err(|cause| {
        Error::new(ErrorKind::Invalid, "read", shown())
            .cause(cause)
            .hint("remove it, and start the relay with --join and a new invitation")
    })?;
    Ok(Some(joined))
}

fn write(file: &Path, joined: &Joined) -> Result<()> {
    let text = serde_json::to_string(joined).unwrap_or_default();
    let fresh = file.with_extension("new");
    let written = fs::write(&fresh, text + "\n").and_then(|()| fs::rename(&fresh, file));
    written.map_err(|cause| Error::io("write", file.display().to_string(), cause))
}
