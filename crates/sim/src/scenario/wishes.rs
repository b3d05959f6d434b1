//! What the users of a scenario wish beyond a deadline.

use posthaste_core::contract::Wishes;

use super::RequestPlan;

impl RequestPlan {
    /// The wishes as the mind takes them.
    ///
    /// # Errors
    /// What makes no sense, in words.
    pub(crate) fn wishes(&self) -> Result<Wishes, String> {
        let priority = self.priority.as_deref().map(str::parse).transpose();
        Ok(Wishes {
            priority: priority
                .map_err(|error| format!("{error}"))?
                .unwrap_or_default(),
            owner: self.owner.clone(),
            project: self.project.clone(),
            ..Wishes::default()
        })
    }
}
