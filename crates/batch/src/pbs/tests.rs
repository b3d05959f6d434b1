//! The fixture follows `qstat -f -F json` of OpenPBS 23.06 by its source, reduced to the fields
//! that matter.

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
        "4.vbox": {"job_state": "Q"},
        "5[].vbox": {"Job_Owner": "bob@login1", "job_state": "B", "Resource_List": {"ncpus": 1}},
        "5[1].vbox": {
            "Job_Owner": "bob@login1", "job_state": "X", "stime": "Tue Nov 24 10:10:00 2026",
            "resources_used": {"walltime": "00:01:30"}, "Resource_List": {"ncpus": 1}
        }
    }
}"#;

#[test]
fn qstat_tells_what_runs_what_waits_and_when_it_is_thought_to_start() {
    let found = queue(ANSWER, &TimeZone::UTC).unwrap();
    let [one, two, three, last] = &found.jobs[..] else {
        panic!("three jobs and one of an array: {found:?}");
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
    assert_eq!((last.state, last.end), (State::Over, at(1_795_515_090)));
    assert_eq!(found.left_out, 1, "the array is none");
}

#[test]
fn an_empty_queue_is_no_error_and_other_text_is() {
    let empty = br#"{"timestamp": 1, "pbs_server": "vbox"}"#;
    assert_eq!(queue(empty, &TimeZone::UTC).unwrap(), Queue::default());
    assert!(queue(b"qstat: Unknown server", &TimeZone::UTC).is_err());
}

/// Reduced output of `qstat -f`: values too long for a line continue after a tab.
const TEXT: &str = "Job Id: 1.vbox
    Job_Name = STDIN
    Job_Owner = alice@login1
    job_state = R
    Resource_List.ncpus = 4
    Resource_List.walltime = 02:00:00
    stime = Tue Nov 24 10:10:00 2026
    qtime = Tue Nov 24 10:00:00 2026
    Variable_List = PBS_O_HOME=/home/alice,foo=005,
\tBASH_FUNC_x%%=() {  job_state = H
 }
    Submit_arguments = -v foo=005

Job Id: 2.vbox
    Job_Owner = bob@login1
    job_state = Q
    Priority = 5
    Resource_List.ncpus = 16
    comment = Not Running: Insufficient amount of resource: ncpus (R: 16 A: 
\t12 T: 16)
    estimated.start_time = Tue Nov  3 12:10:00 2026

Job Id: 5[].vbox
    Job_Owner = bob@login1
    job_state = B
    Resource_List.ncpus = 1
";

#[test]
fn text_tells_the_same_where_json_can_not_be_read() {
    let broken = br#"{"Jobs": {"1.vbox": {"Variable_List": {"foo":005}}}}"#;
    assert!(queue(broken, &TimeZone::UTC).is_err());
    let found = queue_text(TEXT.as_bytes(), &TimeZone::UTC);
    let [one, two] = &found.jobs[..] else {
        panic!("two jobs: {found:?}");
    };
    let told = queue(ANSWER, &TimeZone::UTC).unwrap();
    assert_eq!((one, two.start), (&told.jobs[0], told.jobs[1].start));
    assert_eq!(
        two.reason,
        "Not Running: Insufficient amount of resource: ncpus (R: 16 A: 12 T: 16)"
    );
    assert_eq!((two.procs, two.priority, found.left_out), (16, 5, 0));
    let nothing = queue_text(b"qstat: Unknown server", &TimeZone::UTC);
    assert_eq!(nothing, Queue::default());
}

#[test]
fn processors_are_those_of_nodes_that_are_up() {
    let nodes = br#"{"timestamp": 1606173513, "pbs_server": "vbox", "nodes": {
        "n1": {"state": "free", "resources_available": {"ncpus": 56}},
        "n2": {"state": "job-busy", "resources_available": {"ncpus": "8"}},
        "n3": {"state": "down,offline", "resources_available": {"ncpus": 56}},
        "n4": {"state": "Stale", "resources_available": {"ncpus": 56}},
        "n5": {"state": "free", "resources_available": {"arch": "linux"}}
    }}"#;
    assert_eq!(processors(nodes).unwrap(), 64);
    assert!(processors(br#"{"nodes": {}}"#).is_err());
    assert!(processors(b"pbsnodes: Server has no node list").is_err());
}

#[test]
fn jobs_that_wait_for_others_are_told_from_those_that_are_held_otherwise() {
    let depends = |depend: &str, holds: &str| {
        let asked = r#""Job_Owner": "bob@login1", "job_state": "H", "Resource_List": {"ncpus": 1}"#;
        let job = format!(r#"{{{asked}, "depend": "{depend}", "Hold_Types": "{holds}"}}"#);
        let answer = format!(r#"{{"Jobs": {{"7.vbox": {job}}}}}"#);
        queue(answer.as_bytes(), &TimeZone::UTC).unwrap().jobs[0].is_dependent
    };
    assert!(depends("afterok:6.vbox@vbox", "s"));
    assert!(depends("beforeok:9.vbox@vbox,afterany:6.vbox@vbox", "us"));
    assert!(depends("on:1", "s"));
    assert!(!depends("beforeok:9.vbox@vbox", "s"), "others wait for it");
    assert!(!depends("afterok:6.vbox@vbox", "u"), "that one has ended");
}

#[test]
fn jobs_of_an_array_are_told_with_the_array_and_held_with_it() {
    let answer = |holds: &str, state: &str| {
        let whole = format!(
            r#""job_state": "{state}", "depend": "afterok:4.vbox@vbox", "Hold_Types": "{holds}""#
        );
        let common = r#""Job_Owner": "bob@login1", "Resource_List": {"ncpus": 1}"#;
        format!(
            r#"{{"Jobs": {{
            "5[].vbox": {{{common}, {whole}}},
            "5[0].vbox": {{{common}, "job_state": "Q"}},
            "5[1].vbox": {{{common}, "job_state": "R"}}}}}}"#
        )
    };
    let told = |holds, state| {
        let found = queue(answer(holds, state).as_bytes(), &TimeZone::UTC).unwrap();
        let [first, second] = <[Job; 2]>::try_from(found.jobs).unwrap();
        assert_eq!(first.number.as_deref(), Some("5[].vbox"));
        assert_eq!(second.state, State::Running);
        (first.state, first.is_dependent)
    };
    assert_eq!(told("s", "H"), (State::Held, true));
    assert_eq!(told("u", "H"), (State::Held, false));
    assert_eq!(told("n", "B"), (State::Waiting, false));
}
