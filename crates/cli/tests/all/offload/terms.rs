//! Refusals, the output of a dry run and a plan, and the terms on which depots are lent.

use serde_json::Value;

use super::{Centre, state};
use crate::support::processes::{failure, picture, text};

#[test]
fn what_can_not_work_is_refused_in_one_line_with_what_would() {
    let relays = [("ash", "200K"), ("birch", "200K"), ("cedar", "200K")];
    let centre = Centre::with(&relays, 48, 8);
    let scratch = centre.scratch();
    let scratch = scratch.to_str().unwrap();
    let base = ["offload", scratch, "--to", "home"];
    let try_with = |more: &[&str]| failure(&centre.service.run(&[&base[..], more].concat()));
    for (more, exit, said) in [
        (
            &[
                "--deadline",
                "1m",
                "--via",
                "ash,birch,cedar",
                "--code",
                "2+1",
            ][..],
            11,
            "earliest finish",
        ),
        (
            &[
                "--deadline",
                "10m",
                "--via",
                "ash,birch,cedar",
                "--code",
                "4+1",
            ],
            11,
            "needs 5 depots",
        ),
        (
            &["--deadline", "10m", "--via", "ash,nobody"],
            4,
            "no depot of that name",
        ),
        (&["--deadline", "-5m", "--via", "ash"], 2, "has passed"),
        (
            &["--deadline", "2001-01-01T00:00:00Z", "--via", "ash"],
            2,
            "has passed",
        ),
        (&["--deadline", "soon", "--via", "ash"], 2, "write 10m"),
    ] {
        let (code, line) = try_with(more);
        assert_eq!(code, exit, "{more:?}: {line}");
        assert!(line.contains(said), "{more:?}: {line}");
    }
    let (code, line) = failure(&centre.service.run(&[
        "offload",
        "/no/such/place",
        "--to",
        "home",
        "--deadline",
        "10m",
        "--via",
        "ash",
    ]));
    assert_eq!(code, 4, "{line}");
    assert_eq!(picture(&centre.scratch()), centre.before);
}

#[test]
fn a_slip_in_a_name_is_refused_with_the_name_that_was_meant() {
    let relays = [("ash", "200K"), ("birch", "200K"), ("cedar", "200K")];
    let centre = Centre::with(&relays, 48, 8);
    let scratch = centre.scratch();
    let scratch = scratch.to_str().unwrap();
    let base = ["offload", scratch, "--deadline", "10m", "--dry-run"];
    for more in [
        &["--to", "home", "--via", "ash,brich"][..],
        &["--to", "home", "--via", "ash", "--without", "brich"],
        // A name that nobody has is that of whoever pulls it, but for a slip.
        &["--to", "brich", "--via", "ash,cedar"],
    ] {
        let (code, line) = failure(&centre.service.run(&[&base[..], more].concat()));
        assert_eq!(code, 4, "{line}");
        assert!(line.contains("did you mean `birch`?"), "{line}");
    }
}

#[test]
fn a_dry_run_decides_the_same_and_changes_nothing() {
    let centre = Centre::with(&[("ash", "60M"), ("birch", "60M"), ("cedar", "60M")], 8, 9);
    let would = centre.offload(&["--code", "2+1", "-n"]);
    assert_eq!(state(&would), "moving");
    assert_eq!(
        centre.service.json(&["list", "--json"]),
        Value::Array(vec![])
    );
    let scratch = centre.scratch();
    let refused = centre.service.run(&[
        "offload",
        scratch.to_str().unwrap(),
        "--to",
        "home",
        "--deadline",
        "10m",
        "-n",
        "--via",
        "ash,birch",
        "--code",
        "4+1",
    ]);
    assert_eq!(refused.status.code(), Some(11));
}

/// Checks that the refusal of a request over `ash`, which is closed, offers another depot and other
/// hours.
fn expect_offers(offered: &str) {
    for row in [
        "it would be possible with",
        "depot birch as well (safe by ",
        "the same with --via ash,birch",
        "depot ash outside its hours",
    ] {
        assert!(offered.contains(row), "`{row}` is missing in\n{offered}");
    }
}

