//! Inputs of all kinds as they may come, in any order: what the mind is tried with.
#![allow(
    unreachable_pub,
    clippy::wildcard_enum_match_arm,
    reason = "a module of tests is seen by the test it belongs to alone"
)]

use std::time::Duration;

use posthaste_core::contract::*;
use posthaste_plan::tuner::{Method, Setting};
use posthaste_types::{
    ByteRate, Bytes, ChunkIndex, CircuitId, Code, DepotId, FragmentIndex, RequestId, ReservationId,
    SourceId, Timestamp,
};
use proptest::prelude::*;

/// Start of the simulated time.
pub const START: Timestamp = Timestamp::from_secs(1_800_000_000);

fn depot() -> impl Strategy<Value = DepotId> {
    (1u32..6).prop_map(DepotId::new)
}

fn request() -> impl Strategy<Value = RequestId> {
    (1u64..4).prop_map(RequestId::new)
}

fn chunk() -> impl Strategy<Value = ChunkIndex> {
    (0u32..12).prop_map(ChunkIndex::new)
}

fn fragment() -> impl Strategy<Value = FragmentIndex> {
    prop_oneof![
        (0u8..5).prop_map(FragmentIndex::new),
        Just(FragmentIndex::WHOLE)
    ]
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        4 => Just(Fault::Unreachable),
        1 => Just(Fault::Full),
        1 => Just(Fault::Unauthenticated),
        2 => Just(Fault::Corrupt),
        1 => Just(Fault::Busy),
        1 => Just(Fault::SourceVanished),
        1 => Just(Fault::Other),
    ]
}

fn spec() -> impl Strategy<Value = RequestSpec> {
    let code = prop_oneof![Just("1+0"), Just("1+1"), Just("2+1"), Just("3+2")];
    (
        0u64..12_000,
        0u64..2000,
        0u64..400,
        code,
        0usize..6,
        (0u32..3, any::<bool>(), any::<bool>()),
    )
        .prop_map(
            |(bytes, chunk_size, deadline_s, code, via, (direct, release, best_effort))| {
                RequestSpec {
                    bytes: Bytes::new(bytes),
                    files: 1,
                    chunk_size: Bytes::new(chunk_size / 1000 * 1000),
                    deadline: START + Duration::from_secs(deadline_s),
                    code: code.parse().unwrap_or(Code::NONE),
                    via: (1..=via)
                        .map(|n| DepotId::new(u32::try_from(n).unwrap()))
                        .collect(),
                    destinations: (0..direct).map(|n| DepotId::new(5 - n)).collect(),
                    release: if release {
                        ReleasePolicy::WhenSafe
                    } else {
                        ReleasePolicy::Never
                    },
                    best_effort,
                }
            },
        )
}

fn optimizer() -> impl Strategy<Value = Method> {
    let fixed = (1u16..5).prop_map(|at_once| Method::Fixed {
        setting: Setting::new(at_once, 1, 1),
    });
    let named = (0..Method::NAMES.len()).prop_map(|place| Method::NAMES[place].1);
    prop_oneof![1 => fixed, 3 => named]
}

fn wishes() -> impl Strategy<Value = Wishes> {
    let survive = prop_oneof![
        3 => Just(Survive::AsCoded),
        2 => (0u32..5).prop_map(|depots| Survive::Losses { depots }),
        2 => (0u32..1_000_000_000).prop_map(|loss_ppb_max| Survive::Chance { loss_ppb_max }),
    ];
    let names = ("[ab]?", "[xy]?");
    let limits = (
        proptest::option::of(0u64..100),
        proptest::option::of(0u64..5000),
        proptest::option::of(0u64..1000),
        proptest::option::of(0u64..1000),
    );
    let forbidden = proptest::collection::vec(depot(), 0..2);
    (-9i64..=9, names, survive, limits, forbidden, any::<bool>()).prop_map(
        |(level, (owner, project), survive, limits, forbidden, is_lazy)| Wishes {
            priority: Priority::new(level).unwrap_or_default(),
            owner,
            project,
            budget_micro_usd: limits.0,
            survive,
            rate_max: limits.1.map(ByteRate::new),
            forbidden,
            safe_with: is_lazy.then_some(1),
            repair: if is_lazy { Repair::Lazy } else { Repair::Eager },
            keep_until: limits.2.map(|secs| START + Duration::from_secs(secs)),
            deliver_by: limits.3.map(|secs| START + Duration::from_secs(secs)),
            reserve: match level.rem_euclid(3) {
                0 => Reserve::Auto,
                1 => Reserve::Always,
                _ => Reserve::Never,
            },
        },
    )
}

