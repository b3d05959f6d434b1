//! The mind against the smallest driver there is: every send is answered at once.

use std::collections::BTreeSet;

use crate::support::confirmed;
use posthaste_core::{Mind, Settings, contract::*};
use posthaste_types::{
    ByteRate, Bytes, ChunkIndex, Code, DepotId, FragmentIndex, RequestId, Timestamp,
};

const REQUEST: RequestId = RequestId::new(1);
const START: Timestamp = Timestamp::from_secs(1_800_000_000);

struct Desk {
    mind: Mind,
    now: Timestamp,
    dead: BTreeSet<DepotId>,
    sent: Vec<(DepotId, ChunkIndex, FragmentIndex)>,
    said: Vec<Event>,
    commands: Vec<Command>,
}

fn depot(number: u32) -> DepotId {
    DepotId::new(number)
}

impl Desk {
    fn new(depots: u32) -> Self {
        let mut desk = Self {
            mind: Mind::new(Settings::default()),
            now: START,
            dead: BTreeSet::new(),
            sent: Vec::new(),
            said: Vec::new(),
            commands: Vec::new(),
        };
        let rate_max = Some(ByteRate::new(10 << 20));
        for number in 1..=depots {
            let name = format!("depot-{number}");
            let capacity = Bytes::mebi(4096);
            desk.give(Input::DepotAdded {
                depot: depot(number),
                name,
                capacity,
                rate_max,
            });
            desk.give(Input::DepotUp {
                depot: depot(number),
                free: capacity,
                rate_max,
            });
        }
        desk
    }

    fn give(&mut self, input: Input) {
        let mut out = Outbox::default();
        self.mind.step(self.now, vec![input], &mut out);
        self.take(out);
    }

    fn take(&mut self, out: Outbox) {
        self.said.extend(out.events);
        for command in &out.commands {
            if let Command::Send {
                depot,
                chunk,
                fragment,
                ..
            } = command
            {
                self.sent.push((*depot, *chunk, *fragment));
            }
        }
        let answers = out.commands.iter();
        let answers: Vec<Input> = answers
            .filter_map(|command| confirmed(&self.mind, command))
            .collect();
        self.commands.extend(out.commands);
        answers.into_iter().for_each(|answer| self.give(answer));
    }

    fn submit(&mut self, spec: RequestSpec) {
        self.give(Input::RequestSubmitted {
            request: REQUEST,
            spec,
        });
    }

    /// Answers sends until nothing is asked or `most` were answered.
    fn answer(&mut self, most: usize) {
        for _ in 0..most {
            let Some((depot, chunk, fragment)) =
                (!self.sent.is_empty()).then(|| self.sent.remove(0))
            else {
                return;
            };
            if !self.dead.contains(&depot) {
                self.give(Input::FragmentStored {
                    request: REQUEST,
                    depot,
                    chunk,
                    fragment,
                });
            }
        }
    }

    fn state(&self) -> RequestState {
        self.mind.request(REQUEST).unwrap().state
    }

    fn has_said(&self, name: &str) -> bool {
        self.said.iter().any(|event| event.happening.name() == name)
    }
}

fn spec(via: u32, code: &str) -> RequestSpec {
    RequestSpec {
        bytes: Bytes::mebi(64),
        files: 10,
        chunk_size: Bytes::mebi(1),
        deadline: START + std::time::Duration::from_secs(600),
        code: code.parse().unwrap(),
        via: (1..=via).map(depot).collect(),
        destinations: Vec::new(),
        release: ReleasePolicy::WhenSafe,
        best_effort: false,
    }
}

#[test]
fn a_dataset_becomes_safe_and_its_source_is_released_once() {
    let mut desk = Desk::new(4);
    desk.submit(spec(4, "3+1"));
    desk.answer(usize::MAX);
    assert_eq!(desk.state(), RequestState::Safe);
    desk.give(Input::SourceReleased { request: REQUEST });
    assert_eq!(desk.state(), RequestState::Released);
    let releases = desk
        .commands
        .iter()
        .filter(|c| matches!(c, Command::Release { .. }))
        .count();
    assert_eq!(releases, 1);
    let held: usize = desk
        .mind
        .holders(REQUEST)
        .iter()
        .map(|(_, held)| held.len())
        .sum();
    assert_eq!(held, 64 * 4);
    assert!(desk.has_said("safe") && desk.has_said("released"));
    assert_eq!(desk.mind.next_wakeup(), None);
}

#[test]
fn a_depot_lost_half_way_is_replaced_and_what_it_held_is_sent_again() {
    let mut desk = Desk::new(4);
    desk.submit(spec(4, "2+1"));
    desk.answer(60);
    let held = desk.mind.holders(REQUEST);
    let victim = held[0].0;
    desk.dead.insert(victim);
    desk.give(Input::DepotDown {
        depot: victim,
        fault: Fault::Unreachable,
    });
    desk.sent.retain(|sent| sent.0 != victim);
    desk.answer(usize::MAX);
    assert_eq!(desk.state(), RequestState::Safe);
    let view = desk.mind.request(REQUEST).unwrap();
    assert_eq!(view.chunks_safe, 64);
    assert!(view.chunks_repaired > 0);
    assert!(desk.has_said("depot-down") && desk.has_said("repairing"));
}

