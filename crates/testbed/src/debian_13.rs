use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::{install, said};

/// Makes the root a mount, as HTCondor requires it, binds the machine's devices and so on below it,
/// and a folder at its own path, then runs a program there. The address is one for documentation:
/// with the loopback's alone Slurm finds no IPv4. `$1` is the root, `$2` the working folder, `$3`
/// and `$4` the visible folders, and the program follows.
const ENTER: &str = r#"
root=$1 place=$2
ip link set lo up
ip address add 192.0.2.1/32 dev lo
mount --bind "$root" "$root"
for folder in /home /run; do
    mount -t tmpfs -o mode=755 none "$root$folder"
done
mount -t tmpfs -o mode=1777 none "$root/tmp"
for folder in "$3" "$4"; do
    mkdir -p "$root$folder"
    mount --bind "$folder" "$root$folder"
done
mount -t proc none "$root/proc"
for folder in /dev /sys; do
    mkdir -p "$root$folder"
    mount --rbind "$folder" "$root$folder"
done
cp /etc/hosts /etc/resolv.conf "$root/run/"
for name in hosts resolv.conf; do
    : >> "$root/etc/$name"
    mount --bind "$root/run/$name" "$root/etc/$name"
done
shift 4
exec chroot "$root" /usr/bin/env -C "$place" "$@"
"#;

/// Returns a command that runs a program in Debian 13 ([`install::find_debian_13`]). There the
/// program finds that Debian's programs, a network of its own and no process of this machine. Of
/// this machine's folders it sees this workspace and its build alone. It needs root. Its child
/// processes end with it, and it ends with the thread that starts it. No other process sees its
/// mounts.
///
/// # Errors
/// Fails if Debian 13 is not installed.
pub fn in_debian_13(program: &Path) -> Result<Command> {
    let root = install::find_debian_13()?;
    let (workspace, built) = (workspace()?, built()?);
    let place = std::env::current_dir().context("find the folder to run in")?;
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "unshare"])
        .args(["--mount", "--propagation", "private"])
        .args(["--pid", "--fork", "--kill-child", "--net"])
        .args(["sh", "-e", "-c", ENTER, "enter"])
        .arg(root)
        .arg(place)
        .arg(workspace)
        .arg(built)
        .arg(program)
        .env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        .env("TMPDIR", "/tmp")
        .env("HOME", "/root");
    Ok(command)
}

/// Returns whether this process runs in that Debian 13.
#[must_use]
pub fn is_in_debian_13() -> bool {
    Path::new(install::DEBIAN_13_MARK).exists()
}

/// Runs a test of this test program, by its full name, once more in Debian 13.
///
/// # Errors
/// Fails if the test fails, with its output, if there is no such test, or if Debian 13 is not
/// installed.
pub fn again_in_debian_13(test: &str) -> Result<()> {
    let this = std::env::current_exe().context("find this file of tests")?;
    let mut again = in_debian_13(&this)?;
    // Without capture, the output of a failed test goes to standard error at once, as here.
    let ran = said(again.args(["--exact", test, "--nocapture"]))?;
    ensure!(ran.contains("1 passed"), "there is no test {test}: {ran}");
    Ok(())
}

fn workspace() -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::canonicalize(&folder).with_context(|| format!("find {}", folder.display()))
}

/// Returns the folder of the workspace's programs: `target/debug`, as this one lies in its `deps`.
fn built() -> Result<PathBuf> {
    let this = std::env::current_exe().context("find this program")?;
    let folder = this.ancestors().nth(2);
    folder
        .map(Path::to_owned)
        .context("this program lies in no folder")
}