fn facts() -> impl Strategy<Value = (Bytes, Option<ByteRate>)> {
    (0u64..100_000, proptest::option::of(0u64..5000))
        .prop_map(|(space, rate)| (Bytes::new(space), rate.map(ByteRate::new)))
}

/// Some numbers are those of stage-outs too: whoever comes first has them.
fn stage_in() -> impl Strategy<Value = RequestId> {
    (3u64..6).prop_map(RequestId::new)
}

/// Generates sources of stage-ins.
fn source() -> impl Strategy<Value = SourceId> + Clone {
    (1u32..4).prop_map(SourceId::new)
}

fn near() -> impl Strategy<Value = Input> {
    let near = proptest::collection::vec((depot(), source()), 1..3).prop_map(|near| {
        let near = near.into_iter();
        let near = near.map(|(depot, source)| NearDepot { depot, source });
        StageInNews::MayWait {
            near: near.collect(),
        }
    });
    let stored =
        (source(), chunk(), depot()).prop_map(|(source, chunk, depot)| StageInNews::Stored {
            source,
            chunk,
            depot,
        });
    let failed = (source(), chunk(), depot(), fault()).prop_map(|(source, chunk, depot, fault)| {
        StageInNews::Failed {
            source,
            chunk,
            depot,
            fault,
        }
    });
    let out = any::<bool>().prop_map(|release| StageInNews::GoesOut { release });
    let whose =
        ("[ab]?", "[xy]?").prop_map(|(owner, project)| StageInNews::IsFor { owner, project });
    let budget = proptest::option::of(0u64..500_000);
    let prices = (source(), 0u64..1_000_000, 0u64..1_000_000).prop_map(
        |(source, get_micro_usd, egress_micro_usd)| SourcePrice {
            source,
            get_micro_usd,
            egress_micro_usd,
        },
    );
    let costs = (budget, proptest::collection::vec(prices, 0..3))
        .prop_map(|(budget, prices)| StageInNews::Costs { budget, prices });
    let refused = "[ab]?".prop_map(|said| StageInNews::Refused { said });
    let unkept = (0u64..3, 0u64..3).prop_map(|(modes, times)| StageInNews::Unkept { modes, times });
    let left_out = (0u64..3, 0u64..3).prop_map(|(files, bytes)| StageInNews::LeftOut {
        left_out: LeftOut {
            files,
            bytes: Bytes::new(bytes),
            named: (0..files).map(|file| file.to_string()).collect(),
        },
    });
    let news = prop_oneof![
        near, stored, failed, out, whose, costs, refused, unkept, left_out
    ];
    (stage_in(), news).prop_map(|(request, news)| Input::StageInTold { request, news })
}

