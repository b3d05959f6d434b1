//! What the mind knows. Books answer and record; they decide nothing.

mod account;
mod arrival;
mod bitmap;
mod book;
mod decisions;
mod depot;
mod history;
mod index;
mod link;
mod push;
mod quota;
mod replica;
mod request;
mod shares;
mod source;
mod throttle;
mod transfer;
mod tuning;

pub(crate) use account::{Account, Seen};
pub(crate) use arrival::{Arrival, Arrivals, Fetch, Held, SourceLane};
pub(crate) use bitmap::Bitmap;
pub(crate) use book::Book;
pub(crate) use decisions::remember;
pub(crate) use depot::{Answer, Depot};
pub(crate) use history::History;
pub(crate) use index::{Entry, Index, Urgency};
pub(crate) use link::Link;
pub(crate) use push::{Forwarded, Push, Pushes, is_of_giver};
pub(crate) use quota::Quota;
pub(crate) use replica::{Replica, Stored};
pub(crate) use request::{Release, Request, Route, Stripe};
pub(crate) use shares::{Shares, Turn};
pub(crate) use source::Source;
pub(crate) use throttle::Throttle;
pub(crate) use transfer::{Flight, FlightKey, Transfers};
pub(crate) use tuning::Tuning;
