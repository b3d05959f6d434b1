//! The OpenAPI document is valid, and a client generated from it is typed and reads the service's
//! answers.

use std::{fs, path::Path, process::Command};

use posthaste_testbed::install;

use crate::support::processes::{Relay, Service, make_tree, text};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi/posthaste.json");

/// Media types that the generator can't turn into methods: answers of many lines, and figures in a
/// text format of their own.
const PASSED_OVER: [&str; 2] = ["application/x-ndjson", "application/openmetrics-text"];

/// Program that uses the generated client.
const PROGRAM: &str = r#"
import datetime
import sys

from posthaste_client import AuthenticatedClient
from posthaste_client.api.requests import get_request, list_requests
from posthaste_client.models import Problem, Request, RequestState

client = AuthenticatedClient(base_url=sys.argv[1], token=sys.stdin.read().strip())
listed = list_requests.sync(client=client)
assert isinstance(listed, list), listed
request: Request = listed[0]
assert request.state is RequestState.SAFE, request
deadline: datetime.datetime = request.deadline
assert deadline > datetime.datetime.now(datetime.timezone.utc), deadline
missing = get_request.sync(id="r999", client=client)
assert isinstance(missing, Problem), missing
assert (missing.status, missing.code) == (404, "not-found"), missing
print(request.id, missing.type_)
"#;

/// Returns a program of the tools for OpenAPI documents.
fn tool(name: &str) -> Command {
    let generator = install::find_pinned_python(install::OPENAPI_TOOLS).unwrap();
    Command::new(generator.with_file_name(name))
}

#[test]
fn a_validator_finds_nothing_wrong() {
    let output = tool("openapi-spec-validator")
        .arg(DOCUMENT)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stdout));
}

#[test]
fn a_generated_client_is_typed_and_reads_what_the_service_answers() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let generated = tool("openapi-python-client")
        .args(["generate", "--meta", "none", "--path", DOCUMENT])
        .arg("--output-path")
        .arg(home.join("posthaste_client"))
        .output()
        .unwrap();
    assert!(generated.status.success(), "{}", text(&generated.stderr));
    let said = text(&generated.stdout);
    let unknown: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("Cannot parse"))
        .filter(|line| !PASSED_OVER.iter().any(|known| line.contains(known)))
        .collect();
    assert!(unknown.is_empty(), "{said}");
    fs::write(home.join("program.py"), PROGRAM).unwrap();
    let checked = tool("mypy")
        .args(["--strict", "program.py", "posthaste_client"])
        .current_dir(home)
        .output()
        .unwrap();
    assert!(checked.status.success(), "{}", text(&checked.stdout));
    let (_relay, service) = one_safe_request(home);
    let ran = tool("python")
        .arg("program.py")
        .arg(&service.url)
        .current_dir(home)
        .stdin(fs::File::open(service.state.join("token")).unwrap())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let said = text(&ran.stdout);
    assert_eq!(said.trim(), "r1 urn:posthaste:problem:not-found");
}

fn one_safe_request(folder: &Path) -> (Relay, Service) {
    let relay = Relay::start(folder, "ash", "1G", "60M");
    make_tree(&folder.join("run"), 3, 1);
    let service = Service::start_with(folder, &[]);
    service.add(&relay);
    let run = folder.join("run");
    service.json(&[
        "offload",
        run.to_str().unwrap(),
        "--json",
        "--wait",
        "--to",
        "home",
        "--via",
        "ash",
        "--code",
        "1+0",
        "--deadline",
        "1h",
    ]);
    (relay, service)
}