#[test]
fn without_a_spare_depot_nothing_is_released_and_the_danger_is_said() {
    let mut desk = Desk::new(3);
    desk.submit(spec(3, "2+1"));
    desk.answer(30);
    desk.dead.insert(depot(1));
    desk.give(Input::DepotDown {
        depot: depot(1),
        fault: Fault::Unreachable,
    });
    desk.answer(usize::MAX);
    for _ in 0..5 {
        desk.now = desk.now + std::time::Duration::from_secs(1);
        let mut out = Outbox::default();
        desk.mind.step(desk.now, Vec::new(), &mut out);
        desk.take(out);
    }
    assert_eq!(desk.state(), RequestState::Moving);
    assert!(desk.has_said("at-risk"));
    assert!(
        !desk
            .commands
            .iter()
            .any(|c| matches!(c, Command::Release { .. }))
    );
}

#[test]
fn what_was_decided_reads_as_a_story() {
    let mut desk = Desk::new(4);
    let mut spec = spec(4, "2+1");
    spec.bytes = Bytes::mebi(4);
    desk.submit(spec);
    desk.answer(6);
    desk.give(Input::DepotDown {
        depot: depot(1),
        fault: Fault::Unreachable,
    });
    desk.sent.retain(|sent| sent.0 != depot(1));
    desk.answer(usize::MAX);
    desk.give(Input::SourceReleased { request: REQUEST });
    let told: Vec<String> = desk
        .mind
        .explain(REQUEST)
        .unwrap()
        .iter()
        .map(|decision| {
            let told = format!("{} {}: {}", decision.at, decision.what(), decision.reason);
            decision.at.undate(&told)
        })
        .collect();
    assert_eq!(told, STORY, "{told:#?}");
}

const STORY: [&str; 8] = [
    "08:00:00Z admitted: 3 depots at once: p90 finish 08:00:00Z is before the deadline 08:10:00Z",
    "08:00:00Z depot-4: kept in reserve: the others suffice without depot-4",
    "08:00:00Z depot-1: depot down: the depot is lost: it can't be reached",
    "08:00:00Z repairing 2 chunks: a fragment was lost with depot d1",
    "08:00:00Z depot-4: depot added: a fragment was lost with depot d1",
    "08:00:00Z safe, 4.0 MiB: every chunk survives the loss of any depot, digests verified",
    "08:00:00Z scratch is to be released: every chunk survives the loss of any depot, digests verified",
    "08:00:00Z scratch released: every chunk survives the loss of any depot, digests verified",
];

/// A tag given twice would make old journals change their meaning.
#[test]
fn every_reason_comes_back_as_it_was_written() {
    use posthaste_types::Record;
    let (finish, deadline) = (START, START + std::time::Duration::from_secs(1));
    let fault = Fault::Corrupt;
    let rate = ByteRate::new(5);
    let bytes = Bytes::new(7);
    let reasons = [
        Reason::FinishesFirst,
        Reason::Admitted {
            fan_out: 1,
            finish,
            deadline,
        },
        Reason::DirectSuffices { finish, deadline },
        Reason::DirectTooSlow { finish, deadline },
        Reason::Behind {
            fan_out: 1,
            finish,
            deadline,
        },
        Reason::Ahead {
            fan_out: 1,
            finish,
            deadline,
        },
        Reason::DepotLost { fault },
        Reason::DepotBack,
        Reason::RateMoved {
            from: rate,
            to: rate,
        },
        Reason::Repair { lost: depot(1) },
        Reason::Retry { fault, attempt: 2 },
        Reason::Endgame,
        Reason::AllSafe { losses: 1 },
        Reason::Restarted,
        Reason::Asked,
        Reason::Infeasible {
            earliest: Some(finish),
            deadline,
            would_buy: Vec::new(),
        },
        Reason::DeadlinePast { deadline },
        Reason::TooFewDepots {
            code: Code::NONE,
            needed: 2,
            available: 1,
        },
        Reason::UnknownDepot { depot: depot(1) },
        Reason::Source { fault },
        Reason::NoSpace {
            needed: bytes,
            available: bytes,
        },
        Reason::GaveUp { fault, attempts: 3 },
        Reason::Spare {
            name: String::from("alpha"),
        },
        Reason::SlackThin {
            fan_out: 1,
            finish,
            deadline,
        },
        Reason::Verified,
    ];
    for reason in reasons {
        assert_eq!(Reason::from_bytes(&reason.to_bytes()), Ok(reason));
    }
}

#[test]
fn what_matters_less_gives_way_until_it_is_at_risk() {
    for (priority, gives_way) in [("low", true), ("normal", false), ("high", false)] {
        let mut desk = Desk::new(4);
        desk.give(Input::RequestAsked {
            request: REQUEST,
            spec: spec(4, "3+1"),
            optimizer: Default::default(),
            wishes: Wishes {
                priority: priority.parse().unwrap(),
                ..Wishes::default()
            },
        });
        assert_eq!(desk.mind.gives_way(REQUEST), gives_way, "{priority}");
        (2..=4).for_each(|number| {
            desk.give(Input::DepotDown {
                depot: depot(number),
                fault: Fault::Unreachable,
            });
        });
        for _ in 0..600 {
            desk.now = desk.now + std::time::Duration::from_secs(1);
            desk.give(Input::RequestCancelled {
                request: RequestId::new(99),
            });
        }
        assert!(desk.has_said("at-risk"), "{priority}");
        assert!(!desk.mind.gives_way(REQUEST), "{priority}");
    }
    assert!(!Desk::new(1).mind.gives_way(REQUEST), "nobody knows it");
}
