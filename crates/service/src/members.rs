//! Relays that register by an invitation, and report their status from time to time.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
};

use posthaste_api as api;
use posthaste_endpoint::{
    Error, ErrorKind, Result,
    relay::{
        Refusal, RelayStatus, Scope,
        join::{HeartbeatBody, PROTOCOL, RegisterBody},
        verify,
    },
};
use tokio::sync::{Mutex, mpsc};

use crate::{
    depots::{Beat, Depot, Viewer},
    driver::Centre,
    enlist::{enlist, follow},
    invites,
};

/// State for registering relays.
pub(crate) struct Members {
    centre: Arc<Centre>,
    watches: mpsc::Sender<Arc<Depot>>,
    doors: Doors,
}

/// Doors that admit one new relay of a name at a time: an invitation is good for one relay, however
/// many come at once. Who waits for a slow relay keeps nobody else out.
#[derive(Default)]
struct Doors(std::sync::Mutex<BTreeMap<String, Arc<Mutex<()>>>>);

impl Doors {
    /// Returns the door of a name. Doors at which nobody stands are forgotten.
    fn of(&self, name: &str) -> Arc<Mutex<()>> {
        let mut doors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        doors.retain(|_, door| Arc::strong_count(door) > 1);
        Arc::clone(doors.entry(name.to_owned()).or_default())
    }
}

impl Members {
    pub(crate) fn new(centre: Arc<Centre>, watches: mpsc::Sender<Arc<Depot>>) -> Self {
        Self {
            centre,
            watches,
            doors: Doors::default(),
        }
    }

    /// Registers a relay that shows a valid invitation.
    pub(crate) async fn register(&self, token: &str, body: RegisterBody) -> Result<()> {
        let subject = || format!("depot {}", body.name);
        check_protocol("register", body.protocol, &subject())?;
        let door = self.doors.of(&body.name);
        let _door = door.lock().await;
        let centre = &self.centre;
        let state = centre.store.directory();
        let invite = invites::show(
            state,
            (&body.name, &body.fingerprint),
            token,
            centre.clock.now(),
        )?;
        let new = api::NewDepot {
            name: body.name.clone(),
            url: body.url.clone(),
            fingerprint: body.fingerprint.clone(),
            secret: body.secret.clone(),
            ..invite.terms.clone().into()
        };
        // Recorded first: after a crash, a relay with another key comes too late.
        let before = invite.used_by(state, &body.name, body.fingerprint)?;
        let enlisted = enlist(centre, &self.watches, new, Viewer::Operator).await;
        let depot = enlisted.map_err(|cause| {
            if let Err(error) = before.put_back(state, &body.name) {
                tracing::warn!("{error}");
            }
            if cause.kind() == ErrorKind::Conflict {
                return cause;
            }
            Error::new(cause.kind(), "reach", body.url.clone())
                .cause(cause)
                .hint("the service connects to the relay: is this its address from outside (--advertise), and does its firewall let the port through?")
        })?;
        depot.joined();
        Ok(())
    }

    /// Receives a relay's status and address.
    pub(crate) async fn heartbeat(&self, token: &str, body: HeartbeatBody) -> Result<()> {
        let subject = || format!("depot {}", body.name);
        check_protocol("hear", body.protocol, &subject())?;
        let centre = &self.centre;
        let depot = centre.depots.named(&body.name).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "hear", subject()).cause("it is not in the books")
        })?;
        let now_s = centre.clock.now().as_micros() / 1_000_000;
        verify(&depot.secret, token, Scope::Heartbeat, None, now_s).map_err(|refusal| {
            let why = match refusal {
                Refusal::Forged | Refusal::OutOfScope => {
                    "it is another relay that is known by this name".to_owned()
                }
                Refusal::Expired { at_unix_s } => {
                    format!(
                        "its token expired {} s ago by the service's clock",
                        now_s - at_unix_s
                    )
                }
            };
            Error::new(ErrorKind::Unauthenticated, "hear", subject()).cause(why)
        })?;
        if body.url != depot.record.url {
            let door = self.doors.of(&body.name);
            let _door = door.lock().await;
            follow(centre, &self.watches, &depot, body.url)
                .await?
                .joined();
            return Ok(());
        }
        depot.beat(match body.leaves {
            true => Beat::Leaves,
            false => Beat::Lives(Box::new(RelayStatus::read(body.status))),
        });
        Ok(())
    }
}

fn check_protocol(operation: &'static str, protocol: u32, subject: &str) -> Result<()> {
    if protocol == PROTOCOL {
        return Ok(());
    }
    let (older, hint) = match protocol < PROTOCOL {
        true => ("relay", "install a newer release there"),
        false => (
            "service",
            "the service's operator has to install a newer release",
        ),
    };
    Err(Error::new(ErrorKind::Unsupported, operation, subject.to_owned())
        .cause(format!(
            "the {older} is too old: the relay speaks version {protocol} of what relays say, the service {PROTOCOL}"
        ))
        .hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_for_a_slow_relay_keeps_out_no_other_name() {
        let doors = Doors::default();
        let desk = doors.of("desk@alice");
        let waits = desk.lock().await;
        assert!(doors.of("desk@alice").try_lock().is_err());
        assert!(doors.of("desk@bob").try_lock().is_ok());
        drop(waits);
        assert!(doors.of("desk@alice").try_lock().is_ok());
        drop(desk);
        doors.of("home");
        assert_eq!(doors.0.lock().unwrap().len(), 1);
    }
}
