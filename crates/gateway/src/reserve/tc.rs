//! Runs `tc`.

use std::{
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    process::{Output, Stdio},
    time::Duration,
};

use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_types::ByteRate;
use serde::Deserialize;
use tokio::{io::AsyncWriteExt, process::Command, time::timeout};

use super::tree::{self, Classes, MAJOR};

/// Timeout of `tc`: it queries only the kernel.
const TC_TIMEOUT: Duration = Duration::from_secs(20);
/// Paths of `tc`: users' search paths often lack the folder in which Debian and others put it.
const PROGRAMS: [&str; 3] = ["tc", "/usr/sbin/tc", "/sbin/tc"];

/// Queue as in `tc -json qdisc show`.
#[derive(Debug, Deserialize)]
struct Qdisc {
    kind: String,
    handle: String,
    #[serde(default)]
    root: bool,
}

/// Locks a device against other gateways in this network namespace, as long as the result lives.
pub(super) fn lock(device: &str) -> Result<UnixListener> {
    let name = format!("posthaste-gateway-reserve-{device}");
    let locked =
        SocketAddr::from_abstract_name(name).and_then(|name| UnixListener::bind_addr(&name));
    locked.map_err(|cause| {
        if cause.kind() == io::ErrorKind::AddrInUse {
            return Error::new(ErrorKind::Conflict, "reserve on", device.to_owned())
                .cause("another gateway does so already")
                .hint("give each device to one gateway");
        }
        Error::io("reserve on", device.to_owned(), cause)
    })
}

/// Builds the device's tree, in place of its default queue or of a tree that a gateway left behind.
pub(super) async fn build(device: &str, link: ByteRate, classes: &Classes) -> Result<()> {
    if is_ours(device).await? {
        remove(device).await?;
    }
    apply(device, &tree::build(device, link, classes)).await
}

/// Returns whether a gateway's tree is there; false for the kernel's default.
pub(super) async fn is_ours(device: &str) -> Result<bool> {
    let said = run(device, &["-json", "qdisc", "show", "dev", device], "").await?;
    let all: Vec<Qdisc> = serde_json::from_slice(&said.stdout).map_err(|cause| {
        Error::new(ErrorKind::Other, "read the queues of", device.to_owned())
            .cause(cause.to_string())
    })?;
    let Some(root) = all.into_iter().find(|qdisc| qdisc.root) else {
        return Ok(false);
    };
    if root.handle == format!("{MAJOR:x}:") && root.kind == "htb" {
        return Ok(true);
    }
    // The kernel's own queues have no number.
    if root.handle == "0:" {
        return Ok(false);
    }
    Err(
        Error::new(ErrorKind::Conflict, "reserve on", device.to_owned())
            .cause(format!(
                "somebody else's {} {} is there",
                root.kind, root.handle
            ))
            .hint(format!(
                "if nobody needs it: tc qdisc del dev {device} root"
            )),
    )
}

/// Removes the tree; the kernel restores its default.
pub(super) async fn remove(device: &str) -> Result<()> {
    apply(device, &format!("qdisc del dev {device} root\n")).await
}

/// Runs lines as one batch.
pub(super) async fn apply(device: &str, lines: &str) -> Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    run(device, &["-batch", "-"], lines).await.map(|_| ())
}

async fn run(device: &str, arguments: &[&str], input: &str) -> Result<Output> {
    let failed = |kind| Error::new(kind, "reserve on", device.to_owned());
    for program in PROGRAMS {
        let ran = timeout(TC_TIMEOUT, try_run(program, arguments, input)).await;
        return match ran {
            Err(_) => Err(failed(ErrorKind::TimedOut).cause("tc does not end")),
            Ok(Err(cause)) if cause.kind() == io::ErrorKind::NotFound => continue,
            Ok(Err(cause)) => Err(failed(ErrorKind::Other).cause(cause)),
            Ok(Ok(output)) if output.status.success() => Ok(output),
            Ok(Ok(output)) => Err(explain(device, &String::from_utf8_lossy(&output.stderr))),
        };
    }
    Err(failed(ErrorKind::Unsupported)
        .cause("the program tc is not there")
        .hint("install iproute2"))
}

async fn try_run(program: &str, arguments: &[&str], input: &str) -> io::Result<Output> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let pipe = child.stdin.take();
    let give = async {
        match pipe {
            Some(mut pipe) => pipe.write_all(input.as_bytes()).await,
            None => Ok(()),
        }
    };
    // Both at once: `tc` may write more than a pipe holds before it has read all.
    let (given, output) = tokio::join!(give, child.wait_with_output());
    match given {
        // `tc` stops at the first line that fails.
        Err(cause) if cause.kind() == io::ErrorKind::BrokenPipe => {}
        given => given?,
    }
    output
}

/// Converts the output of `tc` to an error with a remedy.
fn explain(device: &str, said: &str) -> Error {
    // Warnings, and line numbers of the batch, help no reader.
    let is_telling = |line: &&str| {
        !line.is_empty() && !line.starts_with("Warning") && !line.starts_with("Command failed")
    };
    let mut lines = said.lines().map(str::trim).filter(is_telling);
    let why = lines.next().unwrap_or("tc failed").to_owned();
    let (kind, hint) = if said.contains("not permitted") {
        (
            ErrorKind::PermissionDenied,
            "give it CAP_NET_ADMIN (systemd: AmbientCapabilities=CAP_NET_ADMIN)",
        )
    } else if said.contains("Cannot find device") {
        (ErrorKind::NotFound, "`ip link` lists the devices")
    } else if said.contains("classifier not found") {
        (ErrorKind::Unsupported, "modprobe cls_u32")
    } else if said.contains("qdisc kind is unknown") || said.contains("qdisc not found") {
        (ErrorKind::Unsupported, "modprobe sch_htb")
    } else {
        (ErrorKind::Other, "`tc qdisc show` tells what is there")
    };
    Error::new(kind, "reserve on", device.to_owned())
        .cause(why)
        .hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tc_says_becomes_one_line_with_what_to_do() {
        for (said, kind, cause) in [
            (
                "RTNETLINK answers: Operation not permitted\nCommand failed -:1\n",
                ErrorKind::PermissionDenied,
                "not permitted",
            ),
            ("Cannot find device \"eth9\"\n", ErrorKind::NotFound, "eth9"),
            (
                "Warning: x\nError: TC classifier not found.\nWe have an error talking to the kernel\n",
                ErrorKind::Unsupported,
                "classifier",
            ),
            (
                "Error: Specified qdisc kind is unknown.\n",
                ErrorKind::Unsupported,
                "unknown",
            ),
            ("", ErrorKind::Other, "tc failed"),
        ] {
            let error = explain("eth1", said);
            assert_eq!(error.kind(), kind, "{said}");
            let told = error.to_string();
            assert!(
                told.contains(cause) && !told.contains('\n') && !told.contains("Warning"),
                "{told}"
            );
        }
    }
}
