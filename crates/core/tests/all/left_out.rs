//! Files of a source that change or vanish, and what depots hold of them.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may stop at once, and looks at few commands"
)]

use std::collections::BTreeSet;

use crate::support::confirmed;
use posthaste_core::{Mind, Settings, contract::*};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp};

const REQUEST: RequestId = RequestId::new(1);
const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const CHUNKS: u32 = 8;
const DEPOTS: [DepotId; 3] = [DepotId::new(1), DepotId::new(2), DepotId::new(3)];

type Piece = (DepotId, ChunkIndex, FragmentIndex);

/// A driver whose depots keep what they are told they stored.
struct Desk {
    mind: Mind,
    now: Timestamp,
    commands: Vec<Command>,
    events: Vec<Event>,
    held: BTreeSet<Piece>,
}

impl Desk {
    /// A request of eight chunks, each in three fragments of which two are enough, and a depot for each fragment.
    fn new() -> Self {
        let mut desk = Self {
            mind: Mind::new(Settings::default()),
            now: START,
            commands: Vec::new(),
            events: Vec::new(),
            held: BTreeSet::new(),
        };
        let (capacity, rate_max) = (Bytes::mebi(4096), Some(ByteRate::new(10 << 20)));
        for depot in DEPOTS {
            desk.give(Input::DepotAdded {
                depot,
                name: format!("{depot}"),
                capacity,
                rate_max,
            });
            desk.give(Input::DepotUp {
                depot,
                free: capacity,
                rate_max,
            });
        }
        let spec = RequestSpec {
            bytes: Bytes::mebi(CHUNKS.into()),
            files: 10,
            chunk_size: Bytes::mebi(1),
            deadline: START + std::time::Duration::from_secs(600),
            code: "2+1".parse().unwrap(),
            via: DEPOTS.to_vec(),
            destinations: Vec::new(),
            release: ReleasePolicy::WhenSafe,
            best_effort: false,
        };
        desk.give(Input::RequestSubmitted {
            request: REQUEST,
            spec,
        });
        desk
    }

    fn give(&mut self, input: Input) {
        let mut out = Outbox::default();
        self.now = self.now + std::time::Duration::from_millis(1);
        self.mind.step(self.now, vec![input], &mut out);
        let asked = out.commands.iter().filter_map(|command| {
            confirmed(&self.mind, command)?;
            match command {
                Command::Inventory { depot, .. } => Some(*depot),
                _ => None,
            }
        });
        let asked: Vec<DepotId> = asked.collect();
        self.commands.extend(out.commands);
        self.events.extend(out.events);
        // As they really are.
        asked
            .into_iter()
            .for_each(|depot| self.take_inventory(depot));
    }

    /// Takes what was sent, or is to be, of chunks below this.
    fn take_sent(&mut self, below: u32) -> Vec<Piece> {
        let sent = self.commands.iter().filter_map(|command| match command {
            Command::Send {
                depot,
                chunk,
                fragment,
                ..
            } if chunk.get() < below => Some((*depot, *chunk, *fragment)),
            _ => None,
        });
        let sent: Vec<Piece> = sent.collect();
        let is_other = |command: &Command| !matches!(command, Command::Send { chunk, .. } if chunk.get() < below);
        self.commands.retain(is_other);
        sent
    }

    fn store(&mut self, (depot, chunk, fragment): Piece) {
        self.held.insert((depot, chunk, fragment));
        self.give(Input::FragmentStored {
            request: REQUEST,
            depot,
            chunk,
            fragment,
        });
    }

    fn take_back(&mut self, (depot, chunk, fragment): Piece) {
        self.give(Input::Recalled {
            request: REQUEST,
            depot,
            chunk,
            fragment,
        });
    }

    /// Stores what is sent, until all of the chunks below this is there.
    fn store_below(&mut self, below: u32) {
        loop {
            let sent = self.take_sent(below);
            if sent.is_empty() {
                return;
            }
            sent.into_iter().for_each(|piece| self.store(piece));
        }
    }

