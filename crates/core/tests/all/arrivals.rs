//! Stage-ins: when they begin, from where they come, and what is said of them.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may stop at once"
)]

use std::{collections::BTreeSet, time::Duration};

use posthaste_core::{Mind, contract::*};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, RequestId, SourceId};

use crate::support::arrivals::*;

#[test]
fn it_begins_at_once_where_nothing_is_in_the_way_and_takes_from_all_sources() {
    let mut desk = Desk::new([10, 5]);
    desk.ask(R1, spec(60, None));
    let from: BTreeSet<SourceId> = desk.asked.iter().map(|(_, source, _)| *source).collect();
    assert_eq!(from, [A, B].into());
    let chunks: BTreeSet<ChunkIndex> = desk.asked.iter().map(|(.., chunk)| *chunk).collect();
    assert_eq!(chunks.len(), desk.asked.len(), "a chunk is asked for once");
    desk.pass(12, [10, 5]);
    assert!(desk.is_settled(R1, true));
    desk.give(vec![Input::Landed { request: R1 }]);
    let view = desk.view(R1);
    assert_eq!((view.state, view.chunks_here), (ArrivalState::Arrived, 100));
    assert!(view.shares[0].arrived > view.shares[1].arrived);
    assert_eq!(desk.said(R1), ["admitted", "fetching", "arrived"]);
    assert_eq!(desk.mind.next_wakeup(), None);
}

#[test]
fn what_is_not_welcome_yet_begins_at_the_latest_start_and_not_before() {
    let mut desk = Desk::new([10, 5]);
    desk.ask(R1, spec(1000, Some(990)));
    let begin_by = desk.view(R1).begin_by.unwrap();
    // 100 MiB at three quarters of 15 MiB/s are 9 s, and the margin is 5 s and an eighth of that.
    assert!((at(980)..at(986)).contains(&begin_by), "{begin_by}");
    assert_eq!(desk.view(R1).state, ArrivalState::Waiting);
    while desk.now < at(2000) && desk.view(R1).state == ArrivalState::Waiting {
        desk.now = desk.mind.next_wakeup().unwrap().max(desk.now);
        desk.give(vec![]);
    }
    // What is known ages, so it begins somewhat earlier than was said at first, never later.
    assert!((at(970)..=begin_by).contains(&desk.now), "{}", desk.now);
    let (_, happening, reason) = desk.happened.last().unwrap();
    assert_eq!(*happening, Happening::Fetching);
    assert!(matches!(reason, Reason::MustBegin { .. }), "{reason}");
    // It is faster than it might have been, so what is left waits until it is welcome.
    desk.pass(4, [10, 5]);
    assert!(desk.view(R1).chunks_here < 60, "{:?}", desk.view(R1));
    while desk.view(R1).state == ArrivalState::Moving && desk.now < at(1000) {
        desk.pass(1, [10, 5]);
    }
    assert!((at(990)..at(999)).contains(&desk.now), "{}", desk.now);
}

#[test]
fn nothing_is_refused_for_want_of_knowledge_and_its_danger_is_said_at_once() {
    let mut desk = Desk::new([10, 5]);
    let unknown = SourceId::new(3);
    desk.give(vec![Input::SourceFound {
        source: unknown,
        name: "unknown".into(),
        rate_max: None,
    }]);
    let wanted = |mebi| ArrivalSpec {
        bytes: Bytes::mebi(mebi),
        sources: vec![unknown],
        ..spec(100, None)
    };
    let goes_out = |request| Input::StageInTold {
        request,
        news: StageInNews::GoesOut { release: false },
    };
    // 4 MiB/s are assumed to be there for sure, 1 GiB/s at most.
    desk.give(vec![goes_out(R1), goes_out(R2)]);
    desk.ask(R1, wanted(2_000));
    assert_eq!(desk.said(R1), ["admitted", "at-risk", "fetching"]);
    assert!(desk.view(R1).at_risk);
    desk.ask(R2, wanted(200_000));
    assert_eq!(desk.said(R2), ["refused"]);
}

