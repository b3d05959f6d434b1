//! Real servers for tests: OpenSSH's `sshd`, an S3 gateway, a PostgreSQL and so on. Each runs in a
//! temporary folder on a loopback port and is gone when dropped. The feature `conformance` adds the
//! one suite that every endpoint passes against them.
//!
//! A missing program is an error that names the command to run; tests never skip. `cargo xtask
//! test` installs them ([`install`]). The S3 server is versitygw: Apache-2.0, maintained, one
//! binary from the Go module proxy, plain files below. It checks and keeps CRC-64/NVME checksums of
//! whole objects as Amazon's S3 does. A second one, MinIO, keeps us from mistaking one server's
//! behaviour for S3.

mod azure_server;
mod certificates;
mod collector;
mod condor_pool;
#[cfg(feature = "conformance")]
pub mod conformance;
mod debian_13;
mod empty_files;
mod ftp_server;
mod gcs_server;
mod grid_ftp_server;
mod hosts;
mod identity_server;
pub mod install;
mod mail_server;
mod night;
mod noise;
#[cfg(feature = "reservations")]
mod nsi_stand_in;
#[cfg(feature = "odd")]
pub mod odd;
#[cfg(feature = "reservations")]
mod oscars_stand_in;
mod place;
mod ports;
mod postgres_server;
mod s3_server;
mod slow_link;
mod slurm;
mod ssh_server;
#[cfg(feature = "reservations")]
mod stand_in;
mod store_mask;
mod tls_front;
mod wall_clock;
mod web_server;

use std::{
    net::TcpStream,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};

pub use azure_server::AzureServer;
pub use collector::Collector;
pub use condor_pool::CondorPool;
pub use debian_13::{again_in_debian_13, in_debian_13, is_in_debian_13};
pub use empty_files::make_empty_files;
pub use ftp_server::{FtpFace, FtpServer};
pub use gcs_server::GcsServer;
pub use grid_ftp_server::GridFtpServer;
pub use hosts::Hosts;
pub use identity_server::IdentityServer;
pub use mail_server::{MailFace, MailServer};
pub use night::{is_night, share_of};
pub use noise::noise;
#[cfg(feature = "reservations")]
pub use nsi_stand_in::{NsiHabits, NsiStandIn};
#[cfg(feature = "reservations")]
pub use oscars_stand_in::OscarsStandIn;
pub use place::Place;
pub use ports::free_port;
pub use postgres_server::PostgresServer;
pub use s3_server::{S3Kind, S3Server};
pub use slow_link::SlowLink;
pub use slurm::{Slurm, SlurmRest};
pub use ssh_server::SshServer;
#[cfg(feature = "reservations")]
pub use stand_in::Fault;
pub use store_mask::{StoreLooks, StoreMask};
pub use tls_front::TlsFront;
pub use wall_clock::wall_clock;
pub use web_server::{WebFace, WebServer};

/// Interval between two checks whether a server listens.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Checks until a server counts as failed: five minutes. A server that ends is noticed at once. A
/// slow start on a busy machine, whose disks may stall, is no fault.
const LOOKS_MAX: u32 = 15_000;

/// A server process that ends with its owner, also if a test panics.
#[derive(Debug)]
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // An ended process can't be killed again, and no caller is left for the error.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_until_listening(running: &mut Running, port: u16, what: &str) -> Result<()> {
    for _ in 0..LOOKS_MAX {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Ok(());
        }
        if let Some(status) = running.0.try_wait()? {
            bail!("{what} ended at once: {status}");
        }
        thread::sleep(LOOK_EVERY);
    }
    bail!("{what} does not listen on port {port}")
}

/// Returns the exit status of a process that ends by itself, within the time limit of a start.
fn wait_until_ended(running: &mut Running, what: &str) -> Result<ExitStatus> {
    ended_within(running, LOOKS_MAX)?.with_context(|| format!("{what} does not end"))
}

/// Returns the exit status of a process if it ends within so many checks.
fn ended_within(running: &mut Running, looks: u32) -> Result<Option<ExitStatus>> {
    for _ in 0..looks {
        if let Some(status) = running.0.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(None)
}

/// Returns the output of a command.
fn said(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("run {command:?}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(output.status.success(), "{}", text(&output.stderr).trim());
    Ok(text(&output.stdout))
}

fn is_root() -> Result<bool> {
    let output = Command::new("id").arg("-u").output().context("run id")?;
    Ok(output.stdout.trim_ascii() == b"0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_does_not_end_is_not_waited_for_without_end() {
        let begin = |program: &str, argument: &str| {
            let child = Command::new(program).arg(argument).spawn();
            Running(child.unwrap())
        };
        assert_eq!(ended_within(&mut begin("sleep", "600"), 2).unwrap(), None);
        let ended = wait_until_ended(&mut begin("sleep", "0"), "sleep").unwrap();
        assert!(ended.success());
    }
}