    /// A file of these chunks is not what was listed.
    fn find_at_fault(&mut self, file: u64, [first, last]: [u32; 2], is_restored: bool) {
        let file = FileAtFault {
            omission: Omission {
                file,
                bytes: Bytes::mebi(1),
                fault: Fault::SourceChanged,
                what: format!("file {file}"),
            },
            first: ChunkIndex::new(first),
            last: ChunkIndex::new(last),
            is_restored,
        };
        self.give(Input::FileAtFault {
            request: REQUEST,
            file,
        });
    }

    /// Starts again from an older state. Depots have yet to say what they hold.
    fn restore(&mut self, state: &[u8]) {
        self.mind = Mind::restore(state).unwrap();
        self.commands.clear();
        self.give(Input::DriverStarted);
    }

    fn take_inventory(&mut self, depot: DepotId) {
        let held = self.held.iter().filter(|(at, ..)| *at == depot);
        self.give(Input::DepotInventory {
            depot,
            request: REQUEST,
            held: held
                .map(|&(_, chunk, fragment)| (chunk, fragment))
                .collect(),
        });
    }

    fn state(&self) -> RequestState {
        self.mind.request(REQUEST).unwrap().state
    }

    fn is_left_out(&self) -> bool {
        !self.mind.request(REQUEST).unwrap().omissions.is_empty()
    }

    fn renewed(&self) -> Vec<u32> {
        let renewed = self.commands.iter().filter_map(|command| match command {
            Command::Renew { chunk, .. } => Some(chunk.get()),
            _ => None,
        });
        renewed.collect()
    }

    fn is_released(&self) -> bool {
        let mut commands = self.commands.iter();
        commands.any(|command| matches!(command, Command::Release { .. }))
    }
}

#[test]
fn what_a_depot_lost_in_silence_is_found_before_the_source_goes() {
    let mut desk = Desk::new();
    desk.store_below(CHUNKS - 1);
    // Nobody is told of that.
    let lost: Vec<Piece> = desk.held.iter().copied().take(3).collect();
    lost.iter().for_each(|piece| {
        desk.held.remove(piece);
    });
    let last = desk.take_sent(CHUNKS);
    last.into_iter().for_each(|piece| desk.store(piece));
    assert!(!desk.is_released(), "what is lost is believed to be there");
    assert_ne!(desk.mind.request(REQUEST).unwrap().chunks_safe, CHUNKS);
    desk.store_below(CHUNKS);
    assert!(desk.is_released(), "{:?}", desk.state());
    assert_eq!(desk.held.len(), 3 * CHUNKS as usize);
}

#[test]
fn what_is_no_file_is_named_and_costs_no_chunk() {
    let mut desk = Desk::new();
    for file in 10..20 {
        let omission = Omission {
            file,
            bytes: Bytes::ZERO,
            fault: Fault::SourceUnreadable,
            what: format!("pipe {file}"),
        };
        let file = FileAtFault {
            omission,
            first: ChunkIndex::new(1),
            last: ChunkIndex::new(0),
            is_restored: false,
        };
        let request = REQUEST;
        desk.give(Input::FileAtFault { request, file });
    }
    assert_eq!(desk.mind.request(REQUEST).unwrap().omissions.len(), 10);
    let happened = desk.events.iter().map(ToString::to_string);
    let told = "something left out: a source file can't be read: pipe 10";
    assert!(happened.into_iter().any(|event| event == told));
    desk.store_below(CHUNKS);
    assert!(desk.is_released() && desk.renewed().is_empty());
}

#[test]
fn a_source_that_was_released_after_the_state_that_is_restored_is_at_fault_with_nothing() {
    let mut desk = Desk::new();
    desk.store_below(3);
    let old = desk.mind.snapshot();
    desk.store_below(CHUNKS);
    assert!(desk.is_released(), "it is safe");
    desk.give(Input::SourceReleased { request: REQUEST });
    assert_eq!(desk.state(), RequestState::Released);

    desk.restore(&old);
    assert_eq!(desk.state(), RequestState::Moving);
    for (file, depot) in (0..).zip(DEPOTS) {
        // All of it, as each send would find while not every depot has said what it holds.
        desk.find_at_fault(file, [0, CHUNKS - 1], false);
        let chunk = ChunkIndex::new(CHUNKS - 1);
        desk.give(Input::ChunkRenewed {
            request: REQUEST,
            chunk,
        });
        desk.take_inventory(depot);
    }
    assert_eq!(desk.state(), RequestState::Safe);
    assert!(!desk.is_left_out() && desk.renewed().is_empty());
    assert_eq!(desk.take_sent(CHUNKS), Vec::new());
}

