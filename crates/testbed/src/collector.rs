use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::{Place, Running, free_port, install, is_night};

/// A receiver of OTLP over HTTP that writes what it got into a file, one batch of JSON a line. By
/// night it is the OpenTelemetry Collector. By day it is a receiver on OpenTelemetry's own
/// definition of the messages, as the Collector takes minutes to build.
#[derive(Debug)]
pub struct Collector {
    _running: Running,
    folder: TempDir,
    address: SocketAddr,
}

impl Collector {
    /// Starts it.
    ///
    /// # Errors
    /// Fails if the program is missing or does not start.
    pub fn start() -> Result<Self> {
        let place = Place::default();
        Self::start_at(SocketAddr::new(place.address(), free_port()?))
    }

    /// Starts it at an address that clients use already.
    ///
    /// # Errors
    /// See [`Collector::start`].
    pub fn start_at(address: SocketAddr) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("posthaste-collector-")
            .tempdir()
            .context("make a folder for the collector")?;
        let place = Place::default();
        let mut command = match is_night() {
            true => collector(&place, folder.path(), address)?,
            false => receiver(&place, folder.path(), address)?,
        };
        let log = fs::File::create(folder.path().join("log"))?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = command.spawn().context("start the collector")?;
        let mut running = Running(child);
        place.wait_until_listening(&mut running, address.port(), "the collector")?;
        Ok(Self {
            _running: running,
            folder,
            address,
        })
    }

    /// Address for spans.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of that address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the file of what it received.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        written(self.folder.path())
    }
}

fn written(folder: &Path) -> PathBuf {
    folder.join("spans.jsonl")
}

fn collector(place: &Place, folder: &Path, address: SocketAddr) -> Result<Command> {
    let config = folder.join("config.yaml");
    let text = format!(
        "receivers:\n  otlp:\n    protocols:\n      http:\n        endpoint: {address}\n\
         exporters:\n  file:\n    path: {}\n    flush_interval: 100ms\n\
         service:\n  telemetry:\n    metrics:\n      level: none\n  pipelines:\n    traces:\n      \
         receivers: [otlp]\n      exporters: [file]\n",
        written(folder).display()
    );
    fs::write(&config, text)?;
    let mut command = place.command(&install::find_collector()?);
    command.arg(format!("--config=file:{}", config.display()));
    Ok(command)
}

/// Accepts only messages that conform to the definition.
const RECEIVE: &str = r#"
import base64, json, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest, ExportTraceServiceResponse)

address, port, written = sys.argv[1], int(sys.argv[2]), open(sys.argv[3], "a")
alone = threading.Lock()

def in_hex(span):
    """Identifiers are told in base64 by Protobuf's JSON, and in hexadecimal digits by OpenTelemetry's."""
    for key in ("traceId", "spanId", "parentSpanId"):
        if key in span:
            span[key] = base64.b64decode(span[key]).hex()

class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        asked = (self.path, self.headers["Content-Type"])
        request = ExportTraceServiceRequest()
        try:
            request.ParseFromString(body)
        except DecodeError:
            return self.answer(400, b"")
        if asked != ("/v1/traces", "application/x-protobuf"):
            return self.answer(415, b"")
        batch = MessageToDict(request, use_integers_for_enums=True)
        for resource in batch.get("resourceSpans", []):
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    in_hex(span)
        with alone:
            written.write(json.dumps(batch) + "\n")
            written.flush()
        self.answer(200, ExportTraceServiceResponse().SerializeToString())

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

ThreadingHTTPServer((address, port), Receiver).serve_forever()
"#;

fn receiver(place: &Place, folder: &Path, address: SocketAddr) -> Result<Command> {
    let python = install::find_python_program(install::OTLP)?;
    let mut command = place.command(&python);
    command.args(["-c", RECEIVE]);
    command.args([address.ip().to_string(), address.port().to_string()]);
    command.arg(written(folder));
    Ok(command)
}
