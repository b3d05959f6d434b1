//! Whatever happens in whatever order, the mind does not panic, keeps to its promises, and goes on
//! from its snapshot as if nothing had been.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may stop at once"
)]

use std::{collections::BTreeSet, time::Duration};

use crate::support::inputs::{Move, START, moves};
use posthaste_core::{Mind, Settings, contract::*};
use posthaste_types::{
    ByteRate, Bytes, ChunkIndex, Code, DepotId, FragmentIndex, RequestId, Timestamp,
};
use proptest::prelude::*;

/// Returns the moves without wishes beyond a deadline, as present inputs or as those of journals
/// from before wishes.
fn wishing_nothing(moves: &[Move], is_old: bool) -> Vec<Move> {
    let plain = |input: &Input| match input.clone() {
        Input::RequestAsked {
            request,
            spec,
            optimizer,
            ..
        } if is_old => Input::RequestSubmittedWith {
            request,
            spec,
            optimizer,
        },
        Input::RequestAsked {
            request,
            spec,
            optimizer,
            ..
        } => Input::RequestAsked {
            request,
            spec,
            optimizer,
            wishes: Wishes::default(),
        },
        other => other,
    };
    let plain = |step: &Move| Move {
        inputs: step.inputs.iter().map(plain).collect(),
        ..*step
    };
    moves.iter().map(plain).collect()
}