#[test]
fn of_a_request_from_a_backup_nothing_is_left_out_and_nothing_renewed() {
    let mut desk = Desk::new();
    desk.store_below(3);
    let old = desk.mind.snapshot();
    desk.restore(&old);
    desk.find_at_fault(4, [3, 4], true);
    DEPOTS
        .into_iter()
        .for_each(|depot| desk.take_inventory(depot));
    assert_eq!(
        desk.state(),
        RequestState::Moving,
        "depots had not said all"
    );
    desk.find_at_fault(4, [3, 4], true);
    assert_eq!(desk.state(), RequestState::Failed);
    assert!(!desk.is_left_out() && desk.renewed().is_empty());
}

#[test]
fn chunks_that_depots_can_rebuild_are_left_to_them_and_no_file_of_those_alone_is_left_out() {
    let mut desk = Desk::new();
    let sent = desk.take_sent(2);
    let (first, second): (Vec<Piece>, Vec<Piece>) =
        sent.into_iter().partition(|(_, chunk, _)| chunk.get() == 0);
    assert_eq!((first.len(), second.len()), (3, 3));
    desk.store(first[0]);
    desk.store(first[1]);
    desk.store(second[0]);
    desk.find_at_fault(0, [0, 0], false);
    desk.take_back(first[2]);
    assert!(!desk.is_left_out(), "depots have all of it");
    let mends = desk.commands.iter().filter_map(|command| match command {
        Command::Mend {
            to,
            chunk,
            fragment,
            ..
        } => Some((*to, *chunk, *fragment)),
        _ => None,
    });
    assert_eq!(
        mends.collect::<Vec<_>>(),
        [first[2]],
        "they rebuild what lacks"
    );
    assert_eq!(desk.take_sent(1), Vec::new());
    desk.find_at_fault(1, [0, 1], false);
    desk.take_back(second[1]);
    assert!(desk.is_left_out(), "its second chunk can't be rebuilt");
    for chunk in [0, 1].map(ChunkIndex::new) {
        desk.give(Input::ChunkRenewed {
            request: REQUEST,
            chunk,
        });
    }
    assert_eq!(desk.renewed(), [1]);
    desk.take_back(second[2]);
    desk.store(first[2]);
    desk.store_below(CHUNKS);
    assert!(desk.is_released(), "all else is safe");
}

#[test]
fn a_source_that_can_not_be_read_for_a_while_fails_nothing_and_no_depot_is_lost_for_it() {
    const STEP: std::time::Duration = std::time::Duration::from_secs(5);
    let mut desk = Desk::new();
    let mut at = START;
    let mut tried = 0;
    let mut step = |desk: &mut Desk, is_stalled: bool| {
        at = at + STEP;
        let sent = desk.take_sent(CHUNKS).into_iter();
        let inputs: Vec<Input> = sent
            .map(|(depot, chunk, fragment)| match is_stalled {
                true => Input::FragmentFailed {
                    request: REQUEST,
                    depot,
                    chunk,
                    fragment,
                    fault: Fault::SourceStalled,
                },
                false => Input::FragmentStored {
                    request: REQUEST,
                    depot,
                    chunk,
                    fragment,
                },
            })
            .collect();
        let told = inputs.len();
        let mut out = Outbox::default();
        desk.mind.step(at, inputs, &mut out);
        desk.commands.extend(out.commands);
        told
    };
    for _ in 0..60 {
        tried += step(&mut desk, true);
        let view = desk.mind.request(REQUEST).unwrap();
        assert_eq!(view.state, RequestState::Moving);
        let depots = desk.mind.depots();
        assert!(depots.iter().all(|depot| depot.state == DepotState::Up));
    }
    // It is tried again and again, and not all the time.
    assert!((30..1000).contains(&tried), "{tried}");
    for _ in 0..50 {
        step(&mut desk, false);
    }
    let view = desk.mind.request(REQUEST).unwrap();
    assert_eq!(view.safe_at.map(|_| view.missed), Some(false));
}

