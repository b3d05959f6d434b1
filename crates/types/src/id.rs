use core::{fmt, num::ParseIntError, str::FromStr};

use crate::record;

macro_rules! id {
    ($(#[$meta:meta])* $name:ident, $integer:ty, $prefix:literal) => {
        record! {
            $(#[$meta])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
            pub struct $name {
                number: $integer,
            }
        }

        impl $name {
            /// Wraps the number.
            #[must_use]
            pub const fn new(number: $integer) -> Self {
                Self { number }
            }

            /// Returns the bare number.
            #[must_use]
            pub const fn get(self) -> $integer {
                self.number
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.number)
            }
        }

        impl FromStr for $name {
            type Err = ParseIntError;

            fn from_str(text: &str) -> Result<Self, ParseIntError> {
                text.strip_prefix($prefix).unwrap_or(text).parse().map(Self::new)
            }
        }
    };
}

id!(
    /// A user's request, numbered by the journal from 1. Shown as `r7`.
    RequestId, u64, "r"
);
id!(
    /// A depot that the service knows, numbered from 1 in the order of registration. Shown as `d3`.
    DepotId, u32, "d"
);
id!(
    /// An endpoint that data is fetched from, numbered from 1 in the order of discovery. Shown as
    /// `s3`.
    SourceId, u32, "s"
);
id!(
    /// A way whose rate can be reserved, numbered from 1 in the order of offers. Shown as `k3`.
    CircuitId, u32, "k"
);
id!(
    /// A reservation, numbered from 1 by the calendar that holds it or the mind that requested it.
    /// Shown as `v3`.
    ReservationId, u64, "v"
);
id!(
    /// Place of a chunk in its dataset's byte stream, from 0.
    ChunkIndex, u32, "c"
);
id!(
    /// Place of a fragment in its chunk's stripe: `0..k` are data, `k..k+m` parity.
    FragmentIndex, u8, "f"
);

impl FragmentIndex {
    /// Index of the chunk itself, uncoded, as a direct transfer to the destination carries it.
    pub const WHOLE: Self = Self::new(u8::MAX);
}
