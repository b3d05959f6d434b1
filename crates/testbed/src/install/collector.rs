//! The OpenTelemetry Collector, built from its own modules with the two that the tests need: the Go
//! module proxy has no release of it as a program.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, bail};

use super::{
    go::{ensure_go, go_command},
    last_line, say, tools_folder,
};

const VERSION: &str = "v0.165.0";

/// Source of its program. The modules that it names are pinned, and their dependencies too.
const PROGRAM: &str = include_str!("collector/main.go");

const MODULES: &str = "module collector

go 1.25.0

require (
	github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter v0.165.0
	go.opentelemetry.io/collector/confmap v1.71.0
	go.opentelemetry.io/collector/confmap/provider/fileprovider v1.71.0
	go.opentelemetry.io/collector/exporter v1.71.0
	go.opentelemetry.io/collector/otelcol v0.165.0
	go.opentelemetry.io/collector/receiver v1.71.0
	go.opentelemetry.io/collector/receiver/otlpreceiver v0.165.0
	go.opentelemetry.io/collector/service v0.165.0
)
";

fn folder() -> PathBuf {
    tools_folder().join(format!("otelcol-{VERSION}"))
}

/// Finds the collector.
///
/// # Errors
/// Fails if it is not installed.
pub fn find_collector() -> Result<PathBuf> {
    let path = folder().join("otelcol");
    if path.is_file() {
        return Ok(path);
    }
    bail!(
        "the tests of the night need an OpenTelemetry Collector: run `cargo xtask test --profile strict`, which installs it"
    )
}

/// Builds the collector if it is missing.
///
/// # Errors
/// Fails if Go is unavailable or the proxy does not serve its modules.
pub fn ensure_collector() -> Result<PathBuf> {
    if let Ok(path) = find_collector() {
        return Ok(path);
    }
    let go = ensure_go()?;
    say(&format!(
        "building the OpenTelemetry Collector {VERSION} with the Go module proxy"
    ));
    let sources = folder().join("source");
    fs::create_dir_all(&sources)?;
    fs::write(sources.join("go.mod"), MODULES)?;
    fs::write(sources.join("main.go"), PROGRAM)?;
    let building = go_command(&go)
        .args([
            "build",
            "-trimpath",
            // A third of the build time: nobody waits for its work.
            "-gcflags=all=-N -l",
            "-ldflags=-s -w",
            "-o",
            "../otelcol.partial",
            ".",
        ])
        .current_dir(&sources)
        .output();
    let output = building.with_context(|| format!("run {}", go.display()))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("the collector can't be built: {}", last_line(&reason));
    }
    fs::rename(folder().join("otelcol.partial"), folder().join("otelcol"))
        .context("the build left no collector")?;
    find_collector()
}