#[test]
fn what_somebody_pulled_before_it_is_safe_releases_nothing() {
    let mut desk = Desk::new();
    desk.take_sent(CHUNKS / 2);
    desk.give(Input::Delivered { request: REQUEST });
    let view = desk.mind.request(REQUEST).unwrap();
    assert_eq!(view.state, RequestState::Moving);
    let is_release = |command: &Command| matches!(command, Command::Release { .. });
    assert!(!desk.commands.iter().any(is_release));
}

#[test]
fn a_release_that_left_a_file_says_so_once_depots_lost_what_is_gone_there() {
    let mut desk = Desk::new();
    desk.store_below(CHUNKS);
    assert!(desk.is_released());
    let (request, fault) = (REQUEST, Fault::Unremovable);
    let what = "can't remove d/one".to_owned();
    desk.give(Input::SourceFileKept { request, what });
    desk.give(Input::SourceKept { request, fault });
    desk.held.retain(|(at, ..)| *at != DEPOTS[0]);
    desk.take_inventory(DEPOTS[0]);
    desk.give(Input::SourceFileTold {
        request,
        fault: Fault::SourceVanished,
        what: "d/two is not there any more".to_owned(),
    });
    let view = desk.mind.request(REQUEST).unwrap();
    assert_eq!(
        (view.state, view.source_kept),
        (RequestState::Released, true)
    );
    let told = desk.mind.explain(REQUEST).unwrap();
    let mut told = told.iter().map(|decision| decision.reason.to_string());
    assert!(told.any(|why| why == "a source file can't be removed: can't remove d/one"));
}

#[test]
fn what_a_release_left_at_its_source_is_sent_again_where_depots_lost_it() {
    let mut desk = Desk::new();
    desk.store_below(CHUNKS);
    assert!(desk.is_released());
    let (request, fault) = (REQUEST, Fault::Unremovable);
    desk.give(Input::SourceKept { request, fault });
    let (free, rate_max) = (Bytes::mebi(4096), Some(ByteRate::new(10 << 20)));
    for depot in [DEPOTS[0], DEPOTS[1]] {
        desk.held.retain(|(at, ..)| *at != depot);
        let fault = Fault::Unreachable;
        desk.give(Input::DepotDown { depot, fault });
        desk.give(Input::DepotUp {
            depot,
            free,
            rate_max,
        });
        desk.take_inventory(depot);
    }
    let file = FileAtFault {
        omission: Omission {
            file: 1,
            bytes: Bytes::mebi(2),
            fault: Fault::SourceVanished,
            what: "d/one is not there any more".to_owned(),
        },
        first: ChunkIndex::new(0),
        last: ChunkIndex::new(1),
        is_restored: false,
    };
    desk.give(Input::FileAtFault { request, file });
    for piece in desk.take_sent(2) {
        desk.take_back(piece);
    }
    assert_eq!(desk.take_sent(2), Vec::new(), "nobody can read them");
    desk.store_below(CHUNKS);
    let view = desk.mind.request(REQUEST).unwrap();
    let found = (view.state, view.chunks_safe, view.chunks_out_of_reach);
    assert_eq!(found, (RequestState::Moving, CHUNKS - 2, 2));
}

#[test]
fn a_source_that_somebody_else_removed_left_nothing() {
    let mut desk = Desk::new();
    desk.store_below(CHUNKS - 1);
    let last = desk.take_sent(CHUNKS);
    last.into_iter().for_each(|piece| desk.store(piece));
    desk.give(Input::SourceReleased { request: REQUEST });
    let view = desk.mind.request(REQUEST).unwrap();
    assert_eq!(
        (view.state, view.source_kept),
        (RequestState::Released, false)
    );
}
