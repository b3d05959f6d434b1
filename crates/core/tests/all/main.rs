//! Decisions of the mind.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod any_input;
mod arrivals;
mod arrivals_apart;
mod arrivals_late;
mod arrivals_offers;
mod arrivals_slack;
mod coming_and_going;
mod deliver_by;
mod delivery;
mod endgame;
mod first_delivery;
mod left_out;
mod offers;
mod optimizer;
mod owned;
mod paths;
mod pauses;
mod pins;
mod planning;
mod pressing;
mod prestage;
mod priced_near;
mod priced_sources;
mod prices;
mod probes;
mod promises;
mod push;
mod recall;
mod reservations;
mod scatter;
mod spaces;
mod support;
mod terms;
mod transfers;
mod turns;
mod ways;
mod wishes;
