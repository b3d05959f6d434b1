//! Service's answer to a stage-out, in rows: when the data would be safe, its cost, and how long
//! scratch is needed. For an infeasible request: offers, each with the command that accepts it.

use posthaste_api as api;

use crate::moment;

/// Returns whether a destination has the only copy: depots evicted theirs, and the source is gone.
pub fn is_only_copy(request: &api::Request) -> bool {
    let holders = request.shares.iter().filter(|share| share.stored > 0);
    let was_released = request.release != api::Release::Never && !request.source_kept;
    request.state == api::RequestState::Delivered && was_released && holders.count() == 1
}

/// Returns the most serious flag of the request's state, if any.
pub fn flag(request: &api::Request) -> Option<&'static str> {
    match (request.missed, request.at_risk) {
        _ if request.out_of_reach => Some("OUT OF REACH"),
        _ if request.keep_ended => Some("KEPT NO LONGER"),
        (true, _) => Some("LATE"),
        (false, true) => Some("AT RISK"),
        (false, false) => request.left_out.is_some().then_some("LEFT OUT"),
    }
}

/// Returns the bytes of a request without those that were left out of it.
pub fn bytes_in(request: &api::Request) -> u64 {
    let left_out = request.left_out.as_ref();
    let left_out = left_out.map_or(0, |left_out| left_out.bytes);
    request.bytes.saturating_sub(left_out)
}

/// Formats that a request is taken, or would be: it has a number only then.
pub fn taken(request: &api::Request, dry_run: bool) -> String {
    match dry_run {
        true => "would be taken".to_owned(),
        false => format!("{} taken", request.id),
    }
}

/// Formats a row of an answer.
pub fn row(name: &str, what: &str) -> String {
    format!("  {name:<8} {what}\n")
}

/// Formats the request's warnings, a row each.
pub fn warnings(request: &api::Request) -> String {
    let rows = request.warnings.iter();
    rows.map(|warning| row("warning", warning)).collect()
}

/// Reports that the request is at risk, with its forecast finish (p90) and its warnings.
pub fn in_danger(request: &api::Request) -> String {
    let finish = request.finish.as_ref().map_or_else(
        || "no finish is in sight".to_owned(),
        |finish| format!("nine times in ten by {}", moment::time_of_day(&finish.p90)),
    );
    format!("{}: AT RISK, {finish}\n{}", request.id, warnings(request))
}

/// Formats when it is forecast to be done.
pub fn finish(request: &api::Request, finish: &api::Finish) -> String {
    let slack = request.slack_s.map_or_else(String::new, |slack| {
        format!(" (slack {})", moment::show_seconds(slack))
    });
    let assumed = match request.assumed {
        true => "; assumed, since nothing measured its paths yet",
        false => "",
    };
    format!(
        "as likely as not by {}, nine times in ten by {}{slack}{assumed}",
        moment::time_of_day(&finish.p50),
        moment::time_of_day(&finish.p90),
    )
}

/// Forecasts when the request is safe, how long scratch is needed and the cost of that.
pub fn forecast(request: &api::Request) -> String {
    let Some(end) = &request.finish else {
        let safe = row("safe", "no finish is in sight");
        let safe = Some(safe).filter(|_| request.at_risk || request.missed);
        return safe.unwrap_or_default() + &delivery(request);
    };
    let mut text = row("safe", &finish(request, end));
    if let Some(exposure) = &request.exposure {
        let needed = |hours: f64, gb_hours: f64| {
            let span = moment::show_seconds(hours * 3600.0);
            format!("{span} ({gb_hours:.3} GB·h)")
        };
        let middle = needed(exposure.hours_p50, exposure.gb_hours_p50);
        let late = needed(exposure.hours_p90, exposure.gb_hours_p90);
        text += &row(
            "scratch",
            &format!("is needed for {middle} as likely as not, {late} nine times in ten"),
        );
    }
    text + &delivery(request) + &cost(request) + &pinned(request) + &kept(request)
}