#[test]
fn what_can_not_be_in_time_is_refused_with_the_earliest_finish_and_that_is_taken() {
    let mut desk = Desk::new([10, 5]);
    desk.ask(R1, spec(5, None));
    let (_, happening, reason) = desk.happened.pop().unwrap();
    assert_eq!(happening, Happening::Refused);
    let Reason::Infeasible {
        earliest: Some(earliest),
        ..
    } = reason
    else {
        panic!("{reason}");
    };
    let deadline = earliest;
    desk.ask(
        R2,
        ArrivalSpec {
            deadline,
            ..spec(5, None)
        },
    );
    assert_eq!(desk.said(R2)[0], "admitted");
    let mut desk = Desk::new([10, 5]);
    let best_effort = true;
    desk.ask(
        R1,
        ArrivalSpec {
            best_effort,
            ..spec(5, None)
        },
    );
    assert_eq!(desk.said(R1), ["admitted", "at-risk", "fetching"]);
}

#[test]
fn the_more_urgent_goes_first_and_what_was_promised_is_kept() {
    let mut desk = Desk::new([10, 10]);
    desk.ask(R1, spec(100, None));
    desk.pass(1, [10, 10]);
    desk.ask(R2, spec(20, None));
    desk.pass(3, [10, 10]);
    let last: Vec<RequestId> = desk.asked.iter().map(|(request, ..)| *request).collect();
    assert!(last.iter().all(|request| *request == R2), "{last:?}");
    // A third one would break the promise to the second.
    let third = RequestId::new(3);
    desk.ask(third, spec(10, None));
    assert_eq!(desk.said(third), ["refused"]);
}

#[test]
fn a_source_that_fails_is_left_and_the_other_gives_its_chunks() {
    let mut desk = Desk::new([10, 5]);
    desk.ask(R1, spec(100, None));
    desk.pass(2, [10, 5]);
    for _ in 0..3 {
        let gone = desk.asked.iter().find(|(_, source, _)| *source == A);
        let Some((request, source, chunk)) = gone.copied() else {
            break;
        };
        desk.asked
            .retain(|asked| *asked != (request, source, chunk));
        desk.give(vec![Input::ChunkMissed {
            request,
            source,
            chunk,
            fault: Fault::Unreachable,
        }]);
    }
    assert!(desk.said(R1).contains(&"source-left"));
    assert!(desk.asked.iter().all(|(_, source, _)| *source == B));
    desk.pass(30, [0, 5]);
    // After its pause it is tried with one chunk at a time.
    let tried = desk.asked.iter().filter(|(_, source, _)| *source == A);
    assert!(tried.count() <= 1);
    assert!(desk.is_settled(R1, true), "{:?}", desk.view(R1));
}

#[test]
fn a_source_that_stands_still_is_left_and_others_ask_again() {
    let mut desk = Desk::new([10, 10]);
    desk.ask(R1, spec(100, None));
    desk.pass(25, [10, 0]);
    assert!(desk.said(R1).contains(&"source-left"));
    assert!(desk.is_settled(R1, true));
    assert_eq!(desk.view(R1).shares[1].arrived, 0);
}

#[test]
fn a_source_that_gives_a_chunk_wrong_three_times_is_left() {
    let mut desk = Desk::new([10, 5]);
    desk.ask(R1, spec(100, None));
    let first = *desk
        .asked
        .iter()
        .find(|(_, source, _)| *source == A)
        .unwrap();
    let (request, source, chunk) = first;
    let mut times = 0;
    for _ in 0..200 {
        if desk.asked.contains(&first) {
            times += 1;
            desk.asked.retain(|asked| *asked != first);
            desk.give(vec![Input::ChunkMissed {
                request,
                source,
                chunk,
                fault: Fault::Corrupt,
            }]);
        }
        // The other one gives nothing meanwhile.
        desk.pass(1, [10, 0]);
    }
    assert!(times <= 3, "it was asked {times} times");
}

