use core::{fmt, str::FromStr};
use posthaste_types::record;

record! {
    /// Place of encoding.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum Encode {
        /// The centre, which sends every fragment itself.
        #[default]
        0 = Centre,
        /// Relays near the centre, wherever one can.
        1 = Relays,
        /// Relays if the centre's egress is the bottleneck and all is stored sooner that way.
        2 = Auto,
    }
}

/// Unknown word for a place of encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodeError;

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("chunks are coded at the centre, at relays or as auto finds best")
    }
}

impl core::error::Error for EncodeError {}

impl fmt::Display for Encode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Centre => "centre",
            Self::Relays => "relays",
            Self::Auto => "auto",
        })
    }
}

impl FromStr for Encode {
    type Err = EncodeError;

    fn from_str(text: &str) -> Result<Self, EncodeError> {
        match text {
            "centre" => Ok(Self::Centre),
            "relays" => Ok(Self::Relays),
            "auto" => Ok(Self::Auto),
            _ => Err(EncodeError),
        }
    }
}
