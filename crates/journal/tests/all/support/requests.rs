//! A request with as few facts as possible.

use posthaste_core::contract::{Method, Wishes};
use posthaste_journal::RequestRecord;
use posthaste_types::{Code, RequestId, Timestamp};

pub fn request(dataset: &str) -> RequestRecord {
    RequestRecord {
        id: RequestId::new(0),
        submission: None,
        dataset: dataset.into(),
        source: b"/scratch/run".to_vec(),
        only: Vec::new(),
        named: None,
        patterns: posthaste_journal::Patterns::default(),
        destination: "home".into(),
        code: Code::NONE,
        via: Vec::new(),
        pinned: Vec::new(),
        recipients: Vec::new(),
        release: false,
        drops_extras: false,
        best_effort: false,
        optimizer: Method::Auto,
        wishes: Wishes::default(),
        stage_in: None,
        lent: vec![posthaste_journal::LentFor {
            depot: "ash".into(),
            windows: "20-06".parse().unwrap_or_default(),
            load_max_permille: Some(500),
        }],
        one_file: None,
        created: Timestamp::from_secs(1),
        deadline: Timestamp::from_secs(2),
        purge_at: None,
        expires: Timestamp::from_secs(3),
        scan: None,
        submitted: false,
        ended: None,
    }
}
