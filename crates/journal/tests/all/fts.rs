//! Jobs of the FTS interface in both databases.

use crate::support::places;

use places::everywhere;
use posthaste_journal::{FtsFile, FtsJob, FtsJobs, FtsState, Journal};
use posthaste_types::{RequestId, Timestamp};

fn job(id: &str, owner: &str, created_s: u64) -> FtsJob {
    FtsJob {
        id: id.into(),
        owner: owner.into(),
        project: String::new(),
        asked: "{}".into(),
        priority: 3,
        created: Timestamp::from_secs(created_s),
        ended: None,
        is_cancelled: false,
    }
}

fn file(job: &str, place: u32, deadline_s: u64) -> FtsFile {
    FtsFile {
        id: 0,
        job: job.into(),
        place,
        asked: "{}".into(),
        deadline: Timestamp::from_secs(deadline_s),
        priority: 3,
        state: FtsState::Waiting,
        is_settled: false,
        request: None,
        attempts: 0,
        not_before: Timestamp::from_secs(0),
        tried: "[]".into(),
        reason: String::new(),
        bytes: None,
        begun: None,
        ended: None,
    }
}

fn waiting(journal: &Journal, now_s: u64) -> Vec<(String, u32)> {
    let waiting = journal.fts_files_waiting(Timestamp::from_secs(now_s), 10);
    let waiting = waiting.unwrap().into_iter();
    waiting.map(|file| (file.job, file.place)).collect()
}

#[test]
fn jobs_come_back_with_their_files_and_the_most_urgent_is_next() {
    everywhere(|place| {
        let mut journal = place.open();
        let late = job("late", "alice", 1);
        let unused = FtsFile {
            state: FtsState::NotUsed,
            is_settled: true,
            ..file("late", 0, 900)
        };
        let files = [file("late", 0, 900), unused, file("late", 1, 900)];
        assert!(journal.keep_fts_job(&late, &files).unwrap());
        assert!(
            !journal.keep_fts_job(&late, &files).unwrap(),
            "one has its id"
        );
        let soon = job("soon", "bob", 2);
        let later = FtsFile {
            not_before: Timestamp::from_secs(50),
            ..file("soon", 1, 100)
        };
        journal
            .keep_fts_job(&soon, &[file("soon", 0, 500), later])
            .unwrap();
        assert_eq!(journal.fts_job("late").unwrap(), Some(late));
        assert_eq!(journal.fts_job("none").unwrap(), None);
        let places = |names: &[(&str, u32)]| -> Vec<(String, u32)> {
            names
                .iter()
                .map(|(job, place)| ((*job).to_owned(), *place))
                .collect()
        };
        assert_eq!(
            waiting(&journal, 10),
            places(&[("soon", 0), ("late", 0), ("late", 1)])
        );
        let then = places(&[("soon", 1), ("soon", 0), ("late", 0), ("late", 1)]);
        assert_eq!(waiting(&journal, 50), then, "retries wait for their time");

        // Moving files are separated from waiting ones, and come back unchanged.
        let mut files = journal.fts_files("late").unwrap();
        assert_eq!(files.len(), 3);
        let given = &mut files[0];
        (given.state, given.request) = (FtsState::Given, Some(RequestId::new(7)));
        given.attempts = 1;
        (given.reason, given.tried) = ("odd: 'quoted'".into(), "[1]".into());
        (given.bytes, given.begun) = (Some(5), Some(Timestamp::from_secs(9)));
        journal.change_fts(&[], &files[..1]).unwrap();
        assert_eq!(journal.fts_files("late").unwrap(), files);
        assert_eq!(journal.fts_files_given().unwrap(), files[..1]);
        assert_eq!(waiting(&journal, 10), places(&[("soon", 0), ("late", 1)]));
        (files[0].is_settled, files[0].state) = (true, FtsState::Finished);
        journal.change_fts(&[], &files[..1]).unwrap();
        assert_eq!(journal.fts_files_given().unwrap(), []);
        drop(journal);
        assert_eq!(place.open().fts_files("late").unwrap(), files);
    });
}

#[test]
fn jobs_are_listed_by_when_they_ended_and_old_ones_are_forgotten() {
    everywhere(|place| {
        let mut journal = place.open();
        for (id, owner, created) in [("a", "alice", 1), ("b", "bob", 2), ("c", "alice", 3)] {
            journal
                .keep_fts_job(&job(id, owner, created), &[file(id, 0, 9)])
                .unwrap();
        }
        let ended = FtsJob {
            ended: Some(Timestamp::from_secs(20)),
            is_cancelled: true,
            ..job("a", "alice", 1)
        };
        journal
            .change_fts(std::slice::from_ref(&ended), &[])
            .unwrap();
        let listed = |journal: &Journal, which: FtsJobs| -> Vec<String> {
            let jobs = journal.fts_jobs(FtsJobs { most: 10, ..which }).unwrap();
            jobs.into_iter().map(|job| job.id).collect()
        };
        assert_eq!(
            listed(&journal, FtsJobs::default()),
            ["c", "b"],
            "the newest first"
        );
        let all = FtsJobs {
            all: true,
            ..FtsJobs::default()
        };
        assert_eq!(listed(&journal, all), ["c", "b", "a"]);
        let since = |at_s| FtsJobs {
            ended_since: Some(Timestamp::from_secs(at_s)),
            ..FtsJobs::default()
        };
        assert_eq!(listed(&journal, since(20)), ["a"]);
        assert!(listed(&journal, since(21)).is_empty());
        assert_eq!(journal.fts_job("a").unwrap(), Some(ended));
        assert_eq!(
            journal
                .forget_fts_jobs(Timestamp::from_secs(20), 10)
                .unwrap(),
            0
        );
        assert_eq!(
            journal
                .forget_fts_jobs(Timestamp::from_secs(21), 10)
                .unwrap(),
            1
        );
        assert_eq!(journal.fts_job("a").unwrap(), None);
        assert!(journal.fts_files("a").unwrap().is_empty());
        assert_eq!(journal.fts_files("b").unwrap().len(), 1);
    });
}
