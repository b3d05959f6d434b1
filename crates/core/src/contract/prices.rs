//! What a depot costs beyond what is sent and kept: requests to it, and what leaves it; and what reading from a source does.

use alloc::{string::String, vec::Vec};
use posthaste_plan::horizon::{Money, Price};
use posthaste_types::{Bytes, SourceId, record};

use super::{GIGABYTE, terms::names};

/// So many requests a price is quoted for.
const REQUESTS: u64 = 1000;

record! {
    /// What leaves a depot for one place costs.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct EgressPrice {
        /// The name of a depot, or of a domain.
        pub to: String,
        /// What a gigabyte (10^9 bytes) costs, in millionths of a dollar.
        pub micro_usd: u64,
    }
}

record! {
    /// What a depot costs beyond sending and keeping. A fragment that is stored is one PUT, one that is read is one GET.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct DepotPrices {
        /// What a thousand PUTs cost, in millionths of a dollar.
        pub put_micro_usd: u64,
        /// What a thousand GETs cost, in millionths of a dollar.
        pub get_micro_usd: u64,
        /// What a gigabyte that leaves it costs, in millionths of a dollar, wherever nothing else is said.
        pub egress_micro_usd: u64,
        /// What it costs to some places.
        pub egress_to: Vec<EgressPrice>,
    }
}

impl DepotPrices {
    /// What one PUT costs, rounded up.
    #[must_use]
    pub fn put(&self) -> Money {
        one_of(self.put_micro_usd)
    }

    /// What one GET costs, rounded up.
    #[must_use]
    pub fn get(&self) -> Money {
        one_of(self.get_micro_usd)
    }

    /// What leaves it for a depot costs, by its name before its domains, of which the first that is known counts; for nowhere
    /// that is known by the default.
    #[must_use]
    pub fn egress(&self, to: Option<(&str, &str)>) -> Price {
        let of = |place: &str| {
            let mut known = self.egress_to.iter();
            known.find(|price| !place.is_empty() && price.to == place)
        };
        let said = to.and_then(|(name, domain)| of(name).or_else(|| names(domain).find_map(of)));
        let micro_usd = said.map_or(self.egress_micro_usd, |price| price.micro_usd);
        Price::new(Money::from_micro_usd(micro_usd), GIGABYTE)
    }

    /// What reading so much of one fragment for a depot costs: one GET, and what leaves.
    #[must_use]
    pub fn reading(&self, bytes: Bytes, to: Option<(&str, &str)>) -> Money {
        self.get() + self.egress(to).of(bytes)
    }
}

record! {
    /// What reading from a source costs, for one stage-in.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SourcePrice {
        /// The source.
        pub source: SourceId,
        /// What a thousand GETs cost, in millionths of a dollar.
        pub get_micro_usd: u64,
        /// What a gigabyte (10^9 bytes) that is read costs, in millionths of a dollar.
        pub egress_micro_usd: u64,
    }
}

impl SourcePrice {
    /// What reading so much with so many GETs for so many chunks costs, one of these chunks, rounded up.
    #[must_use]
    pub fn reading(&self, bytes: Bytes, (gets, chunks): (u64, u64)) -> Money {
        let egress = Price::new(Money::from_micro_usd(self.egress_micro_usd), GIGABYTE);
        let gets = u128::from(self.get_micro_usd).saturating_mul(gets.into());
        let one = gets.div_ceil(u128::from(REQUESTS) * u128::from(chunks.max(1)));
        egress.of(bytes) + Money::from_micro_usd(u64::try_from(one).unwrap_or(u64::MAX))
    }
}

fn one_of(thousand_micro_usd: u64) -> Money {
    Money::from_micro_usd(thousand_micro_usd.div_ceil(REQUESTS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_request_is_rounded_up_and_egress_goes_by_depot_then_domain() {
        let prices = DepotPrices {
            put_micro_usd: 5_000,
            get_micro_usd: 400,
            egress_micro_usd: 90_000,
            egress_to: vec![
                EgressPrice {
                    to: "ash".into(),
                    micro_usd: 0,
                },
                EgressPrice {
                    to: "north".into(),
                    micro_usd: 20_000,
                },
            ],
        };
        let (put, get) = (prices.put().micro_usd(), prices.get().micro_usd());
        assert_eq!((put, get), (5, 1), "0.4 millionths count as one");
        let gigabyte = |to| prices.egress(to).of(GIGABYTE).micro_usd();
        assert_eq!(gigabyte(None), 90_000);
        assert_eq!(gigabyte(Some(("elm", ""))), 90_000);
        assert_eq!(gigabyte(Some(("ash", "north"))), 0);
        assert_eq!(gigabyte(Some(("elm", "north"))), 20_000);
        assert_eq!(gigabyte(Some(("elm", "campus, north, ash"))), 20_000);
        assert_eq!(gigabyte(Some(("elm", "ash,north"))), 0, "the first counts");
        assert_eq!(prices.reading(Bytes::new(1), None).micro_usd(), 2);
    }

    #[test]
    fn a_chunk_of_a_source_costs_its_share_of_all_requests_and_what_leaves() {
        let price = SourcePrice {
            source: SourceId::new(1),
            get_micro_usd: 400,
            egress_micro_usd: 90_000,
        };
        let reading = |bytes, gets| price.reading(bytes, gets).micro_usd();
        assert_eq!(reading(Bytes::new(1), (100, 100)), 2, "each is rounded up");
        assert_eq!(reading(GIGABYTE, (50_000, 100)), 90_200);
        assert_eq!(
            reading(Bytes::ZERO, (u64::MAX, 1)),
            7_378_697_629_483_820_646
        );
    }
}