#[test]
fn a_stage_in_with_a_file_that_is_wrong_as_a_whole_three_times_ends() {
    let mut desk = Desk::new([10, 5]);
    desk.ask(R1, spec(1000, None));
    let request = R1;
    for times in 1..=3 {
        desk.pass(400, [10, 5]);
        assert_eq!(desk.view(R1).state, ArrivalState::Landing, "{times}");
        let fault = Fault::Corrupt;
        desk.give(vec![Input::LandingFailed { request, fault }]);
        // Its chunks are fetched again, and come.
        let chunks = Vec::new();
        desk.give(vec![Input::ArrivalSurveyed { request, chunks }]);
    }
    assert_eq!(desk.view(R1).state, ArrivalState::Failed);
    assert!(desk.is_settled(R1, false));
}

#[test]
fn a_changed_source_fails_it_and_what_was_written_goes() {
    let mut desk = Desk::new([10, 5]);
    desk.ask(R1, spec(100, None));
    let (request, source, chunk) = desk.asked.remove(0);
    let fault = Fault::SourceChanged;
    desk.give(vec![Input::ChunkMissed {
        request,
        source,
        chunk,
        fault,
    }]);
    assert_eq!(desk.view(R1).state, ArrivalState::Failed);
    assert!(desk.is_settled(R1, false));
    assert_eq!(*desk.said(R1).last().unwrap(), "failed");
    // A replica that no longer has it is only left.
    desk.ask(R2, spec(100, None));
    let (request, source, chunk) = desk.asked.remove(0);
    let fault = Fault::SourceVanished;
    desk.give(vec![Input::ChunkMissed {
        request,
        source,
        chunk,
        fault,
    }]);
    assert_eq!(desk.view(R2).state, ArrivalState::Moving);
    assert!(desk.view(R2).shares.iter().any(|share| share.is_gone));
}

#[test]
fn after_a_restart_only_what_is_not_here_is_fetched() {
    let mut desk = Desk::new([10, 5]);
    desk.ask(R1, spec(100, None));
    desk.pass(3, [10, 5]);
    let told = desk.view(R1).chunks_here;
    desk.asked.clear();
    desk.commands.clear();
    desk.give(vec![Input::DriverStarted]);
    assert!(desk.asked.is_empty(), "first it is asked what is here");
    assert!(matches!(desk.commands[..], [Command::Survey { .. }]));
    // One more had been noted than was told.
    let chunks: Vec<ChunkIndex> = (0..=told).map(ChunkIndex::new).collect();
    let here: BTreeSet<ChunkIndex> = chunks.iter().copied().collect();
    desk.give(vec![Input::ArrivalSurveyed {
        request: R1,
        chunks,
    }]);
    assert_eq!(desk.view(R1).chunks_here, told + 1);
    assert!(!desk.asked.is_empty());
    assert!(desk.asked.iter().all(|(.., chunk)| !here.contains(chunk)));
}

#[test]
fn danger_is_said_before_the_deadline_and_a_miss_after_it() {
    let mut desk = Desk::new([10, 5]);
    desk.ask(R1, spec(20, None));
    desk.pass(10, [1, 1]);
    assert!(desk.said(R1).contains(&"at-risk"));
    desk.give(vec![Input::DeadlineMoved {
        request: R1,
        deadline: at(500),
    }]);
    desk.pass(5, [1, 1]);
    assert!(desk.said(R1).contains(&"on-time"), "{:?}", desk.said(R1));
    desk.give(vec![Input::DeadlineMoved {
        request: R1,
        deadline: at(18),
    }]);
    assert_eq!(
        desk.said(R1)
            .iter()
            .filter(|said| **said == "at-risk")
            .count(),
        2
    );
    desk.pass(5, [1, 1]);
    assert!(desk.said(R1).contains(&"missed"));
    desk.pass(60, [1, 1]);
    desk.give(vec![Input::Landed { request: R1 }]);
    assert!(desk.view(R1).missed);
}

#[test]
fn what_is_wanted_at_another_moment_waits_until_then_or_begins_at_once() {
    let mut desk = Desk::new([10, 5]);
    desk.ask(R1, spec(1000, Some(1000)));
    let moved = |secs: u64, deadline| Input::ArrivalMoved {
        request: R1,
        not_before: at(secs),
        deadline: at(deadline),
    };
    desk.pass(500, [10, 5]);
    desk.give(vec![moved(3000, 3000)]);
    desk.pass(1000, [10, 5]);
    assert!(desk.asked.is_empty(), "{:?}", desk.asked);
    assert!(!desk.said(R1).contains(&"missed"), "{:?}", desk.said(R1));
    desk.give(vec![moved(1500, 1600)]);
    desk.pass(60, [10, 5]);
    assert_eq!(desk.view(R1).chunks_here, 100);
    desk.give(vec![Input::Landed { request: R1 }, moved(9000, 9000)]);
    assert_eq!(desk.view(R1).spec.deadline, at(1600), "it is over");
}

