//! Traces pass through service, movers and relays, to a real collector.

use crate::support::ask;

use std::{fs, net::SocketAddr, path::Path, thread, time::Duration};

use crate::support::processes::{
    PATIENCE, Process, Relay, Service, binary, failure, make_tree, now, text,
};
use posthaste_testbed::{Collector, S3Server, free_port};
use serde_json::{Value, json};

/// Trace to which the caller's call belongs.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// Span, with its program.
#[derive(Debug)]
struct Span {
    by: String,
    name: String,
    trace: String,
    id: String,
    parent: String,
    failed: bool,
    attributes: Value,
}

fn attributes(of: &Value) -> Value {
    let pairs = of["attributes"].as_array().into_iter().flatten();
    let pairs = pairs.map(|pair| {
        let value = pair["value"].as_object().unwrap().values().next().unwrap();
        (pair["key"].as_str().unwrap().to_owned(), value.clone())
    });
    Value::Object(pairs.collect())
}

/// Returns all spans that the collector wrote.
fn spans(file: &Path) -> Vec<Span> {
    let written = fs::read_to_string(file).unwrap_or_default();
    let mut spans = Vec::new();
    // The last line may be half written.
    let batches = written
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    for batch in batches {
        for resource in batch["resourceSpans"].as_array().unwrap() {
            let by = attributes(&resource["resource"])["service.name"].clone();
            for scope in resource["scopeSpans"].as_array().unwrap() {
                for span in scope["spans"].as_array().unwrap() {
                    let word = |key: &str| span[key].as_str().unwrap_or_default().to_owned();
                    spans.push(Span {
                        by: by.as_str().unwrap().to_owned(),
                        name: word("name"),
                        trace: word("traceId"),
                        id: word("spanId"),
                        parent: word("parentSpanId"),
                        failed: span["status"]["code"] == 2,
                        attributes: attributes(span),
                    });
                }
            }
        }
    }
    spans
}