/// Returns the fragments that a coding depot keeps and sends on.
fn coded(command: &Command) -> Vec<(RequestId, DepotId, ChunkIndex, FragmentIndex)> {
    match command {
        Command::Scatter {
            request,
            depot,
            chunk,
            fragment,
            to,
            ..
        } => {
            let own = [(*request, *depot, *chunk, *fragment)].into_iter();
            own.chain(to.iter().map(|(to, piece)| (*request, *to, *chunk, *piece)))
                .collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the fragment that one depot sends to another.
fn given(command: &Command) -> Option<(RequestId, DepotId, ChunkIndex, FragmentIndex)> {
    match command {
        Command::Forward {
            request,
            to,
            chunk,
            fragment,
            ..
        }
        | Command::Follow {
            request,
            to,
            chunk,
            fragment,
            ..
        }
        | Command::Mend {
            request,
            to,
            chunk,
            fragment,
            ..
        } => Some((*request, *to, *chunk, *fragment)),
        Command::Gather {
            request, to, chunk, ..
        } => Some((*request, *to, *chunk, FragmentIndex::WHOLE)),
        _ => None,
    }
}

/// The answer to a chunk that is to go near the centre.
fn prestage(command: &Command) -> Option<Input> {
    let Command::Prestage {
        request,
        source,
        chunk,
        depot,
        ..
    } = *command
    else {
        return None;
    };
    let news = StageInNews::Stored {
        source,
        chunk,
        depot,
    };
    Some(Input::StageInTold { request, news })
}

/// Plays the moves; `cut` is where the mind is written and read back.
fn play(moves: &[Move], cut: Option<usize>) -> (Vec<Outbox>, Mind) {
    // The requests are small, and probes shall be seen.
    let mut mind = Mind::new(Settings {
        probe_bytes_min: Bytes::new(1),
        probe_lead: Duration::ZERO,
        ..Settings::default()
    });
    let (mut now, mut open, mut outs) = (START, Vec::new(), Vec::new());
    let mut fetches = Vec::new();
    let mut prestaged = Vec::new();
    for (place, step) in moves.iter().enumerate() {
        if cut == Some(place) {
            mind = Mind::restore(&mind.snapshot()).unwrap();
        }
        now = now + Duration::from_millis(step.after_ms);
        let mut inputs = step.inputs.clone();
        if step.answer && !prestaged.is_empty() {
            inputs.push(prestaged.remove(0));
        }
        if step.answer && !fetches.is_empty() {
            let (request, source, chunk) = fetches.remove(0);
            inputs.push(Input::ChunkArrived {
                request,
                source,
                chunk,
            });
        }
        if step.answer && !open.is_empty() {
            let (request, depot, chunk, fragment) = open.remove(0);
            inputs.push(Input::FragmentStored {
                request,
                depot,
                chunk,
                fragment,
            });
        }
        let mut out = Outbox::default();
        mind.step(now, inputs, &mut out);
        for command in &out.commands {
            if let Command::Send {
                request,
                depot,
                chunk,
                fragment,
                ..
            } = command
            {
                open.push((*request, *depot, *chunk, *fragment));
            }
            if let Command::Fetch {
                request,
                source,
                chunk,
                ..
            } = command
            {
                fetches.push((*request, *source, *chunk));
            }
            prestaged.extend(prestage(command));
            open.extend(given(command));
            open.extend(coded(command));
        }
        outs.push(out);
    }
    (outs, mind)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_restored_mind_goes_on_exactly_as_the_one_that_wrote(moves in moves(), cut in 0usize..120) {
        let (straight, mind) = play(&moves, None);
        let (cut, restored) = play(&moves, Some(cut % moves.len()));
        prop_assert_eq!(straight, cut);
        prop_assert_eq!(mind, restored);
    }

    #[test]
    fn a_journal_from_before_wishes_is_one_of_users_who_wished_nothing(moves in moves()) {
        let old = play(&wishing_nothing(&moves, true), None);
        prop_assert_eq!(old, play(&wishing_nothing(&moves, false), None));
    }

    #[test]
    fn nobody_is_sent_two_fragments_of_a_chunk_or_released_twice(moves in moves()) {
        let (outs, mind) = play(&moves, None);
        for out in &outs {
            let mut sent = BTreeSet::new();
            for (request, depot, chunk, _) in out.commands.iter().flat_map(coded) {
                prop_assert!(sent.insert((request, depot, chunk)), "{chunk} twice to {depot}");
            }
            for command in &out.commands {
                let (Command::Send { request, depot, chunk, .. }
                | Command::Forward { request, to: depot, chunk, .. }
                | Command::Follow { request, to: depot, chunk, .. }
                | Command::Gather { request, to: depot, chunk, .. }
                | Command::Mend { request, to: depot, chunk, .. }) = command
                else {
                    continue;
                };
                prop_assert!(sent.insert((*request, *depot, *chunk)), "{command:?} twice");
            }
        }
        for view in mind.stage_ins() {
            prop_assert!(view.bytes_here <= view.spec.bytes, "{view:?}");
            prop_assert!(mind.story(view.request).is_some());
        }
        let holds = |view: &RequestView| view.shares.iter().any(|share| share.stored > 0);
        let held = mind.requests().filter(holds).map(|view| view.request);
        let mut held: Vec<RequestId> = held.collect();
        held.reverse();
        prop_assert_eq!(&held, &mind.held_before(None).collect::<Vec<_>>());
        if let Some((newest, rest)) = held.split_first() {
            let before: Vec<_> = mind.held_before(Some(*newest)).collect();
            prop_assert_eq!(rest, &before[..]);
        }
        for view in mind.requests() {
            let safe = view.chunks_safe <= view.spec.chunks();
            prop_assert!(safe, "{view:?}");
            prop_assert!(mind.explain(view.request).is_some());
        }
        // The next thing to do never lies in the past, or a driver would spin.
        let mut mind = mind;
        let far = START + Duration::from_secs(100_000);
        for _ in 0..3 {
            mind.step(far, Vec::new(), &mut Outbox::default());
        }
        prop_assert!(mind.next_wakeup().is_none_or(|wakeup| wakeup > far));
    }

    #[test]
    fn one_probe_runs_at_a_time_whatever_happens(moves in moves()) {
        let (outs, _) = play(&moves, None);
        let mut now = START;
        let mut running: Option<((Option<DepotId>, DepotId), Timestamp)> = None;
        for (step, out) in moves.iter().zip(&outs) {
            now = now + Duration::from_millis(step.after_ms);
            // One that is given up by now is ended by nothing that comes.
            let wait = Settings::default().probe_wait;
            running = running.filter(|(_, since)| *since + wait > now);
            // What was begun in a step may end in it, and the next begin.
            let ends = |input: &&Input| {
                matches!(
                    input,
                    Input::DriverStarted | Input::Probed { .. } | Input::CrossingProbed { .. }
                )
            };
            let mut endings = step.inputs.iter().filter(ends).count();
            for input in &step.inputs {
                let is_over = match input {
                    Input::DriverStarted => true,
                    Input::Probed { depot, .. } => {
                        running.is_some_and(|(path, _)| path == (None, *depot))
                    }
                    Input::CrossingProbed { from, to, .. } => {
                        running.is_some_and(|(path, _)| path == (Some(*from), *to))
                    }
                    _ => false,
                };
                endings -= usize::from(is_over && running.is_some());
                running = running.filter(|_| !is_over);
            }
            for command in &out.commands {
                let path = match command {
                    Command::Probe { depot, .. } => Some((None, *depot)),
                    Command::ProbeCrossing { from, to, .. } => Some((Some(*from), *to)),
                    _ => None,
                };
                if let Some(path) = path {
                    let is_free = running.is_none();
                    prop_assert!(is_free || endings > 0, "{command:?} beside {running:?}");
                    endings -= usize::from(!is_free);
                    running = Some((path, now));
                }
            }
            // An ending may have come after the probe that it ended.
            running = running.filter(|_| endings == 0);
        }
    }

    #[test]
    fn bytes_that_are_no_snapshot_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut mind = Mind::new(Settings::default()).snapshot();
        prop_assert!(Mind::restore(&mind).is_ok() && !Mind::is_outdated(&mind));
        let mut older = mind.clone();
        older[0] -= 1;
        prop_assert!(Mind::restore(&older).is_err() && Mind::is_outdated(&older));
        mind.truncate(mind.len() - 1);
        prop_assert!(Mind::restore(&mind).is_err());
        // Whatever the bytes, reading them ends.
        let _ = Mind::restore(&bytes);
    }

    #[test]
    fn an_offer_that_is_taken_is_accepted(
        rates in proptest::collection::vec(1u64..50, 3..6),
        mebi in 1u64..2000,
        deadline_s in 1u64..60,
    ) {
        let ask = |code: Code, deadline: Timestamp| {
            let mut mind = Mind::new(Settings::default());
            let mut out = Outbox::default();
            let mut inputs = Vec::new();
            for (number, rate) in (1u32..).zip(&rates) {
                let (depot, rate_max) = (DepotId::new(number), Some(ByteRate::new(rate << 20)));
                let (name, capacity) = (format!("{depot}"), Bytes::mebi(1 << 20));
                inputs.push(Input::DepotAdded { depot, name, capacity, rate_max });
                inputs.push(Input::DepotUp { depot, free: capacity, rate_max });
            }
            let spec = RequestSpec {
                bytes: Bytes::mebi(mebi),
                files: 1,
                chunk_size: Bytes::mebi(4),
                deadline,
                code,
                via: (1..).map(DepotId::new).take(rates.len()).collect(),
                destinations: Vec::new(),
                release: ReleasePolicy::Never,
                best_effort: false,
            };
            inputs.push(Input::RequestSubmitted { request: RequestId::new(1), spec });
            mind.step(START, inputs, &mut out);
            let refused = out.events.iter().find_map(|event| match &event.reason {
                Reason::Infeasible { would_buy, .. } => Some(would_buy.clone()),
                _ => None,
            });
            (mind.request(RequestId::new(1)).unwrap().state, refused)
        };
        let code: Code = "2+1".parse().unwrap();
        let deadline = START + Duration::from_secs(deadline_s);
        let (state, offers) = ask(code, deadline);
        prop_assert_eq!(state == RequestState::Refused, offers.is_some());
        for offer in offers.into_iter().flatten() {
            let taken = match offer {
                WouldBuy::Later { deadline } => ask(code, deadline).0,
                WouldBuy::LighterCode { code } => ask(code, deadline).0,
                WouldBuy::MoreRate { .. } | WouldBuy::MoreSpace { .. }
                | WouldBuy::MoreDepots { .. } | WouldBuy::NamedDepots { .. }
                | WouldBuy::DepotBack { .. } | WouldBuy::SourceBack { .. } | WouldBuy::HigherLimit { .. } | WouldBuy::Budget { .. } | WouldBuy::DepotHours { .. }
                | WouldBuy::DeliveredLater { .. } | WouldBuy::DestinationBack { .. }
                | WouldBuy::WithoutDestination { .. }
                | WouldBuy::Circuit { .. }
                | WouldBuy::OthersSlack { .. } | WouldBuy::Reservation { .. } => continue,
            };
            prop_assert_eq!(taken, RequestState::Moving, "{:?}", offer);
        }
    }
}
