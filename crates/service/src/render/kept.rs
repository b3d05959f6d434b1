//! Until when depots keep a dataset, and whether it can be had.

use posthaste_api::{DepotState, Release, Request, RequestState};
use posthaste_core::Mind;
use posthaste_journal::RequestRecord;
use posthaste_types::Timestamp;

use super::moment;
use crate::driver::Centre;

/// Fills in what depots keep of a stage-out.
pub(super) fn fill(centre: &Centre, mind: &Mind, record: &RequestRecord, shown: &mut Request) {
    if record.stage_in.is_none() {
        let until = mind.kept_until(record.id).unwrap_or(record.expires);
        let view = mind.request(record.id);
        let is_touched = view.is_some_and(|view| view.has_tried_release);
        tell(shown, until, is_touched, centre.clock.now());
    }
}

/// Returns whether depots keep a stage-out no longer, and no destination has it.
pub(crate) fn is_over(centre: &Centre, mind: &Mind, record: &RequestRecord) -> bool {
    use RequestState::{Moving, Paused, Released, Safe};
    let until = mind.kept_until(record.id).unwrap_or(record.expires);
    record.stage_in.is_none()
        && until <= centre.clock.now()
        && matches!(
            super::state(mind, record),
            Moving | Paused | Safe | Released
        )
}

/// Fills in until when depots keep it, and whether it is out of reach: too few of its holders are
/// there, or it is over. Of a touched source, some may be removed.
fn tell(shown: &mut Request, until: Timestamp, is_touched: bool, now: Timestamp) {
    use RequestState::{Delivered, Moving, Paused, Released, Safe};
    let holders = || shown.shares.iter().filter(|share| share.stored > 0);
    let is_held = holders().next().is_some();
    let is_kept = matches!(shown.state, Moving | Paused | Safe | Released)
        || shown.state == Delivered && is_held;
    if !is_kept {
        return;
    }
    shown.kept_until = Some(moment(until));
    shown.out_of_reach = shown.chunks_out_of_reach > 0;
    let is_promised = matches!(shown.state, Safe | Released);
    if until <= now && shown.state != Delivered {
        tell_over(shown, moment(until), is_touched);
        return;
    }
    let is_down = holders().all(|share| share.state == DepotState::Down);
    let is_done = is_promised || shown.state == Delivered;
    if is_done && is_held && is_down && !shown.out_of_reach {
        let away: Vec<_> = holders().map(|share| share.depot.clone()).collect();
        let away = away.join(", ");
        lose(shown);
        (shown.warnings).push(format!(
            "OUT OF REACH: nobody who holds it is there now ({away})"
        ));
    }
}

/// Says that depots keep it no longer, and where it still is.
fn tell_over(shown: &mut Request, until: String, is_touched: bool) {
    shown.chunks_safe = 0;
    shown.keep_ended = true;
    (shown.safe_after_s, shown.slack_s) = (None, None);
    shown.at_risk = true;
    // What is known of its holders is older.
    shown
        .warnings
        .retain(|one| !one.starts_with("OUT OF REACH"));
    let warning = if shown.state == RequestState::Released {
        lose(shown);
        format!(
            "OUT OF REACH: depots keep it no longer, they did until {until}, and its source was released"
        )
    } else if is_touched {
        shown.out_of_reach = true;
        format!(
            "OUT OF REACH: depots keep it no longer, they did until {until}: only its source has what was not released there"
        )
    } else {
        format!("depots keep it no longer, they did until {until}: only its source has it")
    };
    shown.warnings.push(warning);
}

