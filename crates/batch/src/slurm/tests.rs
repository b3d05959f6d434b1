//! The fixtures follow Slurm's output, reduced to the fields that matter. Those of 22.05, 24.11 and
//! 26.05 follow Debian's 22.05.8, 24.11.5 and 26.05.5. Those of 23.11 and 24.05 follow the schemas
//! of `data_parser/v0.0.40` and `v0.0.41`, the texts the manual pages.

use std::{
    io::{self, Read},
    time::Duration,
};

use jiff::tz::TimeZone;
use posthaste_types::Timestamp;

use super::*;
use crate::queue::{Job, Queue};

const PLAIN: &[u8] = include_bytes!("fixtures/squeue-22.05.json");
const LATER: &[u8] = include_bytes!("fixtures/squeue-24.05.json");

fn at(secs: u64) -> Option<Timestamp> {
    Some(Timestamp::from_secs(secs))
}

fn hours(hours: u64) -> Option<Duration> {
    Some(Duration::from_secs(hours * 3600))
}

fn seven() -> Job {
    Job {
        id: "7".into(),
        number: None,
        is_dependent: false,
        user: "alice".into(),
        state: State::Running,
        reason: "None".into(),
        procs: 4,
        walltime: hours(2),
        priority: 4_294_901_758,
        submitted: at(1_795_535_000),
        start: at(1_795_536_000),
        end: at(1_795_543_200),
    }
}

fn brief(queue: &Queue) -> Vec<(&str, State, u32)> {
    let jobs = queue.jobs.iter();
    jobs.map(|job| (job.id.as_str(), job.state, job.procs))
        .collect()
}

#[test]
fn squeue_says_the_same_in_every_shape_of_its_json() {
    let (plain, later) = (queue(PLAIN).unwrap(), queue(LATER).unwrap());
    assert_eq!(plain.jobs[0], seven());
    let eight = &plain.jobs[1];
    assert_eq!((eight.user.as_str(), eight.walltime), ("1001", None));
    assert_eq!(eight.start, at(1_795_543_200), "what Slurm thinks");
    assert_eq!(
        brief(&plain),
        [
            ("7", State::Running, 4),
            ("8", State::Waiting, 16),
            ("9_3", State::Held, 1)
        ]
    );
    let but_priority = |queue: &Queue| {
        let jobs = queue.jobs.iter().cloned();
        let jobs = jobs.map(|job| Job { priority: 0, ..job });
        jobs.collect::<Vec<_>>()
    };
    assert_eq!(but_priority(&plain), but_priority(&later));
}

#[test]
fn the_slurms_of_today_say_the_same_as_json_and_as_text() {
    const TODAY: &[u8] = include_bytes!("fixtures/squeue-24.11.json");
    const NEXT: &[u8] = include_bytes!("fixtures/squeue-26.05.json");
    let text = queue_text(include_bytes!("fixtures/squeue-24.11.txt"), &TimeZone::UTC);
    let find = |queue: &Queue, id: &str| queue.jobs.iter().find(|job| job.id == id).cloned();
    for json in [queue(TODAY).unwrap(), queue(NEXT).unwrap()] {
        let states = [
            ("1", State::Running, 4),
            ("2", State::Waiting, 4),
            ("3_3", State::Held, 1),
            ("3_4", State::Held, 1),
            ("3_5", State::Held, 1),
            ("4", State::Held, 1),
        ];
        assert_eq!((brief(&json), json.left_out), (states.into(), 0));
        assert!(find(&json, "4").is_some_and(|job| job.is_dependent));
    }
    let json = queue(TODAY).unwrap();
    for job in &text.jobs {
        assert_eq!(Some(job), find(&json, &job.id).as_ref());
    }
    assert_eq!(text.jobs.len(), json.jobs.len());
    assert_eq!(find(&json, "3_4").unwrap().number.as_deref(), Some("3"));
}

#[test]
fn jobs_stand_alike_as_json_and_as_text() {
    let json = job_states_json(&include_bytes!("fixtures/squeue-24.11.json")[..]).unwrap();
    let text = "1|RUNNING|1|vm|None\n2|PENDING|1||Resources\n3|PENDING|0||JobHeldUser\n4|PENDING|1||Dependency\n";
    assert_eq!(json, job_states(text));
    assert!(job_states_json(&b"{}"[..]).is_err());
}

