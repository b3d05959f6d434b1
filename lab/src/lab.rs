//! A laboratory from its start to its end.

use std::{
    ffi::{CString, OsStr},
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use anyhow::{Context, Result, bail};

use crate::{
    control::{Control, Desk, Status},
    emulator::{self, Emulator},
    kernel::{self, Entry},
    namespace::{self, Namespace},
    network::Network,
    register::{Claim, HostRecord, Keeper, NAMESPACE_PREFIX, Record},
    topology::{Host, HostId, MTU_BYTES, Topology},
};

/// Packets that a device holds until the emulator reads them: half a second of 64 KiB packets at 4
/// Gbit/s. More are lost, as at a network card.
const DEVICE_QUEUE_PACKETS: u32 = 4096;

/// Default congestion control of a host's programs.
const CONGESTION_CONTROL: &str = "net.ipv4.tcp_congestion_control";

/// Laboratories created by this process, for their names.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A laboratory that is up. Dropping it ends what runs in it and removes it.
///
/// ```no_run
/// use posthaste_lab::{Lab, Topology};
///
/// let lab = Lab::up(&Topology::read("lab/topologies/wan-60ms.toml".as_ref())?)?;
/// let far = lab.address("far").to_string();
/// let status = lab.command("near", "ping").args(["-c", "1", &far]).status()?;
/// assert!(status.success());
/// # Ok::<(), anyhow::Error>(())
/// ```
#[derive(Debug)]
pub struct Lab {
    // Fields in the order in which they end: control, packets, processes, and the name last.
    control: Option<Control>,
    emulator: Option<Emulator>,
    ground: Ground,
    desk: Desk,
}

/// Namespaces, and their common name.
#[derive(Debug)]
struct Ground {
    record: Record,
    _claim: Claim,
}

impl Drop for Ground {
    fn drop(&mut self) {
        let names: Vec<String> = self
            .record
            .hosts
            .iter()
            .map(|host| host.namespace.clone())
            .collect();
        if let Err(error) = namespace::remove(&names) {
            eprintln!("posthaste-lab: {error:#}");
        }
    }
}

impl Lab {
    /// Builds a laboratory for this process, under a name of its own: several may be up at once.
    ///
    /// # Errors
    /// Fails if it can't be built, in one line that names what is missing.
    pub fn up(topology: &Topology) -> Result<Self> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{}-{number}", topology.name(), std::process::id());
        Self::up_as(topology, &name, Keeper::Program)
    }

    /// Builds a laboratory under this name.
    ///
    /// # Errors
    /// Fails if it can't be built, in one line that names what is missing, or if the name is in
    /// use.
    pub fn up_as(topology: &Topology, name: &str, keeper: Keeper) -> Result<Self> {
        let record = record_of(topology, name, keeper)?;
        let ground = Ground {
            _claim: Claim::take(&record)?,
            record,
        };
        emulator::check_tun()?;
        let mut namespaces = Vec::new();
        for host in &ground.record.hosts {
            namespaces.push(Namespace::create(&host.namespace)?);
        }
        let devices = make_devices(topology, &namespaces)?;
        for (place, space) in namespaces.iter().enumerate() {
            space
                .ip(&ip_lines(topology, &ground.record, HostId(place)))
                .with_context(|| format!("host {}", topology.hosts()[place].name))?;
        }
        let (links, hosts) = (topology.links().len(), topology.hosts().len());
        let emulator = Emulator::start(Network::new(topology), links, hosts, devices)?;
        let desk = Desk {
            topology: Arc::new(topology.clone()),
            record: ground.record.clone(),
            line: emulator.line().clone(),
        };
        Ok(Self {
            control: Some(Control::start(desk.clone())?),
            emulator: Some(emulator),
            ground,
            desk,
        })
    }

    /// Returns the name: `posthaste-lab exec --lab NAME` reaches it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.ground.record.name
    }

    /// Returns the record known outside.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.ground.record
    }

    /// Returns a command that runs on a host.
    ///
    /// # Panics
    /// Panics if there is no such host.
    #[must_use]
    pub fn command(&self, host: &str, program: impl AsRef<OsStr>) -> Command {
        match command(self.record(), host, program.as_ref()) {
            Ok(command) => command,
            Err(error) => panic!("{error:#}"),
        }
    }

    /// Runs a closure on a thread of its own on a host. Sockets it opens stay on that host,
    /// wherever they are used afterwards.
    ///
    /// # Errors
    /// Fails if there is no such host, it can't be entered, or the closure fails.
    pub fn within<T: Send>(&self, host: &str, run: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        Namespace::open(&find(self.record(), host)?.namespace)?.within(run)
    }

    /// Address of a host for the others.
    ///
    /// # Panics
    /// Panics if there is no such host.
    #[must_use]
    pub fn address(&self, host: &str) -> IpAddr {
        match find(self.record(), host) {
            Ok(found) => found.address.into(),
            Err(error) => panic!("{error:#}"),
        }
    }

    /// Returns its state.
    ///
    /// # Errors
    /// Fails if the emulator has ended.
    pub fn status(&self) -> Result<Status> {
        self.desk.status()
    }

    /// Changes a link or an access, in words such as `rate=10Mbit/s`.
    ///
    /// # Errors
    /// Fails if there is no such thing, or the change is impossible; one line.
    pub fn change(&self, target: &str, words: &[&str]) -> Result<()> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        self.desk.change(target, &words)
    }

    /// Returns whether packets are still carried.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.control.is_some() && self.emulator.as_ref().is_some_and(Emulator::is_running)
    }
}

