//! Relays code chunks that the centre sends them once.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may stop at once"
)]

use std::{collections::BTreeSet, time::Duration};

use posthaste_core::{Mind, Settings, contract::*};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp};

const REQUEST: RequestId = RequestId::new(1);
const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const CHUNKS: u32 = 12;

/// A chunk that a depot shall code: which it keeps, and who gets the others.
#[derive(Debug, Clone)]
struct Order {
    depot: DepotId,
    chunk: ChunkIndex,
    fragment: FragmentIndex,
    to: Vec<(DepotId, FragmentIndex)>,
}

struct Desk {
    mind: Mind,
    now: Timestamp,
    orders: Vec<Order>,
    sends: Vec<(DepotId, ChunkIndex, FragmentIndex)>,
}

fn depot(number: u32) -> DepotId {
    DepotId::new(number)
}

impl Desk {
    /// A request of 12 chunks as 2+1 over depots of these domains.
    fn new(settings: Settings, domains: &[&str]) -> Self {
        let mut desk = Self {
            mind: Mind::new(settings),
            now: START,
            orders: Vec::new(),
            sends: Vec::new(),
        };
        let all: Vec<DepotId> = (1..).map(depot).take(domains.len()).collect();
        for (&depot, domain) in all.iter().zip(domains) {
            let terms = DepotTerms {
                domain: (*domain).to_owned(),
                ..DepotTerms::default()
            };
            let rate_max = Some(ByteRate::new(10 << 20));
            let (name, capacity) = (format!("depot-{depot}"), Bytes::mebi(4096));
            desk.give(vec![
                Input::DepotAdded {
                    depot,
                    name,
                    capacity,
                    rate_max,
                },
                Input::DepotLent { depot, terms },
                Input::DepotUp {
                    depot,
                    free: capacity,
                    rate_max,
                },
            ]);
        }
        let spec = RequestSpec {
            bytes: Bytes::mebi(u64::from(CHUNKS)),
            files: 1,
            chunk_size: Bytes::mebi(1),
            deadline: START + Duration::from_secs(3600),
            code: "2+1".parse().unwrap(),
            via: all,
            destinations: Vec::new(),
            release: ReleasePolicy::Never,
            best_effort: false,
        };
        desk.give(vec![Input::RequestSubmitted {
            request: REQUEST,
            spec,
        }]);
        desk
    }

    fn relays(domains: &[&str]) -> Self {
        let settings = Settings {
            encode: Encode::Relays,
            ..Settings::default()
        };
        Self::new(settings, domains)
    }

    fn give(&mut self, inputs: Vec<Input>) {
        let mut out = Outbox::default();
        self.mind.step(self.now, inputs, &mut out);
        for command in out.commands {
            match command {
                Command::Send {
                    depot,
                    chunk,
                    fragment,
                    ..
                } => self.sends.push((depot, chunk, fragment)),
                Command::Scatter {
                    depot,
                    chunk,
                    fragment,
                    to,
                    ..
                } => self.orders.push(Order {
                    depot,
                    chunk,
                    fragment,
                    to,
                }),
                _ => {}
            }
        }
    }

    fn stored(&mut self, depot: DepotId, chunk: ChunkIndex, fragment: FragmentIndex) {
        self.now = self.now + Duration::from_millis(20);
        self.give(vec![Input::FragmentStored {
            request: REQUEST,
            depot,
            chunk,
            fragment,
        }]);
    }

    fn chunks_safe(&self) -> u32 {
        self.mind.request(REQUEST).unwrap().chunks_safe
    }

    /// Carries out whatever was ordered, until nothing is.
    fn finish(&mut self) {
        while !self.orders.is_empty() || !self.sends.is_empty() {
            for order in std::mem::take(&mut self.orders) {
                self.stored(order.depot, order.chunk, order.fragment);
                for (to, fragment) in order.to {
                    self.stored(to, order.chunk, fragment);
                }
            }
            for (depot, chunk, fragment) in std::mem::take(&mut self.sends) {
                self.stored(depot, chunk, fragment);
            }
        }
    }
}