/// Formats until when depots keep it; empty if they keep nothing.
fn kept(request: &api::Request) -> String {
    let until = request.kept_until.as_deref();
    until.map_or_else(String::new, |until| row("kept", &kept_until(until)))
}

/// Says until when depots keep a dataset.
pub fn kept_until(until: &str) -> String {
    let is_over = moment::seconds_until(until).is_some_and(|left| left < 0.0);
    let keep = if is_over { "kept" } else { "keep" };
    format!("depots {keep} it until {}", moment::time_of_day(until))
}

/// Lists the depots that must hold their share of the request; empty without any.
fn pinned(request: &api::Request) -> String {
    match request.wishes.pin.is_empty() {
        true => String::new(),
        false => row("pinned", &request.wishes.pin.join(", ")),
    }
}

/// Forecasts when every destination has all of it; empty if no destination runs a relay.
fn delivery(request: &api::Request) -> String {
    let Some(delivery) = &request.delivery else {
        return String::new();
    };
    let wanted = delivery
        .deliver_by
        .as_deref()
        .map_or_else(String::new, |by| {
            let slack = delivery.slack_s.map_or_else(String::new, |slack| {
                format!(", slack {}", moment::show_seconds(slack))
            });
            format!(" (wanted by {}{slack})", moment::time_of_day(by))
        });
    let by = request.goes_on_as.as_deref();
    let by = by.map_or_else(String::new, |by| format!("; from the depots, as {by}"));
    let assumed = match delivery.assumed {
        true => "; assumed, since nothing went between depots and destinations yet",
        false => "",
    };
    match &delivery.finish {
        Some(finish) => row(
            "arrives",
            &format!(
                "as likely as not by {}, nine times in ten by {}{wanted}{assumed}{by}",
                moment::time_of_day(&finish.p50),
                moment::time_of_day(&finish.p90),
            ),
        ),
        None if delivery.deliver_by.is_some() && delivery.delivered.is_none() => {
            row("arrives", &format!("no end of it is in sight{wanted}{by}"))
        }
        None => String::new(),
    }
}

/// Returns the cost of reading the sources, if they have prices.
pub fn reading(request: &api::Request) -> String {
    let cost = request.cost_usd;
    let shown = match cost {
        0.01.. => format!("${cost:.2} to read"),
        _ => format!("${cost:.6} to read"),
    };
    let budget = request.wishes.budget_usd;
    let budget = budget.map_or_else(String::new, |budget| {
        format!(", {} at most", exactly(budget))
    });
    match (cost > 0.0, request.wishes.budget_usd) {
        (true, _) => row("costs", &format!("{shown}{budget}")),
        (false, Some(_)) => row(
            "costs",
            &format!("nothing as planned: it is to come from where reading has no price{budget}"),
        ),
        (false, None) => String::new(),
    }
}

/// Formats dollars to the millionth, without trailing zeros beyond cents.
fn exactly(usd: f64) -> String {
    let shown = format!("${usd:.6}");
    let cents = shown.len() - 4;
    let (cents, rest) = shown.split_at(cents);
    format!("{cents}{}", rest.trim_end_matches('0'))
}

/// Returns the cost of the request, if depots have prices.
fn cost(request: &api::Request) -> String {
    let (send, month) = (request.cost_usd, request.cost_usd_per_month);
    let read = request.cost_usd_to_read;
    let reading = match read > 0.0 {
        true => format!(", ${read:.2} to read once"),
        false => String::new(),
    };
    if send > 0.0 || month > 0.0 || read > 0.0 {
        row(
            "costs",
            &format!("${send:.2} to send, ${month:.2} a month to keep{reading}"),
        )
    } else {
        String::new()
    }
}