fn inbound() -> impl Strategy<Value = Input> {
    let times = (0u64..900, proptest::option::of(0u64..900), any::<bool>());
    let sizes = (0u64..3000, 0u64..300, proptest::option::of(0u64..500));
    let spec = (times, sizes, proptest::collection::vec(source(), 0..4)).prop_map(
        |((deadline_s, not_before_s, best_effort), (bytes, chunk, rate), sources)| ArrivalSpec {
            bytes: Bytes::new(bytes),
            files: 1,
            chunk_size: Bytes::new(chunk),
            deadline: START + Duration::from_secs(deadline_s),
            not_before: not_before_s.map(|secs| START + Duration::from_secs(secs)),
            sources,
            priority: Priority::default(),
            rate_max: rate.map(ByteRate::new),
            best_effort,
        },
    );
    let chunks = proptest::collection::vec(chunk(), 0..8);
    let holding = (0u64..1000, proptest::collection::vec(source(), 0..4));
    let holdings = proptest::collection::vec(holding, 0..4);
    prop_oneof![
        6 => (source(), proptest::option::of(0u64..900)).prop_map(|(source, rate)| {
            let (name, rate_max) = (format!("{source}"), rate.map(ByteRate::new));
            Input::SourceFound { source, name, rate_max }
        }),
        6 => (stage_in(), spec.clone())
            .prop_map(|(request, spec)| Input::ArrivalAsked { request, spec }),
        6 => (stage_in(), spec, holdings).prop_map(|(request, spec, sizes)| {
            let holdings = sizes.into_iter().map(|(bytes, sources)| Holding {
                bytes: Bytes::new(bytes),
                sources,
            });
            let holdings: Vec<Holding> = holdings.collect();
            let bytes = holdings.iter().map(|holding| holding.bytes).sum();
            // Some do not add up.
            let spec = ArrivalSpec {
                bytes: if spec.best_effort { spec.bytes } else { bytes },
                ..spec
            };
            Input::ArrivalGathered { request, spec, holdings }
        }),
        3 => (stage_in(), source(), chunk()).prop_map(
            |(request, source, chunk)| Input::ChunkArrived { request, source, chunk }
        ),
        3 => (stage_in(), source(), chunk(), fault()).prop_map(
            |(request, source, chunk, fault)| Input::ChunkMissed { request, source, chunk, fault }
        ),
        4 => near(),
        1 => stage_in().prop_map(|request| Input::SourceReleased { request }),
        1 => (stage_in(), fault())
            .prop_map(|(request, fault)| Input::SourceKept { request, fault }),
        3 => (source(), 0u64..9000, 0u64..3000, any::<bool>()).prop_map(
            |(source, bytes, window_ms, saturated)| Input::Inbound {
                source,
                bytes: Bytes::new(bytes),
                window: Duration::from_millis(window_ms),
                saturated,
            }
        ),
        2 => (stage_in(), chunks)
            .prop_map(|(request, chunks)| Input::ArrivalSurveyed { request, chunks }),
        1 => stage_in().prop_map(|request| Input::Landed { request }),
        1 => (stage_in(), fault())
            .prop_map(|(request, fault)| Input::LandingFailed { request, fault }),
    ]
}

/// Generates results of senders of fragments.
fn givers() -> impl Strategy<Value = Vec<GiverEnd>> {
    let giver = (depot(), proptest::option::of(fault()), 0u64..3000);
    let giver = giver.prop_map(|(depot, fault, span_ms)| GiverEnd {
        depot,
        fault,
        span: Duration::from_millis(span_ms),
    });
    proptest::collection::vec(giver, 0..4)
}

/// Generates inputs about circuits and their reservations.
fn circuits() -> impl Strategy<Value = Input> {
    let circuit = || (1u32..4).prop_map(CircuitId::new);
    let news = prop_oneof![
        4 => Just(News::Granted),
        4 => Just(News::Up),
        2 => Just(News::Down),
        1 => proptest::option::of(0u64..2_000_000)
            .prop_map(|fits| News::Refused { fits: fits.map(ByteRate::new) }),
        2 => Just(News::Changed),
        1 => Just(News::Unchanged),
        1 => Just(News::Over),
        1 => Just(News::Failed),
        1 => prop_oneof![
            Just(Obstacle::NotKnown),
            Just(Obstacle::NotUnderstood),
            Just(Obstacle::NotOpen),
        ]
        .prop_map(|why| News::Unobtainable { why }),
    ];
    let terms = (
        proptest::collection::vec(depot(), 0..4),
        0u64..2_000_000,
        (0u64..200, 0u64..200, 0u64..5_000_000),
    );
    let terms = terms.prop_map(
        |(depots, rate, (lead_s, least_s, hour_micro_usd))| CircuitTerms {
            name: "lambda".into(),
            depots,
            rate_max: ByteRate::new(rate),
            lead: Duration::from_secs(lead_s),
            least: Duration::from_secs(least_s),
            hour_micro_usd,
            ways: vec!["border".into()],
        },
    );
    prop_oneof![
        3 => (circuit(), terms)
            .prop_map(|(circuit, terms)| Input::CircuitOffered { circuit, terms }),
        1 => circuit().prop_map(|circuit| Input::CircuitWithdrawn { circuit }),
        6 => (1u64..6, news).prop_map(|(number, news)| {
            let reservation = ReservationId::new(number);
            Input::ReservationTold { reservation, news }
        }),
    ]
}