#[test]
fn cancelling_stops_it_and_removes_what_was_written() {
    let mut desk = Desk::new([10, 5]);
    desk.ask(R1, spec(100, None));
    desk.give(vec![Input::RequestCancelled { request: R1 }]);
    assert!(desk.asked.is_empty() && desk.is_settled(R1, false));
    assert_eq!(desk.view(R1).state, ArrivalState::Cancelled);
    let (request, source, chunk) = (R1, A, ChunkIndex::new(0));
    desk.give(vec![Input::ChunkArrived {
        request,
        source,
        chunk,
    }]);
    assert_eq!(desk.view(R1).chunks_here, 0);
}

#[test]
fn no_more_than_the_most_is_asked_for() {
    let mut desk = Desk::new([10, 10]);
    let rate_max = Some(ByteRate::new(2 << 20));
    desk.ask(
        R1,
        ArrivalSpec {
            rate_max,
            ..spec(200, None)
        },
    );
    let mut asked = desk.asked.len();
    for _ in 0..200 {
        desk.now = desk.now + Duration::from_millis(100);
        let arrived = desk
            .asked
            .drain(..)
            .map(|(request, source, chunk)| Input::ChunkArrived {
                request,
                source,
                chunk,
            });
        let arrived = arrived.collect();
        desk.give(arrived);
        asked += desk.asked.len();
    }
    assert!((38..=41).contains(&asked), "{asked} in 20 s at 2 a second");
}

#[test]
fn the_slow_source_is_spared_the_last_chunk() {
    let mut desk = Desk::new([50, 1]);
    desk.ask(
        R1,
        ArrivalSpec {
            chunk_size: Bytes::mebi(10),
            ..spec(100, None)
        },
    );
    // All ten chunks take the fast one less time than one of them takes the slow one.
    let slow = desk.asked.iter().filter(|(_, source, _)| *source == B);
    assert_eq!(slow.count(), 0);
}

#[test]
fn nothing_at_all_arrives_at_once() {
    let mut desk = Desk::new([1, 1]);
    desk.ask(
        R1,
        ArrivalSpec {
            bytes: Bytes::ZERO,
            files: 1,
            ..spec(100, None)
        },
    );
    assert!(desk.is_settled(R1, true));
}

#[test]
fn a_full_scratch_holds_it_for_a_while_and_ends_it_at_last() {
    let mut desk = Desk::new([10, 5]);
    desk.ask(R1, spec(5000, None));
    while desk.view(R1).state.is_live() && desk.now < at(5000) {
        let missed = desk
            .asked
            .drain(..)
            .map(|(request, source, chunk)| Input::ChunkMissed {
                request,
                source,
                chunk,
                fault: Fault::Full,
            });
        let missed: Vec<Input> = missed.collect();
        desk.give(missed);
        desk.pass(1, [0, 0]);
    }
    assert_eq!(desk.view(R1).state, ArrivalState::Failed);
    assert!(desk.now > at(300) && desk.now < at(2000), "{}", desk.now);
}

/// A stage-out of which all is there.
fn gone_out(release: bool) -> Desk {
    let mut desk = Desk::new([10, 5]);
    let request = R1;
    desk.go_out(release);
    desk.ask(R1, spec(60, None));
    desk.pass(12, [10, 5]);
    assert!(desk.releases() == 0, "all of it has to be there");
    desk.give(vec![Input::Landed { request }]);
    assert!(desk.view(R1).goes_out);
    desk
}

impl Desk {
    /// Returns how often the source was to be removed.
    fn releases(&self) -> usize {
        let commands = self.commands.iter();
        let is_release = |command: &&Command| matches!(command, Command::Release { .. });
        commands.filter(is_release).count()
    }

