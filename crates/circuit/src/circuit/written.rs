//! Circuits as written, and their validation.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use posthaste_endpoint::relay::is_loopback;
use serde::Deserialize;

use super::{Approach, Circuit, Credential, FLOWS_MAX, Fixture, Flow, Local, Nsi, Oscars};
use crate::rate::read_rate;

/// Default time to set up a circuit: `overlay-2010` measured less than two minutes.
const LEAD_S: u64 = 120;

/// Default shortest reservation of OSCARS (`resv.minimum-duration`).
const LEAST_S: u64 = 900;

/// Default timeout of one request: path computation over a continent, with a margin.
const PATIENCE_S: u64 = 30;

/// Longest of these times: more is a typing error.
const SPAN_S_MAX: u64 = 86_400;

/// Highest VLAN (IEEE 802.1Q: 4095 is reserved).
const VLAN_MAX: u16 = 4094;

/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Default bytes of the longest frame: jumbo frames, as in science networks.
const MTU_BYTES: u32 = 9000;

/// Service Definition of NSI that nearly all networks offer: Ethernet, with VLANs and a capacity.
const SERVICE_TYPE: &str = "http://services.ogf.org/nsi/2013/12/descriptions/EVTS.A-GOLE";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    #[serde(default)]
    pub circuit: Vec<One>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Local,
    Oscars,
    Nsi,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct One {
    name: String,
    provider: Kind,
    address: String,
    token_file: Option<PathBuf>,
    secret_file: Option<PathBuf>,
    certificate_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    #[serde(default)]
    leads_to: Vec<String>,
    rate_max: String,
    lead_time_s: Option<u64>,
    least_s: Option<u64>,
    price_per_hour_usd: Option<f64>,
    patience_s: Option<u64>,
    device: Option<String>,
    flows: Option<Vec<Flow>>,
    ends: Option<Vec<Fixture>>,
    mtu_bytes: Option<u32>,
    requester_nsa: Option<String>,
    provider_nsa: Option<String>,
    stps: Option<[String; 2]>,
    service_type: Option<String>,
    reply_to: Option<String>,
}