fn space_news() -> impl Strategy<Value = SpaceNews> {
    let bytes = || (0u64..2000).prop_map(Bytes::mebi);
    prop_oneof![
        4 => (bytes(), 0u64..10_000).prop_map(|(bytes, secs)| {
            let until = START + Duration::from_secs(secs);
            SpaceNews::Granted { bytes, until }
        }),
        2 => bytes().prop_map(|most| SpaceNews::Refused { most }),
        1 => Just(SpaceNews::Released),
        1 => Just(SpaceNews::Failed),
    ]
}

/// Generates inputs about ways to depots.
fn way() -> impl Strategy<Value = Input> {
    let names = proptest::collection::vec(0usize..4, 0..4);
    prop_oneof![
        1 => (depot(), names).prop_map(|(depot, names)| {
            let ways = names.into_iter().map(|name| format!("way {name}")).collect();
            Input::WaysFound { depot, ways }
        }),
        2 => (depot(), 0u8..5).prop_map(|(depot, way)| Input::WayTold { depot, way }),
    ]
}

/// Generates inputs about the centre.
fn encode() -> impl Strategy<Value = Input> {
    let places = [Encode::Centre, Encode::Relays, Encode::Auto];
    prop_oneof![
        3 => (0usize..3).prop_map(move |place| Input::EncodeChosen { encode: places[place] }),
        1 => proptest::option::of(1u64..9000)
            .prop_map(|rate| Input::EgressTold { rate: rate.map(ByteRate::new) }),
    ]
}

/// Generates inputs about data that depots forward among themselves.
fn among_depots() -> impl Strategy<Value = Input> {
    prop_oneof![
        3 => (request(), depot(), chunk(), givers()).prop_map(|(request, depot, chunk, givers)| {
            Input::GatherTold { request, depot, chunk, givers }
        }),
        2 => (request(), depot(), chunk(), fault()).prop_map(|(request, depot, chunk, fault)| {
            Input::ScatterFailed { request, depot, chunk, fault }
        }),
        2 => (request(), depot(), chunk(), 0u64..3000).prop_map(|(request, depot, chunk, span_ms)| {
            Input::PieceTold { request, depot, chunk, span: Duration::from_millis(span_ms) }
        }),
    ]
}