    fn go_out(&mut self, release: bool) {
        let news = StageInNews::GoesOut { release };
        let request = R1;
        self.give(vec![Input::StageInTold { request, news }]);
    }

    fn keep(&mut self, fault: Fault) {
        let request = R1;
        self.give(vec![Input::SourceKept { request, fault }]);
    }
}

#[test]
fn what_goes_out_is_removed_only_where_that_was_asked_and_once() {
    assert_eq!(gone_out(false).releases(), 0);
    let mut desk = gone_out(true);
    assert_eq!((desk.releases(), desk.view(R1).releases), (1, true));
    desk.pass(90, [0, 0]);
    assert_eq!(desk.releases(), 1, "its answer is waited for");
    let request = R1;
    desk.give(vec![Input::SourceReleased { request }]);
    let view = desk.view(R1);
    assert_eq!((view.state, view.releases), (ArrivalState::Released, false));
    let said = ["admitted", "fetching", "arrived", "released"];
    assert_eq!(desk.said(R1), said);
    let tale = desk.mind.arrival_tale(R1).unwrap();
    let story = posthaste_core::story::tell_arrival(&tale).join(" ");
    assert!(story.contains("all of it was there"), "{story}");
}

#[test]
fn a_removal_that_failed_is_tried_again_unless_that_can_not_help() {
    let mut desk = gone_out(true);
    desk.keep(Fault::Other);
    assert_eq!(desk.releases(), 1);
    assert!(desk.mind.next_wakeup().is_some_and(|at| at > desk.now));
    desk.pass(31, [0, 0]);
    assert_eq!(desk.releases(), 2);
    // Killed before an answer: nobody knows what became of it.
    desk.give(vec![Input::DriverStarted]);
    assert_eq!(desk.releases(), 3);
    desk.keep(Fault::SourceChanged);
    desk.pass(4000, [0, 0]);
    assert_eq!(desk.releases(), 3, "it changed, and stays");
    assert_eq!(desk.view(R1).state, ArrivalState::Arrived);
    assert!(!desk.view(R1).releases);
}

#[test]
fn what_is_known_as_a_stage_in_is_not_turned_around() {
    let mut desk = Desk::new([10, 5]);
    desk.ask(R1, spec(60, None));
    desk.go_out(true);
    assert!(!desk.view(R1).goes_out);
}

#[test]
fn what_goes_out_waits_as_long_as_it_takes_where_it_goes_is_back() {
    let mut desk = Desk::new([10, 5]);
    let request = R1;
    desk.go_out(true);
    desk.ask(R1, spec(60, None));
    let fail = |desk: &mut Desk, fault| {
        for _ in 0..7200 {
            let missed = std::mem::take(&mut desk.asked).into_iter();
            let missed = missed.map(|(request, source, chunk)| Input::ChunkMissed {
                request,
                source,
                chunk,
                fault,
            });
            desk.give(missed.collect());
            desk.pass(1, [0, 0]);
        }
    };
    fail(&mut desk, Fault::Unreachable);
    let view = desk.view(R1);
    assert!(view.state.is_live() && view.missed, "{view:?}");
    let said = desk.said(R1);
    assert!(
        said.contains(&"at-risk") && said.contains(&"missed"),
        "{said:?}"
    );
    desk.pass(400, [10, 5]);
    assert!(
        desk.is_settled(R1, true),
        "{:?} {:?} {:?}",
        desk.view(R1),
        desk.asked,
        desk.now
    );
    for _ in 0..20 {
        let fault = Fault::Unreachable;
        desk.give(vec![Input::LandingFailed { request, fault }]);
        desk.pass(301, [0, 0]);
    }
    assert_eq!(desk.view(R1).state, ArrivalState::Landing);
    let fault = Fault::Corrupt;
    desk.give(vec![Input::LandingFailed { request, fault }]);
    assert_eq!(desk.view(R1).state, ArrivalState::Failed);
    assert_eq!(desk.releases(), 0);
}

