//! Checks the service with Schemathesis: it answers every call as its OpenAPI document says, and
//! never with a failure of its own.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use crate::support::processes::{Relay, Service, make_tree, text};
use posthaste_testbed::{install, share_of};
use serde_json::{Value, json};

/// Calls to each route, beside the document's examples and the calls for its limits.
const EXAMPLES: u64 = 40;
const SEED: &str = "7";
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";

/// Names of existing things, and of some missing ones, by the parameters that they stand for.
const KNOWN: [(&str, &[&str]); 6] = [
    ("id", &["r1", "r2", "r3", "r4", "r999", "7"]),
    ("before", &["r3", "r999"]),
    ("name", &["ash", "birch", "ada"]),
    ("to", &["ash", "nobody"]),
    ("scheduler", &["slurm", "pbs"]),
    ("job", &["7", "8", "9[1]"]),
];

/// Returns the document, with known names added to its values: otherwise hardly anything would be
/// found.
fn document() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi/posthaste.json");
    let mut document: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let paths = document["paths"].as_object_mut().unwrap().values_mut();
    let routes = paths.flat_map(|path| path.as_object_mut().unwrap().values_mut());
    let parameters = routes.filter_map(|route| route.get_mut("parameters")?.as_array_mut());
    for parameter in parameters.flatten() {
        let known = KNOWN.iter().find(|(name, _)| parameter["name"] == *name);
        if let Some((_, values)) = known {
            parameter["schema"] = json!({ "type": "string", "enum": values });
        }
    }
    document
}

struct Centre {
    folder: tempfile::TempDir,
    _relay: Relay,
    service: Service,
}

impl Centre {
    /// Starts a service with a request that moves, one that is safe, one that is cancelled and a
    /// stage-in.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let relay = Relay::start(folder.path(), "ash", "1G", "60M");
        let scratch = folder.path().join("scratch");
        make_tree(&scratch.join("run"), 3, 1);
        let scratch_argument = ["--scratch", scratch.to_str().unwrap()];
        let service = Service::start_with(folder.path(), &scratch_argument);
        service.add(&relay);
        fs::write(folder.path().join("document.json"), document().to_string()).unwrap();
        let centre = Self {
            folder,
            _relay: relay,
            service,
        };
        let run = centre.path("scratch/run");
        let always = [
            "--to",
            "home",
            "--via",
            "ash",
            "--code",
            "1+0",
            "--deadline",
            "1h",
        ];
        let offload = |more: &[&str]| {
            let arguments = [
                &["offload", &run, "--json", "--owner", "ada"],
                &always[..],
                more,
            ];
            centre.service.json(&arguments.concat());
        };
        offload(&["--bwlimit", "1k", "--best-effort"]);
        offload(&["--wait"]);
        offload(&["--bwlimit", "1k", "--best-effort"]);
        centre.service.run(&["cancel", "r3"]);
        let into = centre.path("scratch/in");
        centre.service.run(&[
            "stage-in",
            &run,
            &into,
            "--deadline",
            "1h",
            "--bwlimit",
            "1k",
        ]);
        let below = ["--owner", "ada", "--below", &centre.path("scratch")];
        let token = centre.path("ada.token");
        let made = [
            "token", "add", "ada", "--scope", "submit", "--output", &token,
        ];
        let made = centre.service.run(&[&made[..], &below].concat());
        assert!(made.status.success(), "{}", text(&made.stderr));
        centre
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Calls the routes of these paths with a token.
    fn ask(&self, token: &Path, paths: &str, without: &str) -> Output {
        let token = fs::read_to_string(token).unwrap();
        let header = format!("Authorization: Bearer {}", token.trim());
        Command::new(install::find_pinned_python(install::SCHEMATHESIS).unwrap())
            .args(["run", "document.json"])
            .args(["--url", &self.service.url, "--header", &header])
            .args([
                "--include-path-regex",
                paths,
                "--exclude-path-regex",
                without,
            ])
            .args(["--phases", "examples,coverage,fuzzing", "--checks", CHECKS])
            .args(["--seed", SEED, "--no-shrink", "--max-examples"])
            .arg(share_of(EXAMPLES).to_string())
            .args([
                "--continue-on-failure",
                "--warnings",
                "off",
                "--suppress-health-check",
                "all",
            ])
            .args(["--request-timeout", "30", "--no-color"])
            // It keeps what it found where it runs.
            .current_dir(self.folder.path())
            .output()
            .unwrap()
    }
}

#[test]
fn whatever_is_asked_is_answered_as_the_document_says() {
    let centre = Centre::new();
    // What reads and writes files does so as somebody who may below one directory alone. Of lines
    // it knows nothing.
    let runs = [
        (
            "ada.token",
            "^/v1/(requests|stage-ins|listing)",
            "^/v1/requests/(bulk|named)$",
        ),
        (
            "service/token",
            "^/v1/(?!requests|stage-ins|listing)",
            "^/v1/events$",
        ),
    ];
    for (token, paths, without) in runs {
        let asked = centre.ask(Path::new(&centre.path(token)), paths, without);
        let (said, complained) = (text(&asked.stdout), text(&asked.stderr));
        assert!(asked.status.success(), "{paths}:\n{said}\n{complained}");
        assert!(said.contains("passed"), "{said}");
    }
    let health = centre.service.run(&["status"]);
    assert!(health.status.success(), "{}", text(&health.stderr));
}