/// Generates inputs about depots.
fn about_depots() -> impl Strategy<Value = Input> {
    let held = proptest::collection::vec((chunk(), fragment()), 0..8);
    prop_oneof![
        7 => among_depots(),
        2 => encode(),
        2 => way(),
        6 => circuits(),
        3 => (depot(), facts()).prop_map(|(depot, (capacity, rate_max))| {
            Input::DepotAdded { depot, name: format!("{depot}"), capacity, rate_max }
        }),
        1 => depot().prop_map(|depot| Input::DepotRemoved { depot }),
        1 => (depot(), "[ab]?").prop_map(|(depot, owner)| Input::DepotOwned { depot, owner }),
        4 => (depot(), 0u8..4).prop_map(|(depot, level)| Input::DepotLevelled { depot, level }),
        3 => (depot(), any::<bool>())
            .prop_map(|(depot, follows)| Input::DepotFollows { depot, follows }),
        3 => (depot(), any::<bool>())
            .prop_map(|(depot, stores)| Input::DepotStores { depot, stores }),
        3 => (depot(), any::<bool>())
            .prop_map(|(depot, reserves)| Input::DepotReserves { depot, reserves }),
        6 => (request(), depot(), space_news())
            .prop_map(|(request, depot, news)| Input::SpaceTold { request, depot, news }),
        3 => (request(), depot(), any::<bool>())
            .prop_map(|(request, depot, done)| Input::Forgotten { request, depot, done }),
        2 => (depot(), 0usize..4, any::<bool>()).prop_map(|(depot, place, is_own)| {
            let drain = [Drain::Off, Drain::Off, Drain::Keep, Drain::Move][place];
            Input::DepotDrained { depot, drain, is_own }
        }),
        6 => (depot(), facts())
            .prop_map(|(depot, (free, rate_max))| Input::DepotUp { depot, free, rate_max }),
        3 => (depot(), fault()).prop_map(|(depot, fault)| Input::DepotDown { depot, fault }),
        3 => (depot(), request(), held)
            .prop_map(|(depot, request, held)| Input::DepotInventory { depot, request, held }),
        3 => (depot(), 0u64..9000, 0u64..3000, any::<bool>()).prop_map(
            |(depot, bytes, window_ms, saturated)| Input::Throughput {
                depot,
                bytes: Bytes::new(bytes),
                window: Duration::from_millis(window_ms),
                saturated,
            }
        ),
        3 => (depot(), 0u64..200, 0u64..200, 0u64..3000, any::<bool>()).prop_map(
            |(depot, sent, bytes, window_ms, is_bound)| Input::Probed {
                depot,
                sent: Bytes::new(sent),
                bytes: Bytes::new(bytes),
                window: Duration::from_millis(window_ms),
                is_bound,
            }
        ),
        1 => depot().prop_map(|depot| Input::ProbeAsked { depot }),
        2 => (depot(), depot(), 0u64..200, 0u64..3000, any::<bool>()).prop_map(
            |(from, to, bytes, window_ms, is_bound)| Input::CrossingProbed {
                from,
                to,
                sent: Bytes::new(bytes),
                bytes: Bytes::new(bytes / 2),
                window: Duration::from_millis(window_ms),
                is_bound,
                round_trip: (!is_bound).then_some(Duration::from_millis(window_ms)),
            }
        ),
        1 => (depot(), depot())
            .prop_map(|(from, to)| Input::CrossingProbeAsked { from, to }),
        1 => (depot(), 0u64..300).prop_map(|(depot, millis)| {
            let round_trip = Duration::from_millis(millis);
            Input::DistanceTold { depot, round_trip }
        }),
    ]
}