#[test]
fn components_of_a_job_are_called_as_in_the_text() {
    let text = br#"{"jobs": [{"job_id": 12, "het_job_id": 12, "het_job_offset": 0, "user_id": 3, "cpus": 1, "job_state": "RUNNING"},
        {"job_id": 13, "het_job_id": {"set": true, "number": 12}, "het_job_offset": {"set": true, "number": 1}, "user_id": 3,
        "cpus": 1, "job_state": ["RUNNING"]}]}"#;
    let found = queue(&text[..]).unwrap();
    let names = found
        .jobs
        .iter()
        .map(|job| (job.id.as_str(), job.number.as_deref()));
    let names: Vec<_> = names.collect();
    assert_eq!(names, [("12+0", Some("12")), ("12+1", Some("13"))]);
}

#[test]
fn an_array_of_more_jobs_than_are_taken_costs_no_more() {
    let text = r#"{"jobs": [{"job_id": 7, "array_job_id": 7, "array_task_string": "0-4000000", "user_id": 3, "cpus": 1,
        "job_state": "PENDING"}, {"job_id": 8, "array_job_id": 8, "array_task_string": "0-4000000", "user_id": 3, "cpus": 1,
        "job_state": "PENDING"}]}"#;
    let found = queue(text.as_bytes()).unwrap();
    let left_out = 2 * 4_000_001 - 200_000;
    assert_eq!((found.jobs.len(), found.left_out), (200_000, left_out));
}

