//! Circuits as an operator writes them in `circuits.toml`.

mod written;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_types::ByteRate;

use written::Written;

/// Most circuits of one file: the service queries each while a request uses it.
pub const CIRCUITS_MAX: usize = 64;

/// Most flows of a local circuit: a gateway accepts no more with one reservation.
pub const FLOWS_MAX: usize = 8;

/// Largest file of circuits read, in bytes: people write them by hand.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Path on which rate can be reserved.
#[derive(Debug, Clone, PartialEq)]
pub struct Circuit {
    /// Name of the circuit.
    pub name: String,
    /// Kind of provider, with the circuit's ends.
    pub approach: Approach,
    /// Address of the provider, which begins with `https://` or `http://`.
    pub address: String,
    /// Credential for the provider.
    pub credential: Credential,
    /// Certificates to trust beside the system's, in PEM.
    pub ca_file: Option<PathBuf>,
    /// Names of the depots and gateways that the circuit leads to.
    pub leads_to: Vec<String>,
    /// Highest rate that may be reserved.
    pub rate_max: ByteRate,
    /// Time from the commit until data can flow.
    pub lead: Duration,
    /// Shortest reservation of the provider.
    pub least: Duration,
    /// Price of an hour, in millionths of a dollar.
    pub hour_micro_usd: u64,
    /// Timeout of one request to the provider.
    pub patience: Duration,
}

/// Kind of provider of a circuit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approach {
    /// Calendar of one of our own gateways.
    Local(Local),
    /// OSCARS 1.2, as ESnet runs it.
    Oscars(Oscars),
    /// Connection Service 2.1 of the Network Service Interface.
    Nsi(Nsi),
}

/// Device of a gateway on which rate is reserved, and flows that use it beside the streams that
/// name a reservation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Local {
    /// Name of the device; `None` for the gateway's only one.
    pub device: Option<String>,
    /// Packets that belong to each reservation: at most eight flows.
    pub flows: Vec<Flow>,
}

/// Packets by addresses and ports, in the gateway's form: `10.1.0.0/16`, `192.0.2.9:2811`,
/// `*:50000-51000`, `*`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// Source of the packets.
    #[serde(default = "anywhere")]
    pub from: String,
    /// Destination of the packets.
    #[serde(default = "anywhere")]
    pub to: String,
}

fn anywhere() -> String {
    "*".to_owned()
}

/// Ends of a circuit in OSCARS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oscars {
    /// Both ends.
    pub ends: [Fixture; 2],
    /// Bytes of the longest frame.
    pub mtu_bytes: u32,
}

/// End of a circuit in OSCARS: a VLAN at a port of a device.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixture {
    /// Name of the device.
    pub junction: String,
    /// Port of the device.
    pub port: String,
    /// VLAN at the port.
    pub vlan: u16,
}

/// Ends of a circuit at an NSI provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nsi {
    /// Our own name: `urn:ogf:network:…:nsa:…`.
    pub requester: String,
    /// Name of the provider.
    pub provider: String,
    /// Both ends: `urn:ogf:network:…?vlan=…`.
    pub ends: [String; 2],
    /// Service Definition of the ends.
    pub service_type: String,
    /// Address for replies, if the provider insists on one. Nothing listens there: we query the
    /// state instead.
    pub reply_to: Option<String>,
}

/// Credential for a provider. Secrets stay in their files until they are shown to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// No credential.
    None,
    /// File with the secret of a gateway of our own, from which short-lived tokens are made.
    Secret(PathBuf),
    /// File with a bearer token.
    Token(PathBuf),
    /// Client certificate and its key, in PEM.
    Certificate {
        /// File with the certificate and those above it.
        chain: PathBuf,
        /// File with the key.
        key: PathBuf,
    },
}