/// Marks all of it as out of reach.
fn lose(shown: &mut Request) {
    (shown.out_of_reach, shown.at_risk) = (true, true);
    let was_released = shown.release != Release::Never && !shown.source_kept;
    if was_released && shown.state != RequestState::Safe {
        shown.chunks_out_of_reach = shown.chunks;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that can't go on fails")]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    /// Returns a request of four safe chunks whose depots are up or not.
    fn request(state: &str, depots: &[(&str, &str, u32)]) -> Request {
        let share = |&(depot, state, stored): &(&str, &str, u32)| {
            serde_json::json!({
                "depot": depot, "state": state, "active": true, "stored": stored,
                "stored_bytes": stored, "in_flight": 0, "reserved_bytes": 0, "rate_bytes_per_s": 0,
            })
        };
        let shares: Vec<_> = depots.iter().map(share).collect();
        let moment = moment(NOW);
        serde_json::from_value(serde_json::json!({
            "id": "r1", "dataset": "", "source": "/scratch", "to": "home", "state": state,
            "at_risk": false, "missed": false, "encrypt_for": [], "code": "1+0",
            "release": "when-safe", "optimizer": "auto", "submitted": moment, "deadline": moment,
            "slack_s": 1.0, "safe_after_s": 1.0, "bytes": 4, "files": 1, "chunks": 4,
            "chunks_safe": 4, "chunks_repaired": 0, "cost_usd": 0.0, "cost_usd_per_month": 0.0,
            "shares": shares,
        }))
        .unwrap()
    }

    fn told(mut shown: Request, until: Timestamp) -> Request {
        tell(&mut shown, until, false, NOW);
        shown
    }

    #[test]
    fn what_depots_keep_no_longer_is_not_safe() {
        let later = Timestamp::from_secs(1_800_000_001);
        let up = [("ash", "up", 4)];
        let kept = told(request("released", &up), later);
        assert_eq!(kept.kept_until, Some(moment(later)));
        assert!(!kept.out_of_reach && !kept.at_risk && kept.warnings.is_empty());
        let over = told(request("released", &up), NOW);
        assert!(over.out_of_reach && over.at_risk);
        assert_eq!((over.chunks_safe, over.chunks_out_of_reach), (0, 4));
        assert!(over.safe_after_s.is_none() && over.slack_s.is_none());
        assert!(over.warnings[0].starts_with("OUT OF REACH: depots keep it no longer"));
        // The mind forgot it.
        assert!(told(request("released", &[]), NOW).out_of_reach);
        let source = told(request("safe", &up), NOW);
        assert!(!source.out_of_reach && source.at_risk && source.chunks_safe == 0);
        assert!(source.warnings[0].contains("only its source has it"));
        assert!(over.keep_ended && source.keep_ended && !kept.keep_ended);
        let mut partly = request("safe", &up);
        tell(&mut partly, NOW, true, NOW);
        assert!(partly.out_of_reach && partly.keep_ended);
        assert!(partly.warnings[0].contains("only its source has what was not released"));
        let moving = told(request("moving", &up), NOW);
        assert!(moving.keep_ended && moving.at_risk && moving.chunks_safe == 0);
        let there = told(request("delivered", &up), NOW);
        assert!(!there.keep_ended);
        assert!(!there.out_of_reach && there.chunks_safe == 4);
        assert_eq!(told(request("cancelled", &up), NOW).kept_until, None);
        assert_eq!(told(request("delivered", &[]), later).kept_until, None);
    }

    #[test]
    fn what_only_depots_that_are_down_hold_is_out_of_reach() {
        let later = Timestamp::from_secs(1_800_000_001);
        for (state, lost) in [("delivered", 4), ("released", 4), ("safe", 0)] {
            let one = told(
                request(state, &[("ash", "up", 0), ("home", "down", 4)]),
                later,
            );
            assert!(one.out_of_reach && one.at_risk, "{state}");
            assert_eq!(one.chunks_out_of_reach, lost, "{state}");
            assert!(one.warnings[0].contains("there now (home)"), "{state}");
            let two = told(
                request(state, &[("ash", "up", 1), ("home", "down", 4)]),
                later,
            );
            assert!(!two.out_of_reach && !two.at_risk, "{state}");
        }
        let moving = told(request("moving", &[("ash", "down", 4)]), later);
        assert!(!moving.out_of_reach && moving.kept_until.is_some());
    }
}