#[test]
fn nothing_is_fetched_while_it_waits_and_what_is_here_stays() {
    let mut desk = Desk::new([10, 5]);
    desk.ask(R1, spec(100, None));
    desk.pass(3, [10, 5]);
    let here = desk.view(R1).chunks_here;
    assert!((30..100).contains(&here), "{here}");
    let by = "ada".to_owned();
    let under_way = desk.asked.len();
    desk.give(vec![Input::Paused { request: R1, by }]);
    // What is under way still comes, and nothing more is asked for.
    assert!(under_way > 0);
    desk.pass(30, [10, 5]);
    assert!(desk.asked.is_empty());
    let here = here + u32::try_from(under_way).unwrap();
    assert_eq!(desk.mind.state_of(R1), Some("paused"));
    let view = desk.view(R1);
    assert!(view.finish.is_some() && view.chunks_here == here);
    // Others are fetched meanwhile, and a restart changes nothing.
    desk.ask(R2, spec(60, None));
    assert!(desk.asked.iter().all(|(request, ..)| *request == R2));
    desk.mind = Mind::restore(&desk.mind.snapshot()).unwrap();
    desk.pass(15, [10, 5]);
    let story = desk.mind.story(R1).unwrap().join(" ");
    assert!(story.contains("paused by ada"), "{story}");
    let by = "bob".to_owned();
    desk.give(vec![Input::Resumed { request: R1, by }]);
    desk.pass(10, [10, 5]);
    assert!(desk.is_settled(R1, true), "{:?}", desk.view(R1));
}

#[test]
fn a_destination_that_refuses_is_named_with_what_the_system_said() {
    let mut desk = Desk::new([10, 5]);
    desk.ask(R1, spec(60, None));
    let refuse = |desk: &mut Desk| {
        let said = "can't write /scratch/in/f: Disk quota exceeded".to_owned();
        let news = StageInNews::Refused { said };
        let request = R1;
        for (request, source, chunk) in std::mem::take(&mut desk.asked) {
            let news = news.clone();
            let fault = Fault::Full;
            desk.give(vec![
                Input::StageInTold { request, news },
                Input::ChunkMissed {
                    request,
                    source,
                    chunk,
                    fault,
                },
            ]);
        }
        assert!(desk.view(request).state.is_live());
    };
    for _ in 0..30 {
        refuse(&mut desk);
        desk.pass(1, [0, 0]);
    }
    let story = |desk: &Desk| desk.mind.story(R1).unwrap().join(" ");
    let said = "its destination refuses it: can't write /scratch/in/f: Disk quota exceeded";
    let told = story(&desk);
    // Said once, and once more as why it is at risk.
    assert_eq!(told.matches(said).count(), 2, "{told}");
    assert!(told.contains(&format!("at risk: {said}")), "{told}");
    assert!(
        desk.view(R1).at_risk && !told.contains("was left"),
        "{told}"
    );
    desk.mind = Mind::restore(&desk.mind.snapshot()).unwrap();
    desk.pass(60, [10, 5]);
    assert!(desk.is_settled(R1, true), "{:?}", desk.view(R1));
    let (request, news) = (R1, StageInNews::Unkept { modes: 3, times: 4 });
    let left_out = LeftOut {
        files: 2,
        bytes: Bytes::new(7),
        named: vec!["can't write a:b: Invalid argument".into()],
    };
    let lacks = StageInNews::LeftOut {
        left_out: left_out.clone(),
    };
    desk.give(vec![
        Input::StageInTold { request, news },
        Input::StageInTold {
            request,
            news: lacks,
        },
        Input::Landed { request },
    ]);
    let told = story(&desk);
    let unkept =
        "its destination refuses: the mode of 3 and the modification time of 4 of its files";
    assert!(told.contains(unkept), "{told}");
    for (modes, times, said) in [
        (2, 0, "refuses: the mode of 2 of its"),
        (0, 2, "refuses: the modification time of 2 of its"),
    ] {
        let told = Reason::NotKeptThere { modes, times }.to_string();
        assert!(told.contains(said), "{told}");
    }
    let lacks = "left out: can't write a:b: Invalid argument";
    assert!(told.contains(lacks), "{told}");
    assert_eq!(desk.view(R1).left_out, left_out);
    assert_eq!(desk.view(R1).state, ArrivalState::Arrived);
}