impl One {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Converts the text to a circuit if it is valid.
    pub(super) fn into_circuit(self, folder: &Path) -> Result<Circuit, String> {
        let credential = self.credential(folder)?;
        let rate_max = read_rate(&self.rate_max).map_err(|why| format!("rate_max: {why}"))?;
        if rate_max.get() == 0 {
            return Err("rate_max is nothing".to_owned());
        }
        let named = |name: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(plain)
        };
        if !named(&self.name) {
            return Err(format!(
                "a name has 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` or `.`"
            ));
        }
        let address = self.address.trim_end_matches('/').to_owned();
        check_address(&address, &credential)?;
        let (lead_s, least_s) = match self.provider {
            Kind::Local => (0, 1),
            Kind::Oscars | Kind::Nsi => (LEAD_S, LEAST_S),
        };
        Ok(Circuit {
            lead: span("lead_time_s", self.lead_time_s, lead_s)?,
            least: span("least_s", self.least_s, least_s)?,
            patience: span("patience_s", self.patience_s, PATIENCE_S)?.max(Duration::from_secs(1)),
            hour_micro_usd: price(self.price_per_hour_usd)?,
            ca_file: self.ca_file.as_ref().map(|file| folder.join(file)),
            leads_to: self.leads_to.clone(),
            name: self.name.clone(),
            approach: self.approach()?,
            address,
            credential,
            rate_max,
        })
    }

    fn credential(&self, folder: &Path) -> Result<Credential, String> {
        if self.secret_file.is_some() && !matches!(self.provider, Kind::Local) {
            return Err("secret_file is for the provider local; name a token_file".to_owned());
        }
        let shows = self.secret_file.is_some() || self.token_file.is_some();
        if matches!(self.provider, Kind::Local) && !shows {
            return Err("a gateway wants its secret_file, or a token_file".to_owned());
        }
        match (
            &self.token_file,
            &self.secret_file,
            &self.certificate_file,
            &self.key_file,
        ) {
            (None, None, None, None) => Ok(Credential::None),
            (Some(token), None, None, None) => Ok(Credential::Token(folder.join(token))),
            (None, Some(secret), None, None) => Ok(Credential::Secret(folder.join(secret))),
            (None, None, Some(chain), Some(key)) => Ok(Credential::Certificate {
                chain: folder.join(chain),
                key: folder.join(key),
            }),
            (_, _, Some(_), None) => Err("a certificate_file without its key_file".to_owned()),
            (_, _, None, Some(_)) => Err("a key_file without its certificate_file".to_owned()),
            _ => Err("more than one of token_file, secret_file and certificate_file".to_owned()),
        }
    }

    fn approach(self) -> Result<Approach, String> {
        let local = [
            ("device", self.device.is_some()),
            ("flows", self.flows.is_some()),
        ];
        let oscars = [
            ("ends", self.ends.is_some()),
            ("mtu_bytes", self.mtu_bytes.is_some()),
        ];
        let nsi = [
            ("requester_nsa", self.requester_nsa.is_some()),
            ("provider_nsa", self.provider_nsa.is_some()),
            ("stps", self.stps.is_some()),
            ("service_type", self.service_type.is_some()),
            ("reply_to", self.reply_to.is_some()),
        ];
        let foreign = |keys: &[(&str, bool)]| match keys.iter().find(|(_, given)| *given) {
            Some((key, _)) => Err(format!("{key} is for another provider")),
            None => Ok(()),
        };
        let needs = |key: &str, value: Option<String>| {
            value
                .filter(|value| !value.is_empty())
                .ok_or(format!("no {key}"))
        };
        match self.provider {
            Kind::Local => {
                foreign(&oscars)?;
                foreign(&nsi)?;
                let flows = self.flows.unwrap_or_default();
                if flows.len() > FLOWS_MAX {
                    return Err(format!("more than {FLOWS_MAX} flows"));
                }
                Ok(Approach::Local(Local {
                    device: self.device,
                    flows,
                }))
            }
            Kind::Oscars => {
                foreign(&local)?;
                foreign(&nsi)?;
                let ends = self.ends.ok_or("no ends")?;
                for end in &ends {
                    if !(1..=VLAN_MAX).contains(&end.vlan) {
                        return Err(format!("VLAN {} is not in 1 to {VLAN_MAX}", end.vlan));
                    }
                }
                let ends = ends.try_into();
                Ok(Approach::Oscars(Oscars {
                    ends: ends.map_err(|_| "a circuit has two ends")?,
                    mtu_bytes: self.mtu_bytes.unwrap_or(MTU_BYTES),
                }))
            }
            Kind::Nsi => {
                foreign(&local)?;
                foreign(&oscars)?;
                Ok(Approach::Nsi(Nsi {
                    requester: needs("requester_nsa", self.requester_nsa)?,
                    provider: needs("provider_nsa", self.provider_nsa)?,
                    ends: self.stps.ok_or("no stps")?,
                    service_type: self.service_type.unwrap_or_else(|| SERVICE_TYPE.to_owned()),
                    reply_to: self.reply_to,
                }))
            }
        }
    }
}

fn span(key: &str, seconds: Option<u64>, usual: u64) -> Result<Duration, String> {
    match seconds.unwrap_or(usual) {
        seconds if seconds <= SPAN_S_MAX => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("{key} is more than a day")),
    }
}

fn price(usd: Option<f64>) -> Result<u64, String> {
    let usd = usd.unwrap_or(0.0);
    if !(0.0..1e9).contains(&usd) {
        return Err("price_per_hour_usd is no price".to_owned());
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "in range"
    )]
    Ok((usd * 1e6).round() as u64)
}

/// Checks that secrets go to other machines only under TLS.
fn check_address(address: &str, credential: &Credential) -> Result<(), String> {
    let wrong = || format!("`{address}` is no address that begins with https:// or http://");
    if address.starts_with("https://") {
        return Ok(());
    }
    let rest = address.strip_prefix("http://").ok_or_else(wrong)?;
    let place = rest.split('/').next().unwrap_or_default();
    let host = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => host,
        _ => place,
    };
    match credential {
        // A token made from a secret is valid for two minutes; a gateway has no TLS of its own.
        Credential::None | Credential::Secret(_) => Ok(()),
        Credential::Token(_) if is_loopback(host) => Ok(()),
        Credential::Token(_) => Err("a token goes over https:// only".to_owned()),
        Credential::Certificate { .. } => Err("a certificate needs https://".to_owned()),
    }
}
