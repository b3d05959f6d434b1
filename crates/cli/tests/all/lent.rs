//! Depots lent for one request at some hours, or below some load of their machine.

use std::{fs, path::Path, time::Duration};

use crate::support::ask::ask;
use crate::support::processes::{Relay, Service, failure, make_tree, said_by, text};
use serde_json::{Value, json};

struct Centre {
    folder: tempfile::TempDir,
    relay: Relay,
    service: Service,
}

impl Centre {
    /// Starts a relay that reads its load from a file with this content.
    fn start(load: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("load");
        fs::write(&file, load).unwrap();
        let more = ["--load-from", file.to_str().unwrap()];
        let relay = Relay::start_with(folder.path(), "ash", "1G", "100M", &more);
        let service = Service::start(folder.path());
        service.add(&relay);
        service.wait_for_depots(|depot| depot["state"] == "up");
        make_tree(&folder.path().join("out"), 24, 7);
        Self {
            folder,
            relay,
            service,
        }
    }

    fn out(&self) -> std::path::PathBuf {
        self.folder.path().join("out")
    }

    fn load(&self, load: &str) {
        let new = self.folder.path().join("load.new");
        fs::write(&new, load).unwrap();
        fs::rename(new, self.folder.path().join("load")).unwrap();
    }

    fn post(&self, lent: &Value) -> String {
        let token = fs::read_to_string(self.service.state.join("token")).unwrap();
        let body = json!({
            "source": self.out().to_str(), "to": "home", "deadline": "2099-01-01T00:00:00Z",
            "via": ["ash"], "code": "1+0", "best_effort": true, "wishes": {"lent": [lent]},
        });
        let token = Some(token.trim());
        ask(
            &self.service,
            "POST",
            "/v1/requests",
            token,
            &body.to_string(),
        )
    }

    /// Submits a stage-out over the depot on these terms.
    fn offload(&self, lent: &Value) -> String {
        let answer = self.post(lent);
        let body = answer.split("\r\n\r\n").nth(1).unwrap();
        let request: Value = serde_json::from_str(body).unwrap();
        request["id"].as_str().unwrap().to_owned()
    }

    fn explain(&self, id: &str) -> String {
        text(&self.service.run(&["explain", id]).stdout)
    }
}

/// Returns the bytes of a request on the depot, and those on their way there.
fn share(request: &Value) -> (u64, u64) {
    let share = &request["shares"][0];
    let number = |key: &str| share[key].as_u64().unwrap_or(0);
    (number("stored"), number("in_flight"))
}

#[test]
fn nothing_is_sent_while_the_machine_has_too_much_to_do() {
    let centre = Centre::start("800.00 700.00 600.00 3/400 1234\n");
    let lent = json!({"depot": "ash", "load_below": 0.5});
    let id = centre.offload(&lent);
    centre
        .service
        .wait_until(&id, |request| request["state"] == "moving");
    // Others are not bound by that.
    let free = json!({"depot": "ash"});
    let other = centre.offload(&free);
    centre
        .service
        .wait_until(&other, |request| request["state"] == "safe");
    std::thread::sleep(Duration::from_secs(4));
    let request = centre.service.status(&id);
    assert_eq!(share(&request), (0, 0), "{request}");
    assert_eq!(request["wishes"]["lent"][0], lent);
    assert!(
        centre.explain(&id).contains("lent below 0.50"),
        "{}",
        centre.explain(&id)
    );
    centre.load("0.01 0.02 0.03 1/400 1234\n");
    centre
        .service
        .wait_until(&id, |request| request["state"] == "safe");
    assert!(said_by(&centre.relay).load_permille.is_some());
}

#[test]
fn a_depot_that_is_lent_below_a_load_takes_nothing_of_anybody_above_it() {
    let mut centre = Centre::start("800.00 700.00 600.00 3/400 1234\n");
    let refused = centre
        .service
        .try_to_lend(&centre.relay, &["--load-max", "5000"]);
    let (code, line) = failure(&refused);
    let is_said = line.contains("a load is 0 to 1000");
    assert!(code == 2 && is_said, "{code}: {line}");
    centre.service.lend(&centre.relay, &["--load-max", "0.5"]);
    centre.service.kill();
    centre.service.restart();
    let is_known = |depot: &Value| depot["state"] == "up" && depot["load"].as_f64() > Some(0.5);
    centre.service.wait_for_depots(is_known);
    let id = centre.offload(&json!({"depot": "ash"}));
    centre
        .service
        .wait_until(&id, |request| request["state"] == "moving");
    std::thread::sleep(Duration::from_secs(4));
    let request = centre.service.status(&id);
    assert_eq!(share(&request), (0, 0), "{request}");
    let told = centre.explain(&id);
    assert!(told.contains("lent below 0.50"), "{told}");
    let listed = text(&centre.service.run(&["depot", "list"]).stdout);
    assert!(listed.contains("below load 0.5 (now "), "{listed}");
    centre.load("0.01 0.02 0.03 1/400 1234\n");
    centre
        .service
        .wait_until(&id, |request| request["state"] == "safe");

    // Other terms, whatever the load: who adds it again says all of them.
    centre.load("800.00 700.00 600.00 3/400 1234\n");
    centre.service.add(&centre.relay);
    let id = centre.offload(&json!({"depot": "ash"}));
    centre
        .service
        .wait_until(&id, |request| request["state"] == "safe");
}