/// Returns a command that runs on a host of a laboratory of any process.
///
/// # Errors
/// Fails if there is no such host.
pub fn command(record: &Record, host: &str, program: &OsStr) -> Result<Command> {
    let found = find(record, host)?;
    let entry = Entry {
        namespace: Arc::clone(Namespace::open(&found.namespace)?.file()),
        hosts: c_path(&record.hosts_file())?,
        name: found.name.clone(),
    };
    let mut command = Command::new(program);
    kernel::enter_on_start(&mut command, entry);
    Ok(command)
}

fn find<'a>(record: &'a Record, host: &str) -> Result<&'a HostRecord> {
    let found = record.hosts.iter().find(|known| known.name == host);
    if let Some(found) = found {
        return Ok(found);
    }
    let names: Vec<&str> = record.hosts.iter().map(|host| &*host.name).collect();
    bail!(
        "{} has no host \"{host}\"; it has: {}",
        record.name,
        names.join(", ")
    )
}

fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).context("a path holds no zero")
}

/// Returns the names and addresses of everything.
fn record_of(topology: &Topology, name: &str, keeper: Keeper) -> Result<Record> {
    let pid = std::process::id();
    let mut hosts = Vec::new();
    for (place, host) in topology.hosts().iter().enumerate() {
        let number = u8::try_from(place + 1).context("hosts are few")?;
        hosts.push(HostRecord {
            name: host.name.clone(),
            namespace: format!("{NAMESPACE_PREFIX}{name}.{pid}.{}", host.name),
            address: Ipv4Addr::new(10, 117, 0, number),
            address6: has_ipv6()
                .then(|| Ipv6Addr::new(0xfd00, 0x117, 0, 0, 0, 0, 0, u16::from(number))),
        });
    }
    Ok(Record {
        name: name.to_owned(),
        pid,
        keeper,
        hosts,
    })
}

/// Makes a device at both ends of each link, in namespaces set up for it.
fn make_devices(topology: &Topology, namespaces: &[Namespace]) -> Result<Vec<OwnedFd>> {
    for (space, host) in namespaces.iter().zip(topology.hosts()) {
        set_up(space, host)?;
    }
    let mut devices = Vec::new();
    for link in topology.links() {
        for end in link.ends {
            let open = || Ok(kernel::open_tun(&link.name)?);
            let device = namespaces[end.0].within(open);
            devices.push(device.with_context(|| format!("can't make the device {}", link.name))?);
        }
    }
    // The topology's own settings may name devices.
    for (space, host) in namespaces.iter().zip(topology.hosts()) {
        if let Some(wanted) = host.sysctl.get(CONGESTION_CONTROL) {
            allow_congestion_control(wanted)?;
        }
        let own = host
            .sysctl
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        set_all(space, own.collect()).with_context(|| format!("host {}", host.name))?;
    }
    Ok(devices)
}

/// Configures a host's kernel before it has devices. Packets may come and go on different links,
/// and measurements must not depend on what an earlier one learned of a path.
fn set_up(space: &Namespace, host: &Host) -> Result<()> {
    let forwards = if host.forwards { "1" } else { "0" };
    let mut settings = vec![
        ("net.ipv4.ip_forward", forwards),
        ("net.ipv4.conf.all.rp_filter", "0"),
        ("net.ipv4.conf.default.rp_filter", "0"),
        ("net.ipv4.tcp_no_metrics_save", "1"),
    ];
    if has_ipv6() {
        settings.extend([
            ("net.ipv6.conf.all.forwarding", forwards),
            ("net.ipv6.conf.default.accept_ra", "0"),
            ("net.ipv6.conf.default.addr_gen_mode", "1"),
        ]);
    }
    set_all(space, settings).with_context(|| format!("host {}", host.name))
}

fn set_all(space: &Namespace, settings: Vec<(&str, &str)>) -> Result<()> {
    space.within(|| {
        let mut each = settings.into_iter();
        each.try_for_each(|(name, value)| Namespace::write_setting(name, value))
    })
}

/// Allows a congestion control on this machine. A namespace may only default to one that the
/// machine allows every socket to choose. That list is one for all namespaces; an addition stays
/// until the next boot.
fn allow_congestion_control(wanted: &str) -> Result<()> {
    let list = Path::new("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
    let allowed = fs::read_to_string(list).context("can't read what the machine allows")?;
    if allowed.split_whitespace().any(|name| name == wanted) {
        return Ok(());
    }
    fs::write(list, format!("{} {wanted}", allowed.trim()))
        .with_context(|| format!("can't allow {CONGESTION_CONTROL} = \"{wanted}\""))
}

fn has_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6").is_dir()
}

/// Returns lines of `ip` for a host: its address, its links, and the route to every other host.
fn ip_lines(topology: &Topology, record: &Record, host: HostId) -> String {
    let own = &record.hosts[host.0];
    let mut lines = vec![
        "link set lo up".to_owned(),
        format!("address add {}/32 dev lo", own.address),
    ];
    if let Some(address6) = own.address6 {
        lines.push(format!("address add {address6}/128 dev lo nodad"));
    }
    for link in topology
        .links()
        .iter()
        .filter(|link| link.ends.contains(&host))
    {
        lines.push(format!(
            "link set {} mtu {MTU_BYTES} txqueuelen {DEVICE_QUEUE_PACKETS} up",
            link.name
        ));
    }
    for (place, other) in record.hosts.iter().enumerate() {
        let Some(link) = topology.next_link(host, HostId(place)) else {
            continue;
        };
        let name = &link.name;
        lines.push(format!(
            "route add {}/32 dev {name} src {}",
            other.address, own.address
        ));
        if let (Some(to), Some(from)) = (other.address6, own.address6) {
            lines.push(format!("route add {to}/128 dev {name} src {from}"));
        }
    }
    lines.push(String::new());
    lines.join("\n")
}
