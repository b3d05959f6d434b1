//! `cargo xtask test`: all tests, on a machine that may have nothing but Rust yet.

mod lanes;

use std::path::PathBuf;

use anyhow::{Context, bail};
use posthaste_testbed::install;

use crate::{cargo, succeed};

/// Installs what the tests need, then runs every test of the workspace, those in documentation
/// too. `arguments`, where there are any, choose among them as those of `cargo test` do.
///
/// # Errors
/// When something is missing and can't be installed, or a test fails.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    install_servers()?;
    if !arguments.is_empty() {
        eprintln!(
            "xtask: cargo test --workspace --locked {}",
            arguments.join(" ")
        );
        return succeed(cargo(&["test", "--workspace", "--locked"]).args(arguments));
    }
    let files = lanes::run();
    eprintln!("xtask: cargo test --workspace --locked --doc");
    let examples = succeed(&mut cargo(&["test", "--workspace", "--locked", "--doc"]));
    files.and(examples)
}

/// Says each program the tests run against, and installs what is missing. Reports all that can't
/// be installed together, so that one round of installing by hand is enough.
///
/// # Errors
/// When something is missing and can't be installed.
pub fn install_servers() -> anyhow::Result<()> {
    eprintln!("xtask: the tests run against real servers");
    let mut missing = Vec::new();
    for (what, found) in programs().into_iter().chain(tools()) {
        match found {
            Ok(path) => eprintln!("xtask: {what} is {}", path.display()),
            Err(error) => missing.push(format!("{error:#}")),
        }
    }
    if !missing.is_empty() {
        bail!(
            "the tests need more than there is:\n  {}",
            missing.join("\n  ")
        );
    }
    Ok(())
}

type Found = (&'static str, anyhow::Result<PathBuf>);

/// Servers and plug-ins.
fn programs() -> Vec<Found> {
    vec![
        (
            "python3",
            install::ensure_python().context("can't have Python for the plug-ins"),
        ),
        (
            "globus-gridftp-server",
            install::ensure_debian_program(install::GRIDFTP_SERVER)
                .context("can't have the GridFTP server"),
        ),
        (
            "globus-url-copy",
            install::ensure_debian_program(install::GLOBUS_URL_COPY)
                .context("can't have globus-url-copy"),
        ),
        (
            "slurmctld",
            install::ensure_debian_program(install::SLURM_CONTROLLER).context("can't have Slurm"),
        ),
        (
            "slurmrestd",
            install::ensure_debian_program(install::SLURM_REST).context("can't have slurmrestd"),
        ),
        (
            "Debian 13",
            install::ensure_debian_13().context("can't have the Slurm and the HTCondor of today"),
        ),
        (
            "postgres",
            install::ensure_postgres().context("can't have PostgreSQL"),
        ),
        (
            "sshd",
            install::ensure_ssh_server().context("can't have OpenSSH's server"),
        ),
        (
            "versitygw",
            install::ensure_s3_server().context("can't have the S3 server"),
        ),
        (
            "azurite",
            install::ensure_azure_server().context("can't have the Azure server"),
        ),
        (
            "oidc-provider",
            install::ensure_identity_server().context("can't have the OpenID provider"),
        ),
        (
            "fake-gcs-server",
            install::ensure_go_program(install::FAKE_GCS_SERVER)
                .context("can't have the Google Cloud Storage server"),
        ),
        (
            "otelcol",
            install::ensure_collector().context("can't have the OpenTelemetry Collector"),
        ),
        (
            "minio",
            install::ensure_go_program(install::MINIO).context("can't have the second S3 server"),
        ),
    ]
}

/// What tests and the laboratory run beside them.
fn tools() -> Vec<Found> {
    vec![
        (
            "age",
            install::ensure_debian_program(install::AGE).context("can't have age"),
        ),
        (
            "ip",
            install::ensure_debian_program(install::IP).context("can't have ip for the laboratory"),
        ),
        (
            "ping",
            install::ensure_debian_program(install::PING).context("can't have ping"),
        ),
        (
            "iperf3",
            install::ensure_debian_program(install::IPERF3).context("can't have iperf3"),
        ),
        (
            "htcondor",
            install::ensure_python_program(install::CLASSADS)
                .context("can't have HTCondor's library of ClassAds"),
        ),
        (
            "prometheus-client",
            install::ensure_python_program(install::OPENMETRICS)
                .context("can't have Prometheus's reader of metrics"),
        ),
        (
            "aiosmtpd",
            install::ensure_python_program(install::AIOSMTPD).context("can't have the mail server"),
        ),
        (
            "standardwebhooks",
            install::ensure_python_program(install::STANDARD_WEBHOOKS)
                .context("can't have the receivers' side of Standard Webhooks"),
        ),
        (
            "fts-rest-transfer-submit",
            install::ensure_fts_clients().context("can't have FTS's clients and Rucio"),
        ),
        (
            "schemathesis",
            install::ensure_schemathesis().context("can't have Schemathesis"),
        ),
        (
            "lua5.1",
            install::ensure_debian_program(install::LUA)
                .context("can't have Lua for Slurm's plug-in"),
        ),
        (
            "systemd-analyze",
            install::ensure_debian_program(install::SYSTEMD_ANALYZE)
                .context("can't have systemd's checks of units"),
        ),
        (
            "proxychains4",
            install::ensure_debian_program(install::PROXYCHAINS)
                .context("can't have proxychains for `posthaste through`"),
        ),
        (
            "proftpd",
            install::ensure_ftp_server().context("can't have the FTP server"),
        ),
        (
            "nginx",
            install::ensure_web_server().context("can't have the web server"),
        ),
    ]
}
