//! Tables of reservations for people and programs.

use jiff::Timestamp as Moment;
use posthaste_circuit::{Circuit, Status, Terms, show_rate};
use posthaste_types::Timestamp;
use serde_json::{Value, json};

use crate::output;

/// Formats a time by RFC 3339, in whole seconds.
pub(super) fn show_time(at: Timestamp) -> String {
    let seconds = i64::try_from(at.as_micros() / 1_000_000).unwrap_or(i64::MAX);
    Moment::from_second(seconds)
        .unwrap_or(Moment::MAX)
        .to_string()
}

fn terms_json(circuit: &Circuit, terms: Option<&Terms>) -> Value {
    let mut shown = json!({"circuit": circuit.name});
    if let Some(terms) = terms {
        shown["rate_bytes_per_s"] = terms.rate.get().into();
        shown["from"] = show_time(terms.from).into();
        shown["until"] = show_time(terms.until).into();
    }
    shown
}

fn status_json(circuit: &Circuit, status: &Status) -> Value {
    let mut shown = terms_json(circuit, status.terms.as_ref());
    shown["id"] = status.id.as_str().into();
    shown["state"] = status.state.name().into();
    if let Some(key) = &status.key {
        shown["key"] = key.as_str().into();
    }
    if let Some(since) = status.since {
        shown["since"] = show_time(since).into();
    }
    shown
}

fn row(circuit: &Circuit, status: &Status) -> Vec<String> {
    let terms = status.terms.as_ref();
    let dash = || "-".to_owned();
    vec![
        circuit.name.clone(),
        status.id.to_string(),
        status.state.name().to_owned(),
        terms.map_or_else(dash, |terms| show_rate(terms.rate)),
        terms.map_or_else(dash, |terms| show_time(terms.from)),
        terms.map_or_else(dash, |terms| show_time(terms.until)),
        status.key.clone().unwrap_or_else(dash),
    ]
}

/// Prints one reservation.
pub(super) fn tell_one(circuit: &Circuit, status: &Status, json: bool) {
    if json {
        output::json(&status_json(circuit, status));
    } else {
        tell_all(&[(circuit.clone(), status.clone())], false);
    }
}

/// Prints reservations, with a heading even if there are none.
pub(super) fn tell_all(rows: &[(Circuit, Status)], json: bool) {
    if json {
        let all: Vec<Value> = rows
            .iter()
            .map(|(circuit, status)| status_json(circuit, status))
            .collect();
        return output::json(&all);
    }
    let heading = ["CIRCUIT", "ID", "STATE", "RATE", "FROM", "UNTIL", "KEY"];
    let rows = rows.iter().map(|(circuit, status)| row(circuit, status));
    let table: Vec<_> = std::iter::once(heading.map(str::to_owned).to_vec())
        .chain(rows)
        .collect();
    output::table(&table);
}

/// Prints the terms that would be requested.
pub(super) fn tell_terms(circuit: &Circuit, terms: &Terms, json: bool) {
    if json {
        return output::json(&terms_json(circuit, Some(terms)));
    }
    output::line(&format!(
        "{} on {} from {} until {}",
        show_rate(terms.rate),
        circuit.name,
        show_time(terms.from),
        show_time(terms.until)
    ));
}
