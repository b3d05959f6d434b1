//! Checks for scenarios that are well-formed but inconsistent.

use std::collections::BTreeSet;

use posthaste_core::contract::{DepotTerms, Encode, Method};
use posthaste_types::Code;

use super::{
    Amount, BackgroundPlan, DepotPlan, FaultKind, FaultPlan, Price, RequestPlan, Scenario, Trace,
    Varies, pairs,
};

/// Names that a scenario defines.
struct Names<'a> {
    depots: BTreeSet<&'a str>,
    links: BTreeSet<&'a str>,
    domains: BTreeSet<&'a str>,
}

impl Names<'_> {
    fn depot(&self, name: &str) -> Result<(), String> {
        if self.depots.contains(name) {
            Ok(())
        } else {
            Err(format!("no depot is called `{name}`"))
        }
    }

    fn domain(&self, name: &str) -> Result<(), String> {
        if self.domains.contains(name) {
            Ok(())
        } else {
            Err(format!("no domain is called `{name}`"))
        }
    }
}

/// Returns the first inconsistency of a scenario as an error.
pub(super) fn check(scenario: &Scenario) -> Result<(), String> {
    let names = names(scenario)?;
    if scenario.probe_every_s == 0 || scenario.snapshot_every == 0 {
        return Err("probe_every_s and snapshot_every must be 1 or more".into());
    }
    if let Some(encode) = &scenario.encode {
        let parsed = encode.parse::<Encode>();
        parsed.map_err(|error| format!("encode `{encode}`: {error}"))?;
    }
    for depot in &scenario.depots {
        check_depot(depot, &names).map_err(|error| format!("depot `{}`: {error}", depot.name))?;
    }
    for circuit in &scenario.circuits {
        let checked = circuit.check(|name| names.depots.contains(name));
        checked.map_err(|error| format!("circuit `{}`: {error}", circuit.name))?;
    }
    super::gateway::check(scenario)?;
    for request in &scenario.requests {
        check_request(request, &names, scenario)?;
    }
    for fault in &scenario.faults {
        check_fault(fault, &names)?;
    }
    for link in &scenario.links {
        link.depots.iter().try_for_each(|name| names.depot(name))?;
        check_time("jitter_every_s", link.jitter_every_s)?;
    }
    for domain in &scenario.domains {
        check_fails(domain.mtbf_s, domain.mttr_s, domain.wiped_permille)
            .map_err(|error| format!("domain `{}`: {error}", domain.name))?;
    }
    for background in &scenario.background {
        check_background(background, &names)?;
    }
    check_paths(scenario, &names)?;
    super::inbound::check(scenario)?;
    super::lent::check(scenario)?;
    scenario.varying().try_for_each(check_varies)?;
    let mut prices = scenario.depots.iter().flat_map(|depot| {
        let said = [
            depot.usd_per_gb,
            depot.usd_per_gb_month,
            depot.usd_per_1000_puts,
            depot.usd_per_1000_gets,
            depot.usd_per_gb_out,
        ];
        said.into_iter()
            .chain(depot.usd_per_gb_out_to.values().copied())
    });
    if !prices.all(Price::is_sound) {
        return Err("prices are numbers from 0 to a million".into());
    }
    if amounts(scenario).all(Amount::is_sound) {
        Ok(())
    } else {
        Err("amounts are numbers from 0, or [low, high]".into())
    }
}

fn names(scenario: &Scenario) -> Result<Names<'_>, String> {
    let own: BTreeSet<&str> = scenario
        .depots
        .iter()
        .map(|plan| plan.name.as_str())
        .collect();
    let is_empty = own.is_empty() && (scenario.sources.is_empty() || !scenario.requests.is_empty());
    if own.len() != scenario.depots.len() || is_empty {
        return Err("each depot needs its own name, and there must be one".into());
    }
    let templates = scenario
        .depots
        .iter()
        .filter_map(|plan| plan.template.as_deref());
    let mut depots = own.clone();
    for template in templates {
        if own.contains(template) {
            return Err(format!("`{template}` names a depot and a table of several"));
        }
        depots.insert(template);
    }
    let links: BTreeSet<&str> = scenario
        .links
        .iter()
        .map(|link| link.name.as_str())
        .collect();
    if links.len() != scenario.links.len() || links.iter().any(|name| depots.contains(name)) {
        return Err("each link needs its own name, and not that of a depot".into());
    }
    let domains = scenario.domains.iter().map(|domain| domain.name.as_str());
    let domains: BTreeSet<&str> = domains.collect();
    if domains.len() != scenario.domains.len() {
        return Err("each domain needs its own name".into());
    }
    let mut all = domains.iter();
    if let Some(name) = all.find(|name| name.contains(',') || name.trim() != **name) {
        return Err(format!("`{name}` is no name of a domain"));
    }
    Ok(Names {
        depots,
        links,
        domains,
    })
}