/// Reads circuits from a TOML file; paths in it are relative to the file.
///
/// # Errors
/// Errors of reading; [`ErrorKind::Invalid`] with the first invalid line.
pub fn read_circuits(path: &Path) -> Result<Vec<Circuit>> {
    let shown = path.display().to_string();
    let failed = |cause| Error::io("read the circuits in", shown.clone(), cause);
    if std::fs::metadata(path).map_err(failed)?.len() > FILE_BYTES_MAX {
        let error = Error::new(ErrorKind::Invalid, "read the circuits in", shown);
        return Err(error.cause("it is larger than 1 MiB"));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    parse_circuits(&text, folder).map_err(|why| {
        Error::new(ErrorKind::Invalid, "read the circuits in", shown)
            .cause(why)
            .hint("see docs/guide/reservations.md")
    })
}

/// Reads the text of such a file in `folder`.
///
/// # Errors
/// The error and its place, in one line.
pub fn parse_circuits(text: &str, folder: &Path) -> Result<Vec<Circuit>, String> {
    let written: Written = toml::from_str(text).map_err(|cause| {
        let place = cause.span().map(|span| {
            let before = text.get(..span.start).unwrap_or(text);
            format!("line {}: ", before.matches('\n').count() + 1)
        });
        let message = cause.message().trim_end().replace('\n', "; ");
        format!("{}{message}", place.unwrap_or_default())
    })?;
    if written.circuit.len() > CIRCUITS_MAX {
        return Err(format!("more than {CIRCUITS_MAX} circuits"));
    }
    let mut circuits: Vec<Circuit> = Vec::with_capacity(written.circuit.len());
    for one in written.circuit {
        let name = one.name().to_owned();
        let circuit = one
            .into_circuit(folder)
            .map_err(|why| format!("circuit `{name}`: {why}"))?;
        if circuits.iter().any(|other| other.name == circuit.name) {
            return Err(format!("circuit `{name}` is there twice"));
        }
        circuits.push(circuit);
    }
    Ok(circuits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EAST: &str = r#"
        [[circuit]]
        name = "east"
        provider = "oscars"
        address = "https://oscars.example.org:8201/"
        token_file = "oscars.token"
        leads_to = ["d-east"]
        rate_max = "10Gbit"
        price_per_hour_usd = 1.5
        ends = [
            { junction = "lbl-cr6", port = "lbl-cr6:1/1/1", vlan = 3000 },
            { junction = "iu-cr5", port = "iu-cr5:2/1/1", vlan = 3000 },
        ]
    "#;

    fn parse(text: &str) -> Result<Vec<Circuit>, String> {
        parse_circuits(text, Path::new("/etc/posthaste"))
    }

    #[test]
    fn a_circuit_is_read_as_it_is_written() {
        let circuits = parse(EAST).unwrap();
        let [east] = &circuits[..] else {
            panic!("{circuits:?}");
        };
        assert_eq!(east.address, "https://oscars.example.org:8201");
        assert_eq!(
            east.credential,
            Credential::Token("/etc/posthaste/oscars.token".into())
        );
        assert_eq!(east.rate_max.get(), 1_250_000_000);
        assert_eq!(east.hour_micro_usd, 1_500_000);
        let Approach::Oscars(oscars) = &east.approach else {
            panic!("{east:?}");
        };
        assert_eq!(oscars.ends[1].vlan, 3000);
    }

    #[test]
    fn all_kinds_are_read() {
        let circuits = parse(
            r#"
            [[circuit]]
            name = "door"
            provider = "local"
            address = "http://127.0.0.1:7423"
            secret_file = "/var/lib/g/secret"
            rate_max = "1Gbit"
            lead_time_s = 1
            device = "eth1"
            flows = [{ to = "192.0.2.9:2811" }]
            least_s = 10

            [[circuit]]
            name = "far"
            provider = "nsi"
            address = "https://nsi.example.org/services/provider"
            certificate_file = "c.pem"
            key_file = "k.pem"
            rate_max = "100M"
            requester_nsa = "urn:ogf:network:a.example:2026:nsa:posthaste"
            provider_nsa = "urn:ogf:network:es.net:2013:nsa"
            stps = ["urn:ogf:network:a:1?vlan=7", "urn:ogf:network:b:1?vlan=7"]
            "#,
        );
        let circuits = circuits.unwrap();
        let Approach::Local(local) = &circuits[0].approach else {
            panic!("{circuits:?}");
        };
        assert_eq!(local.device.as_deref(), Some("eth1"));
        assert_eq!(local.flows[0].from, "*");
        assert_eq!(circuits[0].lead, Duration::from_secs(1));
        assert!(matches!(&circuits[1].approach, Approach::Nsi(nsi) if nsi.reply_to.is_none()));
        assert_eq!(circuits[1].rate_max.get(), 100 << 20);
    }

    #[test]
    fn what_makes_no_sense_is_said_in_one_line() {
        let changed = |from: &str, to: &str| {
            assert!(EAST.contains(from), "{from}");
            parse(&EAST.replace(from, to)).unwrap_err()
        };
        let door = |more: &str| {
            let text = "[[circuit]]\nname = 'door'\nprovider = 'local'\nrate_max = '1Gbit'\n";
            parse(&format!("{text}address = 'https://g:7423'\n{more}")).unwrap_err()
        };
        let twice = parse(&format!("{EAST}{EAST}")).unwrap_err();
        for (line, says) in [
            (changed("\"oscars\"", "\"oskars\""), "oskars"),
            (changed("token_file", "tokenfile"), "tokenfile"),
            (changed("rate_max = \"10Gbit\"", ""), "rate_max"),
            (changed("10Gbit", "fast"), "fast"),
            (changed("10Gbit", "0"), "rate_max"),
            (changed("https://", "ftp://"), "https://"),
            (
                changed("vlan = 3000 },\n        ]", "vlan = 9999 }]"),
                "9999",
            ),
            (changed("\"east\"", "\"\""), "name"),
            (changed("\"east\"", "\"a b\""), "name"),
            (changed("1.5", "-1.5"), "price"),
            (changed("1.5", "nan"), "price"),
            (
                changed("token_file = \"oscars.token\"", "certificate_file = \"c\""),
                "key_file",
            ),
            (changed("token_file", "secret_file"), "secret_file"),
            (
                changed("price_per_hour_usd = 1.5", "requester_nsa = \"x\""),
                "requester_nsa",
            ),
            (
                changed("price_per_hour_usd = 1.5", "device = \"eth1\""),
                "device",
            ),
            (door(""), "secret_file"),
            (
                door(&format!("secret_file = 's'\nflows = [{}]", "{},".repeat(9))),
                "flows",
            ),
            (
                door("certificate_file = 'c'\nkey_file = 'k'"),
                "secret_file",
            ),
            (twice, "twice"),
        ] {
            assert!(line.contains(says), "`{line}` does not say {says}");
            assert!(!line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn a_token_over_a_bare_connection_is_refused_beyond_this_machine() {
        let line = parse(&EAST.replace("https://", "http://")).unwrap_err();
        assert!(line.contains("https://"), "{line}");
        assert!(parse(&EAST.replace("https://oscars.example.org", "http://127.0.0.1")).is_ok());
    }

    #[test]
    fn a_file_that_is_missing_or_too_long_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("circuits.toml");
        assert_eq!(
            read_circuits(&file).unwrap_err().kind(),
            ErrorKind::NotFound
        );
        std::fs::write(&file, " ".repeat((1 << 20) + 1)).unwrap();
        assert_eq!(read_circuits(&file).unwrap_err().kind(), ErrorKind::Invalid);
        std::fs::write(&file, EAST).unwrap();
        assert_eq!(read_circuits(&file).unwrap().len(), 1);
    }
}