/// Generates user requests about stage-outs.
fn asked() -> impl Strategy<Value = Input> {
    prop_oneof![
        5 => (request(), spec())
            .prop_map(|(request, spec)| Input::RequestSubmitted { request, spec }),
        2 => (request(), spec(), optimizer()).prop_map(|(request, spec, optimizer)| {
            Input::RequestSubmittedWith { request, spec, optimizer }
        }),
        5 => (request(), spec(), optimizer(), wishes()).prop_map(
            |(request, spec, optimizer, wishes)| {
                Input::RequestAsked { request, spec, optimizer, wishes }
            }
        ),
        3 => (request(), spec(), wishes(), proptest::collection::vec(depot(), 1..3)).prop_map(
            |(request, spec, wishes, pinned)| Input::RequestPinned {
                request,
                spec,
                optimizer: Method::Auto,
                wishes,
                purge_at: None,
                pinned,
            }
        ),
        2 => (request(), spec(), wishes(), 0u64..400).prop_map(
            |(request, spec, wishes, purge_s)| Input::RequestAskedBy {
                request,
                spec,
                optimizer: Method::Auto,
                wishes,
                purge_at: START + Duration::from_secs(purge_s),
            }
        ),
        1 => (request(), proptest::option::of(0u64..900)).prop_map(|(request, purge_s)| {
            Input::PurgeMoved {
                request,
                purge_at: purge_s.map(|secs| START + Duration::from_secs(secs)),
            }
        }),
        1 => (request(), proptest::option::of(0u64..900)).prop_map(|(request, by_s)| {
            Input::DeliveryMoved {
                request,
                deliver_by: by_s.map(|secs| START + Duration::from_secs(secs)),
            }
        }),
        1 => request().prop_map(|request| Input::RequestCancelled { request }),
        1 => (request(), 0u64..900).prop_map(|(request, deadline_s)| Input::DeadlineMoved {
            request,
            deadline: START + Duration::from_secs(deadline_s),
        }),
        1 => (request(), 0u64..900, 0u64..900).prop_map(|(request, not_before_s, deadline_s)| {
            Input::ArrivalMoved {
                request,
                not_before: START + Duration::from_secs(not_before_s),
                deadline: START + Duration::from_secs(deadline_s),
            }
        }),
        1 => (request(), proptest::option::of(0u64..5000)).prop_map(|(request, rate)| {
            Input::RateLimited { request, rate_max: rate.map(ByteRate::new) }
        }),
        1 => (request(), -9i64..=9).prop_map(|(request, level)| {
            Input::PriorityMoved { request, priority: Priority::new(level).unwrap_or_default() }
        }),
        2 => request().prop_map(|request| Input::Paused { request, by: "ada".into() }),
        2 => request().prop_map(|request| Input::Resumed { request, by: "bob".into() }),
    ]
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        1 => Just(Input::DriverStarted),
        27 => about_depots(),
        18 => asked(),
        9 => (request(), depot(), chunk(), fragment()).prop_map(
            |(request, depot, chunk, fragment)| {
                Input::FragmentStored { request, depot, chunk, fragment }
            }
        ),
        5 => (request(), depot(), chunk(), fragment(), fault()).prop_map(
            |(request, depot, chunk, fragment, fault)| {
                Input::FragmentFailed { request, depot, chunk, fragment, fault }
            }
        ),
        1 => (request(), depot(), chunk(), fragment()).prop_map(
            |(request, depot, chunk, fragment)| {
                Input::Recalled { request, depot, chunk, fragment }
            }
        ),
        1 => (0u64..4, any::<bool>()).prop_map(|(number, is_found)| Input::PlanSolved {
            number,
            schedule: is_found.then(Default::default),
        }),
        12 => inbound(),
        2 => source_of_files(),
        2 => request().prop_map(|request| Input::SourceReleased { request }),
        1 => (request(), fault()).prop_map(|(request, fault)| Input::SourceKept { request, fault }),
        1 => request().prop_map(|request| Input::SourceFileKept {
            request,
            what: "a file".into(),
        }),
        1 => request().prop_map(|request| Input::Delivered { request }),
        1 => request().prop_map(|request| Input::ForgetAsked { request }),
    ]
}

/// Files of a source that are at fault, and chunks that are others since.
fn source_of_files() -> impl Strategy<Value = Input> {
    let at_fault = (request(), 0u64..4, chunk(), 0u32..4, fault(), any::<bool>());
    prop_oneof![
        at_fault.prop_map(
            |(request, file, first, more, fault, is_restored)| Input::FileAtFault {
                request,
                file: FileAtFault {
                    omission: Omission {
                        file,
                        bytes: Bytes::new(1),
                        fault,
                        what: "file".into()
                    },
                    first,
                    last: ChunkIndex::new(first.get() + more),
                    is_restored: is_restored && file == 0,
                },
            }
        ),
        (request(), chunk()).prop_map(|(request, chunk)| Input::ChunkRenewed { request, chunk }),
    ]
}

/// A moment later, with or without something new; `answer` has the oldest open send stored.
#[derive(Debug, Clone)]
pub struct Move {
    pub after_ms: u64,
    pub inputs: Vec<Input>,
    pub answer: bool,
}

pub fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = (
        0u64..4000,
        proptest::collection::vec(input(), 0..3),
        any::<bool>(),
    )
        .prop_map(|(after_ms, inputs, answer)| Move {
            after_ms,
            inputs,
            answer,
        });
    proptest::collection::vec(one, 1..120).prop_map(|mut moves| {
        // Most runs should come far, so all depots are there at first.
        moves[0]
            .inputs
            .splice(0..0, (1..6).map(DepotId::new).flat_map(arrive));
        moves
    })
}

fn arrive(depot: DepotId) -> [Input; 2] {
    let (space, rate_max) = (Bytes::new(100_000), Some(ByteRate::new(5000)));
    [
        Input::DepotAdded {
            depot,
            name: format!("{depot}"),
            capacity: space,
            rate_max,
        },
        Input::DepotUp {
            depot,
            free: space,
            rate_max,
        },
    ]
}