/// Checks that two depots store two fragments of a chunk only while they share no failure domain.
fn expect_domains_to_count(centre: &Centre, plan: impl Fn() -> std::process::Output) {
    let [_, birch, cedar] = &centre.relays[..] else {
        panic!("three relays were started");
    };
    let expect_kin = || {
        let (code, said) = failure(&plan());
        assert_eq!(code, 11);
        assert!(said.contains("on 1 site the loss of one"), "{said}");
    };
    centre.service.lend(birch, &["--domain", "hall"]);
    centre.service.lend(cedar, &["--domain", "hall"]);
    expect_kin();
    // Two halls of one provider fail together all the same.
    let service = &centre.service;
    service.lend(birch, &["--domain", "hall, north,aws"]);
    service.lend(cedar, &["--domain", "yard", "--domain", "aws"]);
    expect_kin();
    let listed = text(&service.run(&["depot", "list"]).stdout);
    assert!(listed.contains("domain hall,north,aws"), "{listed}");
    assert!(listed.contains("domain yard,aws"), "{listed}");
    service.lend(cedar, &["--domain", "yard,ovh"]);
    assert!(plan().status.success());
    let many = ["--domain", "a,b,c,d,e,f,g,h,i"];
    let (_, said) = failure(&service.try_to_lend(cedar, &many));
    assert!(said.contains("a depot has at most 8"), "{said}");
}

#[test]
fn depots_are_lent_on_terms_and_a_plan_says_what_comes_of_them() {
    let centre = Centre::with(&[("ash", "60M"), ("birch", "60M"), ("cedar", "60M")], 8, 12);
    let [ash, birch, cedar] = &centre.relays[..] else {
        panic!("three relays were started");
    };
    // Two hours from now, in the time zone the service runs in.
    let now = jiff::Zoned::now().hour();
    let closed = format!("{:02}-{:02}", (now + 2) % 24, (now + 3) % 24);
    centre.service.lend(ash, &["--hours", &closed]);
    let prices = ["--usd-per-gb", "0.5", "--usd-per-gb-month", "0.02"];
    centre.service.lend(birch, &prices);
    centre.service.lend(cedar, &["--landmark"]);
    let listed = text(&centre.service.run(&["depot", "list"]).stdout);
    for said in [closed.as_str(), "$0.5/GB, $0.02/GB a month", "landmark"] {
        assert!(listed.contains(said), "{listed}");
    }
    let plan = |via: &str, code: &str, more: &[&str]| {
        let scratch = centre.scratch();
        let mut arguments = vec!["plan", scratch.to_str().unwrap(), "--to", "home"];
        arguments.extend_from_slice(&["--deadline", "10m", "--via", via, "--code", code]);
        arguments.extend_from_slice(more);
        centre.service.run(&arguments)
    };
    let taken = plan("ash,birch,cedar", "1+1", &[]);
    let said = text(&taken.stdout);
    assert!(taken.status.success(), "{}", text(&taken.stderr));
    for row in [
        "would be safe in time",
        "nine times in ten by",
        "is needed for",
        "depots   birch, cedar",
        "spare    ash",
        "$0.00 to send",
    ] {
        assert!(said.contains(row), "`{row}` is missing in\n{said}");
    }
    let json: Value =
        serde_json::from_slice(&plan("birch,cedar", "1+1", &["--json"]).stdout).unwrap();
    // Eight megabytes for half a dollar a gigabyte, on one of two depots.
    let exposure = &json["exposure"];
    let exposure = |of: &str| exposure[of].as_f64().unwrap();
    assert!(exposure("gb_hours_p50") <= exposure("gb_hours_p90") && exposure("hours_p90") > 0.0);
    let cost = json["cost_usd"].as_f64().unwrap();
    assert!((0.003..0.006).contains(&cost), "{cost}");
    let refused = plan("ash", "1+0", &[]);
    let (code, said) = failure(&refused);
    assert_eq!(code, 11);
    assert!(said.contains("earliest finish"), "{said}");
    expect_offers(&text(&refused.stdout));
    assert!(plan("ash,birch", "1+0", &[]).status.success());
    expect_domains_to_count(&centre, || plan("birch,cedar", "1+1", &[]));
    assert_eq!(
        centre.service.json(&["list", "--json"]),
        Value::Array(vec![]),
        "a plan was submitted"
    );
    let wrong = centre
        .service
        .run(&["depot", "add", "x", "y", "--hours", "whenever"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        text(&wrong.stderr).contains("20-06"),
        "{}",
        text(&wrong.stderr)
    );
}
