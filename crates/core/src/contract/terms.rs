use alloc::{string::String, vec::Vec};
use posthaste_plan::{
    Windows,
    horizon::{Money, Price},
};
use posthaste_types::{Bytes, record};

/// Unit of volume for prices.
pub(crate) const GIGABYTE: Bytes = Bytes::new(1_000_000_000);
/// A month of storage, as stores bill it: 730 hours.
const MONTH_HOURS: u64 = 730;

record! {
    /// Terms on which an owner lends a depot.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct DepotTerms {
        /// Hours in which it may be used.
        pub windows: Windows,
        /// Failure domains, separated by commas: site, provider, region. Empty: none.
        pub domain: String,
        /// True if the depot is the site's fallback: used when the rest does not suffice.
        pub is_landmark: bool,
        /// Price of sending a gigabyte (10^9 bytes) there, in millionths of a dollar.
        pub send_micro_usd: u64,
        /// Price of keeping a gigabyte there for a month, in millionths of a dollar.
        pub keep_micro_usd: u64,
    }
}

impl DepotTerms {
    /// Most failure domains of a depot.
    pub const DOMAINS_MAX: usize = 8;

    /// Returns the names of its failure domains, each once, as they are written.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        names(&self.domain).take(Self::DOMAINS_MAX)
    }

    /// Returns the comma-separated names of a text, each once and trimmed, as one text; none if a
    /// depot may not have so many.
    #[must_use]
    pub fn tidy_domain(text: &str) -> Option<String> {
        let all: Vec<&str> = names(text).take(Self::DOMAINS_MAX + 1).collect();
        (all.len() <= Self::DOMAINS_MAX).then(|| all.join(","))
    }

    /// Returns the price of sending there.
    #[must_use]
    pub fn sending(&self) -> Price {
        Price::new(Money::from_micro_usd(self.send_micro_usd), GIGABYTE)
    }

    /// Returns the price of keeping data there for an hour.
    #[must_use]
    pub fn keeping(&self) -> Price {
        let month = GIGABYTE.times(MONTH_HOURS);
        Price::new(Money::from_micro_usd(self.keep_micro_usd), month)
    }

    /// Returns whether the depot costs nothing.
    pub(crate) fn is_free(&self) -> bool {
        self.send_micro_usd == 0 && self.keep_micro_usd == 0
    }

    /// Returns the price of sending bytes there and keeping them for some seconds.
    #[must_use]
    pub fn cost(&self, bytes: Bytes, keep_s: u64) -> Money {
        let byte_seconds = u128::from(bytes.get()) * u128::from(keep_s);
        self.sending().of(bytes) + self.keeping().keeping(byte_seconds)
    }
}

/// Returns the comma-separated names of a text, each once and trimmed.
pub(crate) fn names(text: &str) -> impl Iterator<Item = &str> {
    let all = || text.split(',').map(str::trim);
    let is_first = move |&(place, name): &(usize, &str)| all().take(place).all(|one| one != name);
    let named = all().enumerate().filter(|(_, name)| !name.is_empty());
    named.filter(is_first).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{format, vec};

    #[test]
    fn domains_are_named_once_and_trimmed() {
        let of = |domain: &str| DepotTerms {
            domain: domain.into(),
            ..DepotTerms::default()
        };
        let terms = of(" campus , aws,,eu north,campus ");
        let all: Vec<&str> = terms.domains().collect();
        assert_eq!(all, vec!["campus", "aws", "eu north"]);
        assert_eq!(of("").domains().count(), 0);
        assert_eq!(of(" ,").domains().count(), 0);
    }

    #[test]
    fn more_domains_than_a_depot_may_have_are_refused() {
        let of = |count: usize| {
            let all: Vec<String> = (0..count).map(|place| format!("at-{place}")).collect();
            DepotTerms::tidy_domain(&all.join(" , "))
        };
        assert_eq!(of(3).as_deref(), Some("at-0,at-1,at-2"));
        assert!(of(8).is_some());
        assert_eq!(of(9), None);
        assert_eq!(of(200_000), None, "and that is seen soon");
        let same = DepotTerms::tidy_domain("a,a,a,a,a,a,a,a,a");
        assert_eq!(same.as_deref(), Some("a"), "a name counts once");
    }
}
