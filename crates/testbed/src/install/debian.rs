//! A Debian of its own below `target/tools/`, with programs that this machine's Debian has in older
//! versions or not at all.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};

use super::{apt_install, find_in_path, last_line, say, tools_folder};
use crate::is_root;

/// The release of Debian, as its archive names it.
const SUITE: &str = "trixie";
/// Archive of packages.
const ARCHIVE: &str = "http://deb.debian.org/debian";
/// Keyring that signs the packages.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Folder name; its last number grows when the packages change.
const FOLDER: &str = "debian-13-2";
/// Packages to install: current Slurm and HTCondor, and programs that tests and jobs run beside
/// them.
const PACKAGES: [&str; 27] = [
    "base-files",
    "base-passwd",
    "bash",
    "bsdutils",
    "ca-certificates",
    "condor",
    "coreutils",
    "dash",
    "findutils",
    "grep",
    "hostname",
    "libc-bin",
    "lua5.1",
    "mariadb-server-core",
    "mawk",
    "openssh-server",
    "procps",
    "sed",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "slurm-wlm-jwt-plugin",
    "slurm-wlm-mysql-plugin",
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "slurmrestd",
    "util-linux",
];
/// File that marks that Debian.
pub(crate) const DEBIAN_13_MARK: &str = "/etc/posthaste-debian-13";
/// Folders removed after the installation: nobody reads them.
const UNREAD: [&str; 4] = [
    "usr/share/doc",
    "usr/share/i18n",
    "usr/share/locale",
    "usr/share/man",
];
/// Links, each with its target, that scripts of packages would have made: those scripts are not
/// run.
const LINKS: [(&str, &str); 4] = [
    ("usr/bin/awk", "mawk"),
    ("usr/sbin/slurmctld", "slurmctld-wlm"),
    ("usr/sbin/slurmd", "slurmd-wlm"),
    ("usr/sbin/slurmstepd", "slurmstepd-wlm"),
];
/// Accounts that such scripts would have added, and the submitter of jobs.
const ACCOUNTS: &str = "sshd:x:990:65534::/run/sshd:/usr/sbin/nologin\n\
                        condor:x:991:991::/var/lib/condor:/usr/sbin/nologin\n\
                        alice:x:1000:1000::/home/alice:/bin/sh\n";
/// Groups of those accounts.
const GROUPS: &str = "condor:x:991:\nalice:x:1000:\n";
/// Path at which programs look for certificates of authorities, and their place in the package.
const CERTIFICATES: (&str, &str) = (
    "etc/ssl/certs/ca-certificates.crt",
    "usr/share/ca-certificates/mozilla",
);

/// Finds the root folder of a Debian 13 with Slurm 24.11 and HTCondor 23.9.
///
/// # Errors
/// Fails if it is not installed.
pub fn find_debian_13() -> Result<PathBuf> {
    let root = tools_folder().join(FOLDER);
    ensure!(
        root.is_dir(),
        "the tests need the Slurm and the HTCondor of Debian 13: run `cargo xtask test`, which installs them"
    );
    root.canonicalize()
        .with_context(|| format!("find {}", root.display()))
}

/// Installs that Debian 13 if it is missing.
///
/// # Errors
/// Fails if it is unavailable; the message says why.
pub fn ensure_debian_13() -> Result<PathBuf> {
    if let Ok(found) = find_debian_13() {
        return Ok(found);
    }
    if !is_root()? {
        bail!("only root can install Debian 13's packages: run `sudo cargo xtask test`");
    }
    if find_in_path("mmdebstrap").is_none() || !Path::new(KEYRING).is_file() {
        apt_install("mmdebstrap debian-archive-keyring")?;
    }
    say("installing the Slurm and the HTCondor of Debian 13 from its archive");
    // Under another name until it is complete.
    let root = tools_folder().join(FOLDER);
    let partial = tools_folder().join(format!("{FOLDER}.partial"));
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    fs::create_dir_all(tools_folder())?;
    extract(&partial)?;
    finish(&partial).context("set up Debian 13")?;
    fs::rename(&partial, &root)?;
    find_debian_13()
}

/// Downloads the packages and unpacks them; none of their scripts is run.
fn extract(root: &Path) -> Result<()> {
    let output = Command::new("mmdebstrap")
        .args(["--quiet", "--mode=root", "--variant=extract"])
        .arg(format!("--include={}", PACKAGES.join(",")))
        .arg(SUITE)
        .arg(root)
        .arg(format!("deb [signed-by={KEYRING}] {ARCHIVE} {SUITE} main"))
        .stdin(Stdio::null())
        .output()
        .context("run mmdebstrap")?;
    let reason = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.success(),
        "Debian 13 can't be had from {ARCHIVE}: {}",
        last_line(&reason)
    );
    Ok(())
}

/// Does the work of the packages' scripts, as far as anything here needs it.
fn finish(root: &Path) -> Result<()> {
    for folder in UNREAD {
        let folder = root.join(folder);
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
    }
    for (link, program) in LINKS {
        symlink(program, root.join(link))?;
    }
    for (name, more) in [("passwd", ACCOUNTS), ("group", GROUPS)] {
        let path = root.join("etc").join(name);
        let master = root.join(format!("usr/share/base-passwd/{name}.master"));
        fs::copy(&master, &path).with_context(|| format!("copy {}", master.display()))?;
        let mut file = fs::OpenOptions::new().append(true).open(&path)?;
        file.write_all(more.as_bytes())?;
    }
    fs::write(root.join(DEBIAN_13_MARK.trim_start_matches('/')), "")?;
    let (bundle, folder) = CERTIFICATES;
    let mut certificates = Vec::new();
    for certificate in fs::read_dir(root.join(folder))? {
        certificates.extend(fs::read(certificate?.path())?);
    }
    fs::create_dir_all(root.join("etc/ssl/certs"))?;
    fs::write(root.join(bundle), certificates)?;
    Ok(())
}
