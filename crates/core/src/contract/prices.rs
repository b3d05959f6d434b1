//! Prices of a depot beyond sending and keeping, namely requests and egress, and prices of reading
//! from a source.

use alloc::{string::String, vec::Vec};
use posthaste_plan::horizon::{Money, Price};
use posthaste_types::{Bytes, SourceId, record};

use crate::{contract::GIGABYTE, contract::terms::names};

/// Requests that a price is quoted for.
const REQUESTS: u64 = 1000;

record! {
    /// Price of a depot's egress to one place.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct EgressPrice {
        /// Name of a depot or of a failure domain.
        pub to: String,
        /// Price of a gigabyte (10^9 bytes), in millionths of a dollar.
        pub micro_usd: u64,
    }
}

record! {
    /// Prices of a depot beyond sending and keeping. A stored fragment is one PUT, a read fragment
    /// one GET.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct DepotPrices {
        /// Price of a thousand PUTs, in millionths of a dollar.
        pub put_micro_usd: u64,
        /// Price of a thousand GETs, in millionths of a dollar.
        pub get_micro_usd: u64,
        /// Default price of a gigabyte of egress, in millionths of a dollar.
        pub egress_micro_usd: u64,
        /// Prices of egress to some places.
        pub egress_to: Vec<EgressPrice>,
    }
}

impl DepotPrices {
    /// Returns the price of one PUT, rounded up.
    #[must_use]
    pub fn put(&self) -> Money {
        one_of(self.put_micro_usd)
    }

    /// Returns the price of one GET, rounded up.
    #[must_use]
    pub fn get(&self) -> Money {
        one_of(self.get_micro_usd)
    }

    /// Returns the price of egress to a depot: by its name, else by the first of its domains with a
    /// price. Returns the default for any other place.
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

    /// Returns the price of reading so many bytes of one fragment for a depot: one GET, and the
    /// egress.
    #[must_use]
    pub fn reading(&self, bytes: Bytes, to: Option<(&str, &str)>) -> Money {
        self.get() + self.egress(to).of(bytes)
    }
}

record! {
    /// Prices of reading from a source, for one stage-in.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SourcePrice {
        /// The source.
        pub source: SourceId,
        /// Price of a thousand GETs, in millionths of a dollar.
        pub get_micro_usd: u64,
        /// Price of reading a gigabyte (10^9 bytes), in millionths of a dollar.
        pub egress_micro_usd: u64,
    }
}

impl SourcePrice {
    /// Returns the price of reading one of `chunks` chunks that take `gets` GETs together, rounded
    /// up.
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
