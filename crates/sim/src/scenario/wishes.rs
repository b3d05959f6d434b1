//! Options of a scenario's requests beyond a deadline.

use posthaste_core::contract::{Repair, Reserve, Survive, Wishes};
use posthaste_types::ByteRate;

use super::{RequestPlan, mebi};

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "dollars of a scenario are few, and those below none are none"
)]
fn micro_usd(usd: f64) -> u64 {
    (usd * 1e6).round() as u64
}

impl RequestPlan {
    /// Returns the options for the mind.
    ///
    /// # Errors
    /// A description of the invalid option.
    pub(crate) fn wishes(&self) -> Result<Wishes, String> {
        let priority = self.priority.as_deref().map(str::parse).transpose();
        Ok(Wishes {
            priority: priority
                .map_err(|error| format!("{error}"))?
                .unwrap_or_default(),
            owner: self.owner.clone(),
            project: self.project.clone(),
            survive: match (self.survive, self.loss_permille_max) {
                (None, None) => Survive::AsCoded,
                (Some(depots), None) => Survive::Losses { depots },
                (None, Some(permille)) => Survive::Chance {
                    loss_ppb_max: permille.min(1000) * 1_000_000,
                },
                (Some(_), Some(_)) => {
                    return Err("either survive or loss_permille_max".into());
                }
            },
            safe_with: self.safe_with,
            repair: if self.lazy_repair {
                Repair::Lazy
            } else {
                Repair::Eager
            },
            budget_micro_usd: self.budget_usd.map(micro_usd),
            reserve: (self.reserve.as_deref())
                .map_or(Ok(Reserve::default()), str::parse)
                .map_err(|error| format!("{error}"))?,
            rate_max: self.rate_max_mib_per_s.map(mebi).map(ByteRate::new),
            ..Wishes::default()
        })
    }
}
