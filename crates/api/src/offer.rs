//! What would make a deadline possible.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::OfferKind;

/// Something that would make an infeasible deadline feasible. It was tried before it is offered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Offer {
    /// Abilities it offers.
    pub kind: OfferKind,
    /// The offer for people.
    pub text: String,
    /// The names of the depots, or of the source, it is about; of a reservation none on the centre's way out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depots: Vec<String>,
    /// The name of the circuit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuit: Option<String>,
    /// Time at which the dataset would be safe, or here, then, RFC 3339, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub finish: Option<String>,
    /// The code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The deadline, RFC 3339: of this request, or of the other one; the end of a reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub deadline: Option<String>,
    /// The other request, like `r7`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_s: Option<u64>,
    /// The budget, in dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<f64>,
}

impl Offer {
    /// Makes an offer of which nothing else is known.
    #[must_use]
    pub const fn new(kind: OfferKind, text: String) -> Self {
        Self {
            kind,
            text,
            depots: Vec::new(),
            circuit: None,
            finish: None,
            code: None,
            deadline: None,
            request: None,
            rate_bytes_per_s: None,
            usd: None,
        }
    }
}
