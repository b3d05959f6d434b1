//! Servers on the far host, on the same files as the near one: both see this machine's disk.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::{IpAddr, TcpListener},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use posthaste_testbed::{
    Place, S3Server, SshServer,
    install::{self, DebianProgram},
};

use super::super::site::{Site, figure, output};

/// GridFTP's server, for a rival.
pub const GRIDFTP_SERVER: DebianProgram = DebianProgram {
    name: "globus-gridftp-server",
    package: "globus-gridftp-server-progs",
};

/// A web server, for a rival.
pub const NGINX: DebianProgram = DebianProgram {
    name: "nginx",
    package: "nginx-light",
};

/// Host with the servers, and the one with the clients.
pub const FAR: &str = "far";
pub const NEAR: &str = "near";

/// Space lent by the relay.
const RELAY_CAPACITY: &str = "16G";

/// Interval between two checks whether a server listens, and most checks: 10 s.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const LOOKS_MAX: u32 = 500;

/// A server process that ends with its owner.
#[derive(Debug)]
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // An ended process can't be killed again.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// All servers.
#[derive(Debug)]
pub struct Servers {
    /// Server for `scp`, `rsync`, SFTP and `posthaste cp user@host:`.
    pub ssh: SshServer,
    /// Server for every contender that speaks S3.
    pub s3: S3Server,
    /// Ports of GridFTP's server and the web server, or the reason why there is none.
    pub gridftp: Result<u16, String>,
    pub web: Result<u16, String>,
    /// Folder of the relay's files.
    pub relay_folder: PathBuf,
    /// Address of the far host.
    pub address: IpAddr,
    /// A home for the clients, so that nobody else's configuration is read.
    pub home: PathBuf,
    _running: Vec<Running>,
}

impl Servers {
    /// Starts them below this folder.
    ///
    /// # Errors
    /// Fails if a server that posthaste needs is missing or does not start.
    pub fn start(site: &Site, folder: &Path, posthaste: &Path) -> anyhow::Result<Self> {
        let address = address_of(site)?;
        let place = Place::new(address, site.words(FAR));
        let home = folder.join("home");
        fs::create_dir_all(&home)?;
        let relay = folder.join("relay");
        let mut running = vec![start_relay(site, address, &relay, &home, posthaste)?];
        let mut keep = |started: anyhow::Result<(Running, u16)>| {
            let (process, port) = started.map_err(|error| format!("{error:#}"))?;
            running.push(process);
            Ok(port)
        };
        Ok(Self {
            ssh: SshServer::start_at(&place)?,
            s3: S3Server::start_at(&place, folder)?,
            gridftp: keep(start_gridftp(site, address, folder)),
            web: keep(start_web(site, address, folder)),
            relay_folder: relay.join("files"),
            address,
            home,
            _running: running,
        })
    }

    /// Returns the options with which `ssh` reaches the far host.
    pub fn ssh_options(&self) -> Vec<String> {
        let mut options = self.ssh.options();
        options.push(format!("Port={}", self.ssh.port()));
        options
    }

    /// Returns those options as words of a command line.
    pub fn ssh_words(&self) -> Vec<String> {
        let options = self.ssh_options().into_iter();
        options
            .flat_map(|option| ["-o".to_owned(), option])
            .collect()
    }

    /// Returns `user@address`.
    pub fn login(&self) -> String {
        format!("{}@{}", self.ssh.user(), self.address)
    }

    /// Returns the file with the key for the far host.
    pub fn ssh_key(&self) -> String {
        let options = self.ssh.options();
        let key = options
            .iter()
            .find_map(|option| option.strip_prefix("IdentityFile="));
        key.unwrap_or_default().to_owned()
    }
}

/// Returns the address of the far host's name.
fn address_of(site: &Site) -> anyhow::Result<IpAddr> {
    let text = output(site.command(NEAR, "getent").args(["hosts", FAR]))?;
    let address = text
        .split_whitespace()
        .next()
        .context("the far host has no address")?;
    address
        .parse()
        .with_context(|| format!("{address} is no address"))
}

/// Returns a port that nobody listens on here, and so nobody in the laboratory, which is empty.
fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("find a free port")?;
    Ok(listener.local_addr()?.port())
}

