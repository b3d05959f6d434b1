//! Prices of depots for a request.

use posthaste_types::Bytes;

use crate::{
    contract::GIGABYTE,
    state::{Depot, Request, State},
};

/// Returns the cost for the request of a gigabyte of fragments there, in millionths of a
/// dollar. It covers sending, keeping, and reading the needed part once.
pub(crate) fn price(state: &State, request: &Request, depot: &Depot) -> u64 {
    let keeps = request.keeps(state.now).as_secs();
    let (chunk, code) = (request.spec.chunk_size, request.spec.code);
    let fragment = code.fragment_size(chunk.min(request.spec.bytes));
    let requests = GIGABYTE.pieces(fragment.max(Bytes::new(1)));
    let to = request.lead_depot().and_then(|to| state.depots.get(&to));
    let places = to.map(|to| (to.name.as_str(), to.terms.domain.as_str()));
    let put = depot.prices.put().micro_usd().saturating_mul(requests);
    let get = depot.prices.get().micro_usd().saturating_mul(requests);
    let leaves = depot.prices.egress(places).of(GIGABYTE).micro_usd();
    let read = u128::from(get.saturating_add(leaves)) * u128::from(code.data());
    let read = read.div_ceil(u128::from(code.total().max(1)));
    let kept = depot.terms.cost(GIGABYTE, keeps).micro_usd();
    kept.saturating_add(put)
        .saturating_add(u64::try_from(read).unwrap_or(u64::MAX))
}