/// Lists the changes that make the deadline possible, with the command for each; empty without
/// offers.
pub fn offers(request: &api::Request, via: &[String]) -> String {
    if request.offers.is_empty() {
        return String::new();
    }
    let mut text = "it would be possible with\n".to_owned();
    for offer in &request.offers {
        text += &format!("  {}\n", offer.text);
        if let Some(command) = command(offer, via) {
            text += &format!("      {command}\n");
        }
    }
    text
}

/// Returns the command that accepts an offer; `None` if somebody else must act.
fn command(offer: &api::Offer, via: &[String]) -> Option<String> {
    let first = |names: &[String]| names.first().cloned();
    Some(match offer.kind.as_str() {
        "depots" => {
            let all = via.iter().chain(&offer.depots).map(String::as_str);
            format!("the same with --via {}", all.collect::<Vec<_>>().join(","))
        }
        "code" => format!("the same with --code {}", offer.code.as_ref()?),
        "budget" => format!("the same with --budget {}", offer.usd?),
        "limit" => format!("the same with --bwlimit {}", offer.rate_bytes_per_s?),
        "deadline" => format!("the same with --deadline {}", offer.deadline.as_ref()?),
        "delivery" => format!("the same with --deliver-by {}", offer.deadline.as_ref()?),
        "fewer" => format!("the same without {} among --to", first(&offer.depots)?),
        "destination-back" => format!("start {} again, then the same", first(&offer.depots)?),
        "hours" => format!(
            "posthaste depot add {} … with hours that reach further",
            first(&offer.depots)?
        ),
        "slack" => {
            let (request, deadline) = (offer.request.as_ref()?, offer.deadline.as_ref()?);
            format!("posthaste deadline {request} {deadline}")
        }
        "back" => format!("start {} again, then the same", first(&offer.depots)?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(kind: &str) -> api::Offer {
        api::Offer {
            depots: vec!["c".into(), "d".into()],
            code: Some("2+0".into()),
            deadline: Some("2026-11-22T14:10:00.000Z".into()),
            request: Some("r3".into()),
            rate_bytes_per_s: Some(5 << 20),
            usd: Some(2.1),
            ..api::Offer::new(api::OfferKind::named(kind).unwrap(), String::new())
        }
    }

    #[test]
    fn an_offer_comes_with_what_to_type() {
        let via = ["a".to_owned(), "b".to_owned()];
        for (kind, typed) in [
            ("depots", "the same with --via a,b,c,d"),
            ("code", "the same with --code 2+0"),
            ("budget", "the same with --budget 2.1"),
            ("limit", "the same with --bwlimit 5242880"),
            (
                "deadline",
                "the same with --deadline 2026-11-22T14:10:00.000Z",
            ),
            (
                "delivery",
                "the same with --deliver-by 2026-11-22T14:10:00.000Z",
            ),
            ("fewer", "the same without c among --to"),
            ("destination-back", "start c again, then the same"),
            ("slack", "posthaste deadline r3 2026-11-22T14:10:00.000Z"),
            ("back", "start c again, then the same"),
        ] {
            assert_eq!(command(&offer(kind), &via).as_deref(), Some(typed));
        }
        assert_eq!(command(&offer("reservation"), &via), None);
    }

    #[test]
    fn budgets_are_told_as_they_were_typed() {
        for (usd, shown) in [
            (2.0, "$2.00"),
            (0.015, "$0.015"),
            (0.000_001, "$0.000001"),
            (12.5, "$12.50"),
        ] {
            assert_eq!(exactly(usd), shown);
        }
    }

    #[test]
    fn what_was_left_out_is_flagged_and_counts_no_bytes() {
        let mut request = crate::watch::tests::request("released", false);
        request.bytes = 10;
        assert_eq!(flag(&request), None);
        request.left_out = Some(api::LeftOut {
            files: 1,
            bytes: 4,
            named: Vec::new(),
        });
        assert_eq!((flag(&request), bytes_in(&request)), (Some("LEFT OUT"), 6));
    }
}
