use http::Method;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    RelayClient, Scope,
    cargo::{Ask, Load},
    client::ANSWER_BYTES_MAX,
    wire::Target,
};
use crate::Result;

impl RelayClient {
    /// Makes the relay carry out an order with other relays, and waits for its end. Dropping the
    /// future cancels it at the relay too.
    ///
    /// # Errors
    /// Errors of [`Self::status`]: it did not start. The end reports later errors.
    pub(super) async fn order<End: DeserializeOwned>(
        &self,
        operation: &'static str,
        target: Target,
        order: &impl Serialize,
    ) -> Result<End> {
        let body = serde_json::to_vec(order).unwrap_or_default();
        let ask = Ask {
            operation,
            method: Method::POST,
            target,
            query: "",
            scope: Scope::Write,
            body: Some(Load::plain(body)),
        };
        let (lease, response) = self.send(&ask).await?;
        let told = self
            .collect(&ask, lease, response, ANSWER_BYTES_MAX, None)
            .await?;
        serde_json::from_slice(&told).map_err(|cause| self.nonsense(&ask, cause))
    }
}
