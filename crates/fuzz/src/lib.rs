//! Fuzz targets: everything that reads foreign input.
//!
//! A target is a function that takes any bytes and panics if a required property does not hold. The
//! fuzzers (`fuzz/`, libFuzzer on the nightly toolchain) search for such bytes. Their finds lie
//! under `fuzz/corpus`, and this crate's tests replay them, on every toolchain, together with
//! seeded mutations of them.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use posthaste_batch::{
    pbs,
    purge::{self, Facts, Language, Sight, World},
    slurm,
};
use posthaste_endpoint::{Location, fuzzing, parse_profiles};
use posthaste_engine::{
    dataset::{FileList, Manifest},
    envelope::{self as envelopes, age::Identity},
};
use posthaste_plan::Timetable;

/// A function that must accept any bytes.
pub type Target = fn(&[u8]);

/// All targets, by the name of the corpus and of the fuzzer.
pub const TARGETS: [(&str, Target); 22] = [
    ("azure_listing", fuzzing::azure_listing),
    ("envelope", envelope),
    ("file_list", file_list),
    ("ftp_reply", fuzzing::ftp_reply),
    ("fts_job", posthaste_service::fuzzing::fts_job),
    ("gateway_frames", posthaste_gateway::fuzzing::gateway_frames),
    (
        "gateway_greeting",
        posthaste_gateway::fuzzing::gateway_greeting,
    ),
    ("gcs_listing", fuzzing::gcs_listing),
    ("html_index", fuzzing::html_index),
    ("location", location),
    ("manifest", manifest),
    ("peer_wire", fuzzing::peer_wire),
    ("plugin_entry", fuzzing::plugin_entry),
    ("plugin_output", fuzzing::plugin_output),
    ("profiles", profiles),
    ("purge_policy", purge_policy),
    ("queue", queue),
    ("relay_order", posthaste_relay::fuzzing::relay_order),
    ("s3_listing", fuzzing::s3_listing),
    ("sftp_reply", fuzzing::sftp_reply),
    ("timetable", timetable),
    ("webdav_listing", fuzzing::webdav_listing),
];

/// Gives bytes to the target of this name.
pub fn play(name: &str, data: &[u8]) {
    for (_, target) in TARGETS.iter().filter(|(known, _)| *known == name) {
        target(data);
    }
}

/// Identity that the envelope in the corpus is encrypted for.
pub const IDENTITY: &str =
    "AGE-SECRET-KEY-13UCTQG0623KYT3UMCYUXQ549Y9F0QZ6RLTTNVV5ZQW2438RSM3LSGDCJAP";

/// Opens an envelope with the corpus's identity. A manifest that opens must read as it was written.
pub fn envelope(data: &[u8]) {
    let Ok(identity) = IDENTITY.parse::<Identity>() else {
        unreachable!("it is one");
    };
    let _ = envelopes::is_envelope(data);
    match Manifest::open(data, &[identity]) {
        Ok(manifest) => check_list(&manifest.list),
        Err(error) => {
            let shown = error.to_string();
            assert!(!shown.contains(char::is_control), "it is more than a line");
        }
    }
}

/// Reads a list of files. No path may lead out of its folder.
pub fn file_list(data: &[u8]) {
    if let Ok(list) = FileList::from_bytes(data) {
        assert_eq!(list.to_bytes(), data, "a list has one form");
        check_list(&list);
    }
}

fn check_list(list: &FileList) {
    for file in list.files.iter().filter(|file| !file.path.is_empty()) {
        let mut components = file.path.split(|byte| *byte == b'/');
        assert!(components.all(|name| !matches!(name, b"" | b"." | b"..")));
        assert!(!file.path.contains(&0));
    }
}

/// Reads a manifest. No path may lead out of its folder, and each chunk must have its digests.
pub fn manifest(data: &[u8]) {
    if let Ok(manifest) = Manifest::from_bytes(data) {
        assert_eq!(manifest.to_bytes(), data, "a manifest has one form");
        check_list(&manifest.list);
        for chunk in &manifest.chunks {
            assert_eq!(chunk.fragments.len(), usize::from(manifest.code.total()));
        }
    }
}

