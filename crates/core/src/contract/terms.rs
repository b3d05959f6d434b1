use alloc::string::String;
use posthaste_plan::{
    Windows,
    horizon::{Money, Price},
};
use posthaste_types::{Bytes, record};

/// What prices are quoted for.
pub(crate) const GIGABYTE: Bytes = Bytes::new(1_000_000_000);
/// A month of storage, as stores bill it: 730 hours.
const MONTH_HOURS: u64 = 730;

record! {
    /// On which terms an owner lends a depot.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct DepotTerms {
        /// When it may be used.
        pub windows: Windows,
        /// What fails together with it: its site, provider or region. Empty: nothing does.
        pub domain: String,
        /// It belongs to the site, for want of others: used when the rest does not suffice.
        pub is_landmark: bool,
        /// What sending a gigabyte (10^9 bytes) there costs, in millionths of a dollar.
        pub send_micro_usd: u64,
        /// What keeping a gigabyte there for a month costs, in millionths of a dollar.
        pub keep_micro_usd: u64,
    }
}

impl DepotTerms {
    /// What sending there costs.
    #[must_use]
    pub fn sending(&self) -> Price {
        Price::new(Money::from_micro_usd(self.send_micro_usd), GIGABYTE)
    }

    /// What keeping data there costs an hour.
    #[must_use]
    pub fn keeping(&self) -> Price {
        let month = GIGABYTE.times(MONTH_HOURS);
        Price::new(Money::from_micro_usd(self.keep_micro_usd), month)
    }

    /// Whether it costs nothing.
    pub(crate) fn is_free(&self) -> bool {
        self.send_micro_usd == 0 && self.keep_micro_usd == 0
    }

    /// What sending bytes there and keeping them for some seconds costs.
    #[must_use]
    pub fn cost(&self, bytes: Bytes, keep_s: u64) -> Money {
        let byte_seconds = u128::from(bytes.get()) * u128::from(keep_s);
        self.sending().of(bytes) + self.keeping().keeping(byte_seconds)
    }
}