/// Waits until the collector's spans satisfy `wanted`.
fn wait_for(collector: &Collector, what: &str, wanted: impl Fn(&[Span]) -> bool) -> Vec<Span> {
    let start = now();
    loop {
        let spans = spans(&collector.file());
        if wanted(&spans) {
            return spans;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: {spans:#?}");
        thread::sleep(Duration::from_millis(100));
    }
}

fn traced(url: &str) -> [&str; 2] {
    ["--traces", url]
}

/// Submits a dataset in the caller's trace; returns its id.
fn submitted(service: &Service, source: &Path, via: &[&str]) -> String {
    let body = json!({
        "source": source, "to": ["home"], "via": via, "code": "1+0", "deadline": "2100-01-01T00:00:00Z",
    });
    post(service, "/v1/requests", &body)
}

/// Posts a request in the caller's trace; returns its id.
fn post(service: &Service, path: &str, body: &Value) -> String {
    let token = fs::read_to_string(service.state.join("token")).unwrap();
    let bearer = format!("{}\r\ntraceparent: 00-{TRACE}-{CALLER}-01", token.trim());
    let answer = ask::ask(service, "POST", path, Some(&bearer), &body.to_string());
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let request: Value = serde_json::from_str(body).unwrap();
    request["id"].as_str().unwrap().to_owned()
}

/// Returns the span of the mover's transfer to a relay, its parent, and the parent of that.
fn sending(spans: &[Span]) -> Option<[&Span; 3]> {
    let above = |span: &Span| spans.iter().find(|other| other.id == span.parent);
    let puts = spans.iter().filter(|span| {
        span.by == "posthaste-relay" && span.name == "relay PUT" && span.trace == TRACE
    });
    let mut chains = puts.filter_map(|put| {
        let moved = above(put)?;
        let sent = above(moved)?;
        Some([moved, sent, above(sent)?])
    });
    chains.find(|[moved, sent, call]| {
        let names = (&*moved.name, &*sent.name, &*call.name, &*call.parent);
        let wanted = (
            "mover sends fragment",
            "send fragment",
            "POST /v1/requests",
            CALLER,
        );
        moved.by == "posthaste-mover" && names == wanted && !moved.failed && !sent.failed
    })
}

#[test]
fn one_trace_goes_through_service_mover_and_relay() {
    let collector = Collector::start().unwrap();
    let url = collector.url();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let relay = Relay::start_with(folder, "ash", "1G", "50M", &traced(&url));
    let service = Service::start_with(folder, &traced(&url));
    service.add(&relay);
    let token = folder.join("movers.token");
    let made = ["token", "add", "movers", "--scope", "move", "--output"];
    let made = service.run(&[&made[..], &[token.to_str().unwrap()]].concat());
    assert!(made.status.success(), "{}", text(&made.stderr));
    let mut mover = binary();
    mover
        .args(["mover", "--json", "--name", "elm"])
        .args(traced(&url));
    mover.args(["--server", &service.url, "--token-file"]);
    let _mover = Process::run(mover.arg(&token), &folder.join("elm.log"));
    let scratch = folder.join("run");
    make_tree(&scratch, 6, 1);

    let id = submitted(&service, &scratch, &["ash"]);
    service.wait_until(&id, |request| request["state"] == "safe");
    let has = |spans: &[Span], by: &str, name: &str| {
        let mut named = spans.iter();
        named.any(|span| span.by == by && span.name == name && span.trace == TRACE)
    };
    // Each of them sends its spans when it likes, and what fails is sent again.
    let spans = wait_for(&collector, "a whole trace", |spans| {
        has(spans, "posthaste-service", "scan") && sending(spans).is_some()
    });
    let [moved, sent, call] = sending(&spans).unwrap();
    for span in [moved, sent] {
        let said = &span.attributes;
        assert_eq!(
            (&said["request"], &said["depot"]),
            (&json!(id), &json!("ash")),
            "{said}"
        );
        let bytes: u64 = said["bytes"].as_str().unwrap().parse().unwrap();
        assert!(bytes > 0 && bytes < 7 << 20, "{said}");
    }
    assert_eq!(call.attributes["http.response.status_code"], "201");
    assert_eq!(call.attributes["http.route"], "/v1/requests");
    let shown = fs::read_to_string(collector.file()).unwrap();
    for secret in [service.state.join("token"), token] {
        let secret = fs::read_to_string(secret).unwrap();
        assert!(!shown.contains(secret.trim()));
    }
}

/// Returns a span of the service in the caller's trace, below a call, and the call of a relay below
/// it. If that relay calls another for it, that call follows.
fn chain<'a>(spans: &'a [Span], name: &str) -> Option<(&'a Span, &'a Span, Option<&'a Span>)> {
    let ours = spans.iter().filter(|span| span.trace == TRACE);
    let mut named = ours
        .clone()
        .filter(|span| span.by == "posthaste-service" && span.name == name && !span.failed);
    named.find_map(|span| {
        spans
            .iter()
            .find(|call| call.id == span.parent && call.name.starts_with("POST /v1/"))?;
        let below = |id: &str| {
            let id = id.to_owned();
            ours.clone()
                .find(move |span| span.by == "posthaste-relay" && span.parent == id)
        };
        let call = below(&span.id)?;
        Some((span, call, below(&call.id)))
    })
}

#[test]
fn what_relays_do_among_each_other_belongs_to_the_trace() {
    let collector = Collector::start().unwrap();
    let url = collector.url();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let start = |name: &str| Relay::start_with(folder, name, "1G", "50M", &traced(&url));
    let mut relays = ["near", "far", "d1", "d2", "d3", "home"].map(start);
    let service = Service::start_with(folder, &traced(&url));
    for relay in &relays {
        let level = if relay.name == "far" { "2" } else { "1" };
        service.lend(relay, &["--level", level]);
    }
    let scratch = folder.join("run");
    make_tree(&scratch, 6, 1);
    let offload = |to: &str, via: &[&str], code: &str| {
        json!({
            "source": scratch, "to": [to], "via": via, "code": code, "deadline": "2100-01-01T00:00:00Z",
        })
    };
    post(
        &service,
        "/v1/requests",
        &offload("elsewhere", &["near", "far"], "1+0"),
    );
    // Its destination is away until all of it is safe.
    relays[5].kill();
    service.wait_for_depots(|depot| (depot["state"] == "down") == (depot["name"] == "home"));
    let via = ["d1", "d2", "d3"];
    let id = post(&service, "/v1/requests", &offload("home", &via, "2+1"));
    service.wait_until(&id, |request| request["state"] == "safe");
    relays[5].restart();

    let spans = wait_for(&collector, "pushes and gathers", |spans| {
        let onward = |name: &str| chain(spans, name).is_some_and(|chain| chain.2.is_some());
        onward("push fragment") && onward("gather chunk")
    });
    let (push, call, onward) = chain(&spans, "push fragment").unwrap();
    assert_eq!(call.attributes["relay"], push.attributes["from"]);
    let onward = onward.unwrap();
    assert_eq!(onward.attributes["relay"], push.attributes["depot"]);
    assert_eq!(onward.name, "relay PUT");
    let (gather, call, onward) = chain(&spans, "gather chunk").unwrap();
    assert_eq!(gather.attributes["depot"], "home");
    assert_eq!(call.attributes["relay"], "home");
    assert_eq!(onward.unwrap().name, "relay GET");
}

/// Returns a moment from now, RFC 3339.
fn soon(seconds: u32) -> String {
    let mut date = std::process::Command::new("date");
    date.args(["-u", "-d", &format!("+{seconds} seconds")]);
    let said = date.arg("+%Y-%m-%dT%H:%M:%SZ").output().unwrap();
    text(&said.stdout).trim().to_owned()
}

#[test]
fn what_waits_near_and_what_goes_to_an_address_belong_to_the_trace() {
    let collector = Collector::start().unwrap();
    let url = collector.url();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let s3 = S3Server::start().unwrap();
    let make = |root: &Path, files: u8| {
        fs::create_dir_all(root).unwrap();
        for number in 0..files {
            fs::write(root.join(format!("file {number}")), vec![number; 1 << 20]).unwrap();
        }
    };
    make(&s3.bucket_folder().join("run"), 32);
    let profiles = folder.join("config/posthaste/profiles.toml");
    fs::create_dir_all(profiles.parent().unwrap()).unwrap();
    let profile = format!(
        "[archive]\nurl = \"s3://{}\"\nendpoint = \"{}\"\naccess_key_id = \"{}\"\nsecret_access_key = \"{}\"\nrate_max = \"2M\"\n",
        S3Server::BUCKET,
        s3.endpoint(),
        S3Server::ACCESS_KEY,
        S3Server::SECRET_KEY,
    );
    fs::write(&profiles, profile).unwrap();
    let private = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
    fs::set_permissions(&profiles, private).unwrap();
    let relay = Relay::start_with(folder, "cache", "200MiB", "500M", &traced(&url));
    let service = Service::start_with(folder, &traced(&url));
    service.add(&relay);
    let body = json!({
        "sources": ["archive:run"], "to": folder.join("in"), "via": ["cache"], "not_before": soon(35), "deadline": soon(40),
    });
    post(&service, "/v1/stage-ins", &body);
    let results = folder.join("results");
    make(&results, 2);
    let body = json!({
        "source": results, "to": ["archive:out"], "deadline": "2100-01-01T00:00:00Z",
    });
    let id = post(&service, "/v1/requests", &body);

    let spans = wait_for(&collector, "prestages and copies", |spans| {
        let is_copy = |span: &Span| span.name == "copy to address" && !span.failed;
        chain(spans, "prestage chunk").is_some() && spans.iter().any(is_copy)
    });
    let (prestage, call, _) = chain(&spans, "prestage chunk").unwrap();
    assert_eq!(prestage.attributes["depot"], "cache");
    assert_eq!(
        (&*call.name, &call.attributes["relay"]),
        ("relay PUT", &json!("cache"))
    );
    let copy = spans
        .iter()
        .find(|span| span.name == "copy to address" && !span.failed);
    let copy = copy.unwrap();
    assert_eq!(copy.attributes["request"], json!(id));
    assert_eq!(copy.attributes["to"], "archive:out");
    let call = spans.iter().find(|span| span.id == copy.parent).unwrap();
    assert_eq!((&*call.name, &*call.parent), ("POST /v1/requests", CALLER));
    let shown = fs::read_to_string(collector.file()).unwrap();
    assert!(!shown.contains(S3Server::SECRET_KEY));
}

#[test]
fn a_collector_that_is_down_costs_one_line_and_what_fails_says_so() {
    let address: SocketAddr = format!("127.0.0.1:{}", free_port().unwrap())
        .parse()
        .unwrap();
    let url = format!("http://{address}");
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let relay = Relay::start(folder, "ash", "1G", "50M");
    let mut gone = Relay::start(folder, "oak", "1G", "2M");
    let service = Service::start_with(folder, &traced(&url));
    service.add(&relay);
    service.add(&gone);
    let scratch = folder.join("run");
    make_tree(&scratch, 2, 1);
    let id = submitted(&service, &scratch, &["ash"]);
    service.wait_until(&id, |request| request["state"] == "safe");
    let log = || fs::read_to_string(folder.join("service.log")).unwrap();
    let start = now();
    while !log().contains("traces don't arrive") {
        assert!(start.elapsed() < PATIENCE, "{}", log());
        thread::sleep(Duration::from_millis(100));
    }

    let collector = Collector::start_at(address).unwrap();
    let other = folder.join("other");
    make_tree(&other, 40, 2);
    let id = submitted(&service, &other, &["oak"]);
    service.wait_until(&id, |request| request["state"] == "moving");
    gone.kill();
    let spans = wait_for(&collector, "a send that failed", |spans| {
        let failed = |span: &&Span| span.name == "send fragment" && span.failed;
        spans.iter().find(failed).is_some()
    });
    let failed = |span: &&Span| span.name == "send fragment" && span.failed;
    let failed = spans.iter().find(failed).unwrap();
    assert!(failed.attributes["error"].is_string(), "{failed:?}");
    // They are here a moment before that is said.
    let start = now();
    while !log().contains("traces arrive at") {
        assert!(start.elapsed() < PATIENCE, "{}", log());
        thread::sleep(Duration::from_millis(100));
    }
    let log = log();
    let words = ["traces don't arrive", "traces arrive at"];
    let said = log
        .lines()
        .filter(|line| words.iter().any(|word| line.contains(word)));
    let said: Vec<bool> = said.map(|line| line.contains("don't arrive")).collect();
    assert!(said.starts_with(&[true, false]), "{log}");
    // One line each time: a collector that was slow once more would cost one more.
    assert!(said.windows(2).all(|pair| pair[0] != pair[1]), "{log}");
}

#[test]
fn an_address_that_is_none_is_refused_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let serve = |url: &str| {
        let mut command = binary();
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--state"])
            .arg(folder.path().join("s"));
        failure(&command.args(["--traces", url]).output().unwrap())
    };
    let (code, said) = serve("http://me:geheim@127.0.0.1:4318");
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("OTEL_EXPORTER_OTLP_HEADERS") && !said.contains("geheim"),
        "{said}"
    );
    assert!(serve("somewhere").1.contains("that is no address"));
    assert!(!folder.path().join("s").exists());
}
