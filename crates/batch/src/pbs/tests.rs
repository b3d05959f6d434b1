//! The fixture follows `qstat -f -F json` of OpenPBS 23.06 by its source, cut down to what matters.

use super::*;

const ANSWER: &[u8] = br#"{
    "timestamp": 1795536000, "pbs_version": "23.06.06", "pbs_server": "vbox",
    "Jobs": {
        "1.vbox": {
            "Job_Name": "STDIN", "Job_Owner": "alice@login1", "job_state": "R", "queue": "workq",
            "ctime": "Tue Nov 24 10:00:00 2026", "qtime": "Tue Nov 24 10:00:00 2026", "stime": "Tue Nov 24 10:10:00 2026",
            "Priority": 0, "Resource_List": {"ncpus": 4, "nodect": 1, "walltime": "02:00:00"}
        },
        "2.vbox": {
            "Job_Owner": "bob@login1", "job_state": "Q", "comment": "Not Running: Insufficient amount of resource: ncpus",
            "qtime": "Tue Nov 24 10:01:00 2026", "Priority": 5, "estimated": {"start_time": "Tue Nov  3 12:10:00 2026"},
            "Resource_List": {"ncpus": "16", "nodect": 4}
        },
        "3.vbox": {"Job_Owner": "bob@login1", "job_state": "H", "Resource_List": {"ncpus": 1, "walltime": "100:00:00"}},
        "4.vbox": {"job_state": "Q"}
    }
}"#;

#[test]
fn qstat_tells_what_runs_what_waits_and_when_it_is_thought_to_start() {
    let found = queue(ANSWER, &TimeZone::UTC).unwrap();
    let [one, two, three] = &found.jobs[..] else {
        panic!("three jobs: {found:?}");
    };
    let at = |secs| Some(Timestamp::from_secs(secs));
    assert_eq!(
        (one.state, one.user.as_str(), one.procs),
        (State::Running, "alice", 4)
    );
    assert_eq!(
        (one.submitted, one.start),
        (at(1_795_514_400), at(1_795_515_000))
    );
    assert_eq!(one.walltime, Some(Duration::from_secs(7200)));
    assert_eq!(
        (two.state, two.procs, two.priority),
        (State::Waiting, 16, 5)
    );
    assert_eq!((two.start, two.walltime), (at(1_793_707_800), None));
    assert_eq!(three.state, State::Held);
    assert_eq!(found.left_out, 1);
}

#[test]
fn an_empty_queue_is_no_error_and_other_text_is() {
    let empty = br#"{"timestamp": 1, "pbs_server": "vbox"}"#;
    assert_eq!(queue(empty, &TimeZone::UTC).unwrap(), Queue::default());
    assert!(queue(b"qstat: Unknown server", &TimeZone::UTC).is_err());
}