fn check_depot(depot: &DepotPlan, names: &Names<'_>) -> Result<(), String> {
    if let Some(domain) = &depot.domain {
        DepotTerms::tidy_domain(domain).ok_or_else(|| {
            let most = DepotTerms::DOMAINS_MAX;
            format!("a depot has at most {most} failure domains")
        })?;
    }
    let terms = depot.terms();
    terms.domains().try_for_each(|name| names.domain(name))?;
    check_time("jitter_every_s", depot.jitter_every_s)?;
    check_fails(depot.mtbf_s, depot.mttr_s, depot.wiped_permille)?;
    if depot.loss_permille > 1000 || depot.streams == 0 {
        return Err("loss_permille is at most 1000, and streams at least 1".into());
    }
    match (depot.online_mean_s, depot.offline_mean_s) {
        (None, None) => {}
        (Some(online), Some(offline)) => {
            check_time("online_mean_s", online)?;
            check_time("offline_mean_s", offline)?;
        }
        (Some(_), None) | (None, Some(_)) => {
            return Err("online_mean_s and offline_mean_s belong together".into());
        }
    }
    if !(1..=9).contains(&depot.level) {
        return Err("level is from 1 to 9".into());
    }
    depot.windows().map_err(|error| error.to_string())?;
    if !depot.hours.is_empty() && !depot.offline_s.is_empty() {
        return Err("a depot has either hours or offline_s".into());
    }
    let mut last = 0.0;
    for [from, to] in &depot.offline_s {
        if !(from.is_finite() && to.is_finite() && *from >= last && from < to && *to < 1e9) {
            return Err("offline_s are [from, to] in seconds, one after the other".into());
        }
        last = *to;
    }
    Ok(())
}

fn check_fails(mtbf_s: Option<f64>, mttr_s: Option<f64>, wiped: u64) -> Result<(), String> {
    match (mtbf_s, mttr_s) {
        (None, None) if wiped > 0 => Err("wiped_permille needs mtbf_s and mttr_s".into()),
        (None, None) => Ok(()),
        (Some(mtbf), Some(mttr)) => {
            check_time("mtbf_s", mtbf)?;
            check_time("mttr_s", mttr)?;
            if wiped > 1000 {
                return Err("wiped_permille is at most 1000".into());
            }
            Ok(())
        }
        (Some(_), None) | (None, Some(_)) => Err("mtbf_s and mttr_s belong together".into()),
    }
}

pub(super) fn check_time(what: &str, seconds: f64) -> Result<(), String> {
    if seconds.is_finite() && (0.001..1e9).contains(&seconds) {
        Ok(())
    } else {
        Err(format!("{what} is a time from 0.001 s"))
    }
}

fn check_request(
    request: &RequestPlan,
    names: &Names<'_>,
    scenario: &Scenario,
) -> Result<(), String> {
    let named = request.via.iter().chain(&request.without);
    named
        .chain(&request.pin)
        .chain(&request.destination)
        .chain(&request.destinations)
        .into_iter()
        .try_for_each(|name| names.depot(name))?;
    if request.code.parse::<Code>().is_err() {
        return Err(format!(
            "`{}` is no code: write k+m, like 4+1",
            request.code
        ));
    }
    if let Some(name) = &request.optimizer {
        name.parse::<Method>().map_err(|error| error.to_string())?;
    }
    request.wishes()?;
    if !(request.chunk_mib > 0.0 && request.chunk_mib <= 1024.0) {
        return Err("chunk_mib must be above 0 and at most 1024".into());
    }
    if let Some(count) = request.via_count {
        let depots = if request.via.is_empty() {
            let is_destination = |plan: &&DepotPlan| {
                let names = [Some(&plan.name), plan.template.as_ref()];
                let mut ends = request.destination.iter().chain(&request.destinations);
                ends.any(|end| names.contains(&Some(end)))
            };
            let destinations = scenario.depots.iter().filter(is_destination).count();
            scenario.depots.len() - destinations
        } else {
            let is_meant = |plan: &&DepotPlan| {
                let names = [Some(&plan.name), plan.template.as_ref()];
                names
                    .into_iter()
                    .flatten()
                    .any(|name| request.via.contains(name))
            };
            scenario.depots.iter().filter(is_meant).count()
        };
        if count == 0 || count > depots {
            return Err(format!("via_count is {count}, of {depots} depots"));
        }
    }
    Ok(())
}