#[test]
fn a_depot_is_named_by_where_it_listens_too() {
    let centre = Centre::start("0.1");
    let url = centre.relay.process.ready["url"].as_str().unwrap();
    let place = url.trim_start_matches("https://").trim_end_matches('/');
    let id = centre.offload(&json!({"depot": place}));
    let request = centre
        .service
        .wait_until(&id, |request| request["state"] == "safe");
    assert_eq!(request["wishes"]["lent"][0]["depot"], "ash", "{request}");
    let out = centre.out();
    let more = [
        "offload",
        out.to_str().unwrap(),
        "--to",
        "home",
        "--via",
        place,
    ];
    let more = [
        &more[..],
        &["--deadline", "10m", "--code", "1+0", "--dry-run", "--json"],
    ]
    .concat();
    let request = centre.service.json(&more);
    assert_eq!(request["shares"][0]["depot"], "ash", "{request}");
}

#[test]
fn a_relay_that_does_not_know_its_load_is_used_and_that_is_said() {
    let centre = Centre::start("who knows\n");
    assert_eq!(said_by(&centre.relay).load_permille, None);
    let id = centre.offload(&json!({"depot": "ash", "load_below": 0.5}));
    centre
        .service
        .wait_until(&id, |request| request["state"] == "safe");
    let story = centre.explain(&id);
    assert!(story.contains("does not say what its load is"), "{story}");
}

#[test]
fn nothing_is_sent_outside_the_hours_that_count_for_one_request_alone() {
    let mut centre = Centre::start("0.01 0.02 0.03 1/400 1234\n");
    let hour = jiff::Zoned::now().hour();
    let later = format!("{:02}-{:02}", (hour + 3) % 24, (hour + 5) % 24);
    let lent = json!({"depot": "ash", "hours": later});
    let id = centre.offload(&lent);
    centre
        .service
        .wait_until(&id, |request| request["state"] == "moving");
    let other = centre.offload(&json!({"depot": "ash", "hours": "00-24"}));
    centre
        .service
        .wait_until(&other, |request| request["state"] == "safe");
    let waits = |centre: &Centre| {
        std::thread::sleep(Duration::from_secs(2));
        let request = centre.service.status(&id);
        assert_eq!(share(&request), (0, 0), "{request}");
        // It is planned from then on: it has an end in sight, hours from now.
        let is_hours_ahead = |request: &Value| {
            let finish = request["finish"]["p50"].as_str();
            let finish = finish.map(|finish| finish.parse::<jiff::Timestamp>().unwrap());
            let ahead = finish.map(|at| at.duration_since(jiff::Timestamp::now()).as_secs());
            ahead.is_some_and(|ahead| (3600..4 * 3600).contains(&ahead))
        };
        let request = centre.service.wait_until(&id, is_hours_ahead);
        assert_eq!(share(&request), (0, 0), "{request}");
        assert_eq!(request["state"], "moving");
    };
    waits(&centre);
    centre.service.kill();
    centre.service.restart();
    waits(&centre);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let centre = Centre::start("0.01 0.02 0.03 1/400 1234\n");
    for (lent, what) in [
        (json!({"depot": "none"}), "no depot of that name"),
        (json!({"depot": "ash", "hours": "25-06"}), "are no hours"),
        (
            json!({"depot": "ash", "load_below": -1.0}),
            "a load is 0 to 1000",
        ),
    ] {
        let answer = centre.post(&lent);
        assert!(answer.contains(what), "{what}: {answer}");
    }
    assert!(Path::new(&centre.out()).exists());
}

#[test]
fn one_relay_under_two_names_is_no_second_depot() {
    let centre = Centre::start("0.1");
    let ready = &centre.relay.process.ready;
    let add = |name: &str| {
        centre.service.run(&[
            "depot",
            "add",
            name,
            ready["url"].as_str().unwrap(),
            "--fingerprint",
            ready["fingerprint"].as_str().unwrap(),
            "--secret-file",
            ready["secret_file"].as_str().unwrap(),
        ])
    };
    let (code, said) = failure(&add("birch"));
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("the relay that is called ash here"), "{said}");
    let depots = centre.service.json(&["depot", "list", "--json"]);
    assert_eq!(depots.as_array().unwrap().len(), 1, "{depots}");
    // The same name is the same depot, and another name is free once that is gone.
    assert!(add("ash").status.success());
    assert!(
        centre
            .service
            .run(&["depot", "remove", "ash"])
            .status
            .success()
    );
    let again = add("birch");
    assert!(again.status.success(), "{}", text(&again.stderr));
}