#[test]
fn nodes_tell_what_may_be_used_as_sinfo_does() {
    let today = &include_bytes!("fixtures/nodes-24.11.json")[..];
    assert_eq!(processors_json(today).unwrap(), 4);
    let node = |state: &str| {
        let text = format!(
            r#"{{"nodes": [{{"cpus": 8, "alloc_cpus": 3, {state}, "partitions": ["a", "b"]}}]}}"#
        );
        processors_json(text.as_bytes()).unwrap()
    };
    for (state, procs) in [
        (r#""state": ["IDLE"]"#, 8),
        (r#""state": ["MIXED", "DRAIN"]"#, 3),
        (r#""state": ["DOWN", "NOT_RESPONDING"]"#, 3),
        (r#""state": ["IDLE", "POWERED_DOWN"]"#, 8),
        (r#""state": "mixed", "state_flags": []"#, 8),
        (r#""state": "mixed", "state_flags": ["DRAIN"]"#, 3),
        (r#""state": "down", "state_flags": null"#, 3),
    ] {
        assert_eq!(node(state), procs, "{state}");
    }
    let of_none = br#"{"nodes": [{"cpus": 8, "state": ["IDLE"], "partitions": []}, 7]}"#;
    assert_eq!(processors_json(&of_none[..]).unwrap(), 0);
    let refused = br#"{"nodes": [], "errors": [{"error_number": 1, "error": "Invalid user id"}]}"#;
    let refused = processors_json(&refused[..]).unwrap_err().to_string();
    assert_eq!(refused, "can't read Slurm's nodes: Invalid user id");
}

#[test]
fn what_slurmrestd_refuses_is_told_with_who_refused() {
    let refused = br#"{"meta": {"plugin": {"type": "openapi/v0.0.38"}},
        "errors": [{"error": "Unable to contact slurm controller", "error_number": 1}]}"#;
    assert_eq!(
        queue(&refused[..]).unwrap_err().to_string(),
        "can't read Slurm's queue: Unable to contact slurm controller (by openapi/v0.0.38)"
    );
    let told = "Unable to contact slurm controller (by openapi/v0.0.38)";
    assert_eq!(complaint(refused).as_deref(), Some(told));
    assert_eq!(complaint(b"Authentication failure"), None);
    for (text, why) in [
        ("{}", "it has no list of jobs"),
        (r#"{"jobs": null, "errors": []}"#, "it has no list of jobs"),
        (
            r#"{"jobs": [], "errors": [{"description": "no\nuser", "error": null}]}"#,
            r"no\nuser",
        ),
        ("slurm_load_jobs error", "expected value at line 1 column 1"),
    ] {
        let refused = queue(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(refused, format!("can't read Slurm's queue: {why}"));
    }
    assert!(queue(&br#"{"jobs": [{"job_id": 1"#[..]).is_err());
    let none = queue(&br#"{"jobs": []}"#[..]).unwrap();
    assert_eq!(none, Queue::default());
}

#[test]
fn a_list_beside_an_error_is_not_whole_whatever_is_in_it() {
    let text = br#"{"jobs": [{"job_id": 8, "user_id": 3, "cpus": 2, "job_state": ["RUNNING"]}],
        "errors": [{"error": "Unexpected missing user"}], "meta": {"plugin": {"data_parser": "v0.0.42"}}}"#;
    let why = "its list of jobs is not whole: Unexpected missing user (by v0.0.42)";
    let refused = [
        queue(&text[..]).unwrap_err(),
        job_states_json(&text[..]).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(
            error.to_string(),
            format!("can't read Slurm's queue: {why}")
        );
    }
    let warned =
        br#"{"jobs": [], "errors": [], "warnings": [{"description": "Unexpected missing user"}]}"#;
    assert_eq!(queue(&warned[..]).unwrap(), Queue::default());
}

#[test]
fn nothing_in_an_answer_is_longer_than_what_is_kept_of_it_may_be() {
    let endless = |begin: &'static str| {
        let more = io::repeat(b'a').take(1 << 30);
        queue(begin.as_bytes().chain(more)).unwrap_err().to_string()
    };
    for (begin, most) in [
        (r#"{"jobs": [7, {"job_id": 8, "comment": ""#, 64),
        (r#"{"errors": [{"error": ""#, 1),
        (r#"{"jobs": [7], "warnings": [7], ""#, 1),
    ] {
        let why = format!("can't read Slurm's queue: one thing in it is longer than {most} MiB");
        let told = endless(begin);
        assert!(told.starts_with(&why), "{told}");
    }
    // Skipped values cost nothing.
    let text = format!(r#"{{"warnings": ["{}"], "jobs": []}}"#, "a".repeat(2 << 20));
    assert_eq!(queue(text.as_bytes()).unwrap(), Queue::default());
    let long = "é".repeat(500);
    let told = complaint(format!(r#"{{"errors": [{{"error": "{long}"}}]}}"#).as_bytes());
    assert_eq!(told.unwrap(), format!("{}…", &long[..800]));
}

#[test]
fn one_job_without_sense_costs_only_itself() {
    let text = br#"{"jobs": [{"job_id": 1}, 5, {"job_id": 7, "user_id": 3, "cpus": "many", "job_state": "PENDING"},
        {"job_id": 8, "user_id": 3, "cpus": 2, "job_state": "PENDING", "time_limit": -1, "start_time": 1e9}]}"#;
    let found = queue(&text[..]).unwrap();
    assert_eq!(brief(&found), [("8", State::Waiting, 2)]);
    assert_eq!((found.left_out, found.jobs[0].walltime), (3, None));
}

#[test]
fn what_somebody_wrote_that_is_no_text_costs_nothing() {
    let text = b"{\"jobs\": [{\"job_id\": 8, \"user_id\": 3, \"cpus\": 2, \"job_state\": \"PENDING\", \"comment\": \"\xff\xfe\"}]}";
    let found = queue(&text[..]).unwrap();
    assert_eq!(brief(&found), [("8", State::Waiting, 2)]);
    assert_eq!(found.left_out, 0);
}

#[test]
fn what_is_done_about_a_job_comes_before_the_state_of_its_life() {
    let told = |states: &str| {
        let text = format!(
            r#"{{"jobs": [{{"job_id": 8, "user_id": 3, "cpus": 2, "nodes": "n1", "job_state": {states}}}]}}"#
        );
        queue(text.as_bytes()).unwrap().jobs[0].state
    };
    for (states, state) in [
        (r#"["RUNNING"]"#, State::Running),
        (r#"["COMPLETED", "COMPLETING"]"#, State::Running),
        // A requeued job, while its remains on the node are cleared away.
        (r#"["PENDING", "COMPLETING"]"#, State::Running),
        (r#"["PENDING", "REQUEUE_HOLD"]"#, State::Held),
        (r#"["RUNNING", "CONFIGURING"]"#, State::Running),
        (r#"["COMPLETED"]"#, State::Over),
        (r#""PENDING""#, State::Waiting),
    ] {
        assert_eq!(told(states), state, "{states}");
    }
}

#[test]
fn sacct_says_the_same_as_json_and_as_text() {
    let json = history(&include_bytes!("fixtures/sacct-23.11.json")[..]).unwrap();
    let text = history_text(include_bytes!("fixtures/sacct.txt"), &TimeZone::UTC).unwrap();
    let states = [("5", State::Over, 4), ("6", State::Cancelled, 2)];
    assert_eq!(brief(&json), states);
    assert_eq!(brief(&text)[..2], states);
    assert_eq!(brief(&text)[2], ("7", State::Running, 4));
    for found in [&json.jobs[0], &text.jobs[0]] {
        let waited = found.start.unwrap().since(found.submitted.unwrap());
        assert_eq!(
            (waited, found.walltime),
            (Duration::from_secs(600), hours(1))
        );
        assert_eq!(
            found.end.unwrap().since(found.start.unwrap()),
            Duration::from_secs(600)
        );
    }
    assert_eq!(text.jobs[1].walltime, hours(24));
    let wrong = history_text(b"JobID|User\n", &TimeZone::UTC).unwrap_err();
    assert_eq!(
        wrong.to_string(),
        "can't read Slurm's accounting: there is no field State"
    );
}

#[test]
fn the_accounting_of_today_says_the_same_as_json_and_as_text_of_arrays_too() {
    let json = history(&include_bytes!("fixtures/sacct-24.11.json")[..]).unwrap();
    let text = include_bytes!("fixtures/sacct-24.11.txt");
    let text = history_text(text, &TimeZone::UTC).unwrap();
    let find = |id: &str| json.jobs.iter().find(|job| job.id == id).cloned();
    for wanted in text.jobs.iter().filter(|job| job.id != "7_[0-1]") {
        // The text has neither the reason nor the expected start.
        let found = find(&wanted.id).map(|job| Job {
            reason: String::new(),
            priority: 0,
            ..job
        });
        assert_eq!(found.as_ref(), Some(wanted));
    }
    assert_eq!(find("7_[0x3]").unwrap().state, State::Waiting);
    let counted = |queue: &Queue| (queue.jobs.len(), queue.left_out);
    assert_eq!((counted(&json), counted(&text)), ((6, 0), (6, 0)));
    let before = history(&include_bytes!("fixtures/sacct-22.05.json")[..]).unwrap();
    let states = [
        ("1", State::Over, 1),
        ("2_3", State::Over, 1),
        ("6", State::Running, 4),
        ("7_[0x3]", State::Waiting, 4),
        ("10", State::Cancelled, 1),
    ];
    assert_eq!((brief(&before), before.left_out), (states.into(), 0));
    assert_eq!(before.jobs[0].user, "unknown");
}

#[test]
fn squeue_as_text_has_moments_in_seconds_or_in_local_time() {
    let text = b"7|7|alice|RUNNING|4|2:00:00|4294901758|1795535000|1795536000|1795543200|n1|(null)|None\n\
        8|8|bob|PENDING|16|UNLIMITED|5|2026-11-24T14:30:00|N/A|N/A|||(Nodes required|for job are DOWN)\n\nnonsense\n";
    let zone = TimeZone::fixed(jiff::tz::offset(1));
    let found = queue_text(text, &zone);
    assert_eq!(found.jobs[0], seven());
    let eight = &found.jobs[1];
    assert_eq!((eight.submitted, eight.start), (at(1_795_527_000), None));
    assert_eq!((eight.walltime, eight.state), (None, State::Waiting));
    assert_eq!(eight.reason, "(Nodes required|for job are DOWN)");
    assert_eq!(found.left_out, 1);
}

#[test]
fn a_job_that_was_cancelled_while_it_waited_never_began_whatever_its_start_says() {
    for (nodes, state) in [("", State::Cancelled), ("n1", State::Over)] {
        let row = format!(
            "7|7|alice|CANCELLED|4|2:00:00|5|1795535000|1795536000|1795536000|{nodes}||None\n"
        );
        let record = format!(
            "JobId=7 UserId=alice(1000) Priority=5 JobState=CANCELLED Reason=None TimeLimit=UNLIMITED NumCPUs=4 \
             StartTime=2026-11-24T10:10:00 EndTime=2026-11-24T10:10:00 ReqNodeList=n1 NodeList={}\n",
            if nodes.is_empty() { "(null)" } else { nodes }
        );
        let json = format!(
            r#"{{"jobs": [{{"job_id": 7, "user_id": 3, "cpus": 4, "job_state": ["CANCELLED"], "start_time": 1795536000,
            "nodes": {}}}]}}"#,
            if nodes.is_empty() {
                "null".to_owned()
            } else {
                format!("\"{nodes}\"")
            }
        );
        for found in [
            queue_text(row.as_bytes(), &TimeZone::UTC),
            queue_records(record.as_bytes(), &TimeZone::UTC),
            queue(json.as_bytes()).unwrap(),
        ] {
            assert_eq!(brief(&found), [("7", state, 4)]);
            assert_eq!(found.jobs[0].started().is_some(), state == State::Over);
        }
    }
}

#[test]
fn a_job_without_priority_is_held_whatever_its_reason_says() {
    for (priority, state) in [(0, State::Held), (5, State::Waiting)] {
        let row = format!(
            "7|7|alice|PENDING|4|2:00:00|{priority}|1795535000|N/A|N/A||(null)|Resources\n"
        );
        let record = format!(
            "JobId=7 UserId=alice(1000) Priority={priority} JobState=PENDING Reason=Resources NumCPUs=4\n"
        );
        let json = format!(
            r#"{{"jobs": [{{"job_id": 7, "user_id": 3, "cpus": 4, "job_state": "PENDING", "priority": {priority}}}]}}"#
        );
        for found in [
            queue_text(row.as_bytes(), &TimeZone::UTC),
            queue_records(record.as_bytes(), &TimeZone::UTC),
            queue(json.as_bytes()).unwrap(),
        ] {
            assert_eq!(brief(&found), [("7", state, 4)]);
        }
    }
}

#[test]
fn scontrol_shows_jobs_and_arrays_on_a_line_each() {
    let found = queue_records(include_bytes!("fixtures/scontrol.txt"), &TimeZone::UTC);
    let states = [("7", State::Running, 4), ("9_4-9%2", State::Waiting, 2)];
    assert_eq!(brief(&found), states);
    let [seven, nine] = &found.jobs[..] else {
        panic!("two jobs: {found:?}");
    };
    assert_eq!((seven.walltime, seven.start), (hours(2), at(1_795_515_000)));
    assert_eq!(
        (nine.user.as_str(), nine.start, nine.walltime),
        ("bob", None, None)
    );
}

#[test]
fn sinfo_counts_what_may_be_used() {
    assert_eq!(processors(b"  4/12/16/32\n").unwrap(), 16);
    assert_eq!(processors(b"90K/3312/0/93312\n").unwrap(), 93_312);
    assert!(processors(b"").is_err());
    assert!(processors(b"1/2/3").is_err());
}

#[test]
fn spans_are_read_as_slurm_writes_them() {
    for (word, secs) in [
        ("30", 1800),
        ("30:05", 1805),
        ("1:00:00", 3600),
        ("2-00:00:01", 172_801),
        ("1-2", 93_600),
    ] {
        assert_eq!(text::span(word), Some(Duration::from_secs(secs)), "{word}");
    }
    for word in [
        "UNLIMITED",
        "",
        "1:2:3:4",
        "99999999999999999999",
        "18446744073709551615-00:00:00",
    ] {
        assert_eq!(text::span(word), None, "{word}");
    }
}

#[test]
fn jobs_of_an_array_are_told_with_the_number_that_hooks_know() {
    let text = b"9_3|12|bob|PENDING|4|5:00|5|1795535000|N/A|N/A||(null)|Resources\n\
        9_4|9|bob|PENDING|4|5:00|5|1795535000|N/A|N/A||(null)|Resources\n\
        7|7|alice|PENDING|4|5:00|5|1795535000|N/A|N/A||(null)|Resources\n";
    let found = queue_text(text, &TimeZone::UTC);
    let numbers = found
        .jobs
        .iter()
        .map(|job| (job.id.as_str(), job.number.as_deref()));
    let numbers: Vec<_> = numbers.collect();
    assert_eq!(
        numbers,
        [("9_3", Some("12")), ("9_4", Some("9")), ("7", None)]
    );
}