fn check_fault(fault: &FaultPlan, names: &Names<'_>) -> Result<(), String> {
    if !fault.depot.is_empty() {
        names.depot(&fault.depot)?;
    }
    if let Some(domain) = &fault.domain {
        names.domain(domain)?;
        if !fault.depot.is_empty() {
            return Err("a fault strikes a depot or a domain".into());
        }
    }
    if fault.kind == FaultKind::Slows && fault.rate_mib_per_s.is_none() {
        return Err("a link that slows needs rate_mib_per_s".into());
    }
    if fault.kind == FaultKind::Neighbour && fault.takes_mib.is_none() {
        return Err("a neighbour needs takes_mib".into());
    }
    Ok(())
}

fn check_background(background: &BackgroundPlan, names: &Names<'_>) -> Result<(), String> {
    let on = background.on.as_str();
    if !names.links.contains(on) && !names.depots.contains(on) {
        return Err(format!("no link and no depot is called `{on}`"));
    }
    check_time("on_mean_s", background.on_mean_s)?;
    check_time("off_mean_s", background.off_mean_s)
}

fn check_paths(scenario: &Scenario, names: &Names<'_>) -> Result<(), String> {
    let mut known = BTreeSet::new();
    for path in &scenario.paths {
        let (from, to) = (path.from.as_str(), path.to.as_str());
        names.depot(from)?;
        names.depot(to)?;
        if from == to || !known.insert((from, to)) {
            return Err(format!(
                "the path from `{from}` to `{to}` is none, or named twice"
            ));
        }
    }
    Ok(())
}

fn check_varies(varies: &Varies) -> Result<(), String> {
    if varies.trace.is_some() && varies.trace_mbit_per_s.is_some() {
        return Err("a rate follows one trace".into());
    }
    if let Some(points) = &varies.trace_mbit_per_s {
        Trace::new(&pairs(points)).map_err(|error| format!("trace_mbit_per_s: {error}"))?;
    }
    let has_trace = varies.trace.is_some() || varies.trace_mbit_per_s.is_some();
    if !has_trace && (varies.scale.is_some() || varies.begins_anywhere) {
        return Err("scale and begins_anywhere need a trace".into());
    }
    if let Some(scale) = varies.scale
        && !(scale.is_finite() && (0.001..=1_000_000.0).contains(&scale))
    {
        return Err("scale is from 0.001 to 1000000".into());
    }
    if let Some(states) = &varies.two_state {
        check_time("high_mean_s", states.high_mean_s)?;
        check_time("low_mean_s", states.low_mean_s)?;
        if states.low_permille > 1000 {
            return Err("low_permille is at most 1000".into());
        }
    }
    if let Some(hours) = &varies.daily_permille
        && (hours.len() != 24 || hours.iter().any(|hour| *hour > 1_000_000))
    {
        return Err("daily_permille are 24 factors, one for each hour".into());
    }
    Ok(())
}

fn amounts(scenario: &Scenario) -> impl Iterator<Item = Amount> {
    let depots = scenario.depots.iter().flat_map(|depot| {
        let ways = [depot.way_in_mib_per_s, depot.way_out_mib_per_s];
        let own = [depot.rate_mib_per_s, depot.latency_ms, depot.capacity_mib];
        own.into_iter().chain(ways.into_iter().flatten())
    });
    let requests = scenario
        .requests
        .iter()
        .flat_map(|request| [request.at_s, request.size_mib, request.deadline_s]);
    let faults = scenario.faults.iter().flat_map(|fault| {
        [
            Some(fault.at_s),
            fault.for_s,
            fault.rate_mib_per_s,
            fault.takes_mib,
        ]
        .into_iter()
        .flatten()
    });
    let links = scenario.links.iter().map(|link| link.rate_mib_per_s);
    let paths = scenario.paths.iter().map(|path| path.rate_mib_per_s);
    let others = scenario.background.iter().map(|plan| plan.rate_mib_per_s);
    depots
        .chain(requests)
        .chain(faults)
        .chain(links)
        .chain(paths)
        .chain(others)
        .chain(super::inbound::amounts(scenario))
}