/// Starts a relay and registers it with posthaste as `far`.
fn start_relay(
    site: &Site,
    address: IpAddr,
    folder: &Path,
    home: &Path,
    posthaste: &Path,
) -> anyhow::Result<Running> {
    let mut command = site.command(FAR, posthaste);
    command
        .args(["relay", "--json", "--until-stdin-closes"])
        .args([
            "--listen",
            &format!("{address}:0"),
            "--capacity",
            RELAY_CAPACITY,
        ])
        .arg("--dir")
        .arg(folder);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("start a relay")?;
    let mut line = String::new();
    let out = child.stdout.take().context("the relay says nothing")?;
    let running = Running(child);
    BufReader::new(out).read_line(&mut line)?;
    let field = |name: &str| {
        let (_, after) = line.split_once(&format!("\"{name}\":\""))?;
        Some(after.split_once('"')?.0.to_owned())
    };
    let (Some(url), Some(fingerprint), Some(secret)) =
        (field("url"), field("fingerprint"), field("secret_file"))
    else {
        bail!("the relay said {line}");
    };
    let url = url.replace("https://", "posthaste://");
    let profile = format!(
        "[far]\nurl = \"{url}/\"\nfingerprint = \"{fingerprint}\"\nsecret_file = \"{secret}\"\n"
    );
    let file = home.join(".config/posthaste/profiles.toml");
    fs::create_dir_all(file.parent().context("profiles have a folder")?)?;
    fs::write(&file, profile)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
    Ok(running)
}

/// Starts GridFTP, open to everybody, as the user of the benchmark.
fn start_gridftp(site: &Site, address: IpAddr, folder: &Path) -> anyhow::Result<(Running, u16)> {
    let program = install::ensure_debian_program(GRIDFTP_SERVER)?;
    let (port, address) = (free_port()?, address.to_string());
    let mut command = site.command(FAR, program);
    command
        .args(["-aa", "-anonymous-user", "root", "-allow-root"])
        .args(["-p", &port.to_string(), "-control-interface", &address])
        .args(["-data-interface", &address, "-log-level", "ERROR", "-l"])
        .arg(folder.join("gridftp.log"));
    start(site, command, port, "GridFTP's server")
}

/// Starts nginx, with all files below the folder.
fn start_web(site: &Site, address: IpAddr, folder: &Path) -> anyhow::Result<(Running, u16)> {
    let program = install::ensure_debian_program(NGINX)?;
    let port = free_port()?;
    let shown = folder.display();
    let config = folder.join("nginx.conf");
    fs::write(
        &config,
        format!(
            "daemon off;\nuser root;\npid {shown}/nginx.pid;\nerror_log {shown}/nginx.log;\nevents {{}}\n\
             http {{ access_log off; sendfile on; server {{ listen {address}:{port}; root {shown}; }} }}\n"
        ),
    )?;
    let mut command = site.command(FAR, program);
    command.arg("-c").arg(config);
    start(site, command, port, "nginx")
}

/// Starts a server that does not report when it is ready.
fn start(
    site: &Site,
    mut command: Command,
    port: u16,
    what: &str,
) -> anyhow::Result<(Running, u16)> {
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut running = Running(child.with_context(|| format!("start {what}"))?);
    for _ in 0..LOOKS_MAX {
        // `bash` is where `posthaste-lab exec` runs, and it can open a connection by itself.
        let knock = format!("exec 3<>/dev/tcp/{FAR}/{port}");
        let mut knock = {
            let mut command = site.command(FAR, "bash");
            command.args(["-c", &knock]).stderr(Stdio::null());
            command
        };
        if knock.status()?.success() {
            return Ok((running, port));
        }
        ensure!(running.0.try_wait()?.is_none(), "{what} ended at once");
        thread::sleep(LOOK_EVERY);
    }
    bail!("{what} does not listen")
}

/// Returns the emulator's processor time since its start, and the time since then.
///
/// # Errors
/// Fails if it does not answer.
pub fn emulator(site: &Site) -> anyhow::Result<(f64, f64)> {
    let status = site.status()?;
    Ok((
        figure(&status, &["emulator_cpu_s"])?,
        figure(&status, &["uptime_s"])?,
    ))
}