#[test]
fn a_chunk_counts_once_all_its_fragments_do() {
    let mut desk = Desk::relays(&["", "", ""]);
    assert!(desk.sends.is_empty(), "{:?}", desk.sends);
    let order = desk.orders.remove(0);
    let all: BTreeSet<FragmentIndex> = order.to.iter().map(|(_, fragment)| *fragment).collect();
    assert_eq!((all.len(), all.contains(&order.fragment)), (2, false));
    desk.stored(order.depot, order.chunk, order.fragment);
    desk.stored(order.to[0].0, order.chunk, order.to[0].1);
    assert_eq!(desk.chunks_safe(), 0, "one is missing");
    desk.stored(order.to[1].0, order.chunk, order.to[1].1);
    assert_eq!(desk.chunks_safe(), 1);
    desk.finish();
    assert_eq!(desk.chunks_safe(), CHUNKS);
}

#[test]
fn a_fragment_that_does_not_come_is_sent_from_the_centre() {
    let mut desk = Desk::relays(&["", "", ""]);
    let order = desk.orders.remove(0);
    let (to, fragment) = order.to[0];
    desk.give(vec![Input::FragmentFailed {
        request: REQUEST,
        depot: to,
        chunk: order.chunk,
        fragment,
        fault: Fault::Unreachable,
    }]);
    assert!(
        desk.sends.contains(&(to, order.chunk, fragment)),
        "{:?}",
        desk.sends
    );
    // Nobody is lost by that.
    let views = desk.mind.depots();
    assert!(views.iter().all(|view| view.state == DepotState::Up));
}

#[test]
fn who_can_not_code_is_left_alone_with_it_and_is_no_worse_a_depot() {
    let mut desk = Desk::relays(&["", "", ""]);
    let refused: BTreeSet<DepotId> = [depot(1), depot(2), depot(3)].into();
    for _ in 0..20 {
        for order in std::mem::take(&mut desk.orders) {
            desk.give(vec![Input::ScatterFailed {
                request: REQUEST,
                depot: order.depot,
                chunk: order.chunk,
                fault: Fault::Other,
            }]);
        }
    }
    assert!(desk.orders.is_empty());
    let sent: BTreeSet<DepotId> = desk.sends.iter().map(|(to, ..)| *to).collect();
    assert_eq!(sent, refused, "each gets its fragments from the centre");
    desk.finish();
    assert_eq!(desk.chunks_safe(), CHUNKS);
}

#[test]
fn depots_that_fail_together_get_no_more_from_a_relay_than_from_the_centre() {
    let mut desk = Desk::relays(&["a", "a", "b", "c", "d"]);
    let mut seen = 0;
    for _ in 0..12 {
        for order in std::mem::take(&mut desk.orders) {
            let at: Vec<DepotId> = order
                .to
                .iter()
                .map(|(to, _)| *to)
                .chain([order.depot])
                .collect();
            assert!(
                !(at.contains(&depot(1)) && at.contains(&depot(2))),
                "{order:?}"
            );
            seen += 1;
            desk.stored(order.depot, order.chunk, order.fragment);
            for (to, fragment) in order.to {
                desk.stored(to, order.chunk, fragment);
            }
        }
    }
    assert!(seen >= 6, "{seen} orders");
}

#[test]
fn of_itself_only_where_the_way_out_binds() {
    let with = |egress: Option<u64>| {
        let settings = Settings {
            encode: Encode::Auto,
            egress: egress.map(|mebi| ByteRate::new(mebi << 20)),
            ..Settings::default()
        };
        let desk = Desk::new(settings, &["", "", "", ""]);
        (desk.orders.len(), desk.sends.len())
    };
    assert_eq!(with(None).0, 0, "nobody knows what it carries");
    assert_eq!(with(Some(1000)).0, 0, "it carries more than depots take");
    let (orders, sends) = with(Some(10));
    assert!(orders > 0 && sends == 0, "{orders} orders, {sends} sends");
}

#[test]
fn when_a_relay_that_codes_is_lost_nothing_waits_for_what_it_was_to_send() {
    let mut desk = Desk::relays(&["", "", "", ""]);
    let lost = desk.orders[0].depot;
    desk.give(vec![Input::DepotDown {
        depot: lost,
        fault: Fault::Unreachable,
    }]);
    desk.orders.retain(|order| order.depot != lost);
    for order in &mut desk.orders {
        order.to.retain(|(to, _)| *to != lost);
    }
    desk.finish();
    assert_eq!(desk.chunks_safe(), CHUNKS);
}