/// Reads an address. Its name inside a directory must never lead out of it.
pub fn location(data: &[u8]) {
    match Location::parse(OsStr::from_bytes(data)) {
        Ok(location) => {
            if let Some(name) = location.name() {
                assert!(!name.contains(&b'/') && !matches!(&*name, b"" | b"." | b".."));
            }
        }
        Err(error) => {
            let shown = error.to_string();
            assert!(!shown.contains(char::is_control), "it is more than a line");
        }
    }
}

/// Reads a `profiles.toml`. Its names must be valid in addresses, and an error must be one line.
pub fn profiles(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match parse_profiles(text) {
        Ok(profiles) => {
            for name in profiles.names() {
                assert!(!name.is_empty() && !name.starts_with('-') && !name.contains(['/', ':']));
            }
        }
        Err(error) => {
            let shown = error.to_string();
            assert!(!shown.contains(char::is_control), "it is more than a line");
        }
    }
}

/// Reads a purge policy in every language. No purge may lie before now, and an error must consist
/// of lines.
pub fn purge_policy(data: &[u8]) {
    const NOW_S: i64 = 1_800_000_000;
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let facts = Facts::default();
    let sight = Sight {
        path: b"/scratch/a/b",
        facts: &facts,
        is_remembered: false,
    };
    for language in [Language::Toml, Language::Robinhood, Language::Scale] {
        match purge::read(text, language, &|_| None) {
            Ok(policy) => {
                let death = policy.death(&sight, &World::at(NOW_S, jiff::tz::TimeZone::UTC));
                assert!(death.is_none_or(|death| death.at_s >= NOW_S));
            }
            Err(complaints) => {
                assert!(!complaints.is_empty(), "it is refused without a reason");
                for complaint in complaints {
                    let shown = complaint.to_string();
                    assert!(!shown.contains(char::is_control), "it is more than a line");
                }
            }
        }
    }
}

/// Reads the reports of Slurm and PBS on their queues, in every form. An accepted job must have a
/// name that fits in a line, and processors. An error must be one line.
pub fn queue(data: &[u8]) {
    let zone = jiff::tz::TimeZone::UTC;
    let beside = [
        slurm::complaint(data),
        slurm::processors_json(data)
            .err()
            .map(|error| error.to_string()),
        slurm::job_states_json(data)
            .err()
            .map(|error| error.to_string()),
    ];
    for said in beside.into_iter().flatten() {
        assert!(!said.contains(char::is_control), "it is more than a line");
    }
    let answers = [
        slurm::queue(data),
        slurm::history(data),
        slurm::history_text(data, &zone),
        pbs::queue(data, &zone),
        Ok(slurm::queue_text(data, &zone)),
        Ok(slurm::queue_records(data, &zone)),
    ];
    for answer in answers {
        match answer {
            Ok(queue) => {
                for job in &queue.jobs {
                    let is_line = |name: &str| !name.is_empty() && !name.contains(char::is_control);
                    assert!(is_line(&job.id) && is_line(&job.user) && job.procs > 0);
                }
                assert!(queue.waiting().len() + queue.running().count() <= queue.jobs.len());
            }
            Err(error) => {
                let shown = error.to_string();
                assert!(!shown.contains(char::is_control), "it is more than a line");
            }
        }
    }
}

/// Reads a timetable of rates. Every minute of the week must have a limit or none.
pub fn timetable(data: &[u8]) {
    const WEEK_MIN: u16 = 7 * 24 * 60;
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(timetable) = text.parse::<Timetable>() {
        let first = timetable.limit_at(0);
        let same = (0..WEEK_MIN).all(|minute| timetable.limit_at(minute) == first);
        assert!(
            same || timetable.changes(),
            "it changes and says it does not"
        );
    }
}
