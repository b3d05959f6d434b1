//! Answers what is held of a dataset, or proven to be right.

use std::sync::Arc;

use http::Response;
use posthaste_endpoint::{
    ErrorKind,
    relay::{DatasetId, wire},
};

use super::Service;
use crate::{
    answer::{Body, full},
    reception::blocking,
    store::Refusal,
};

impl Service {
    pub(crate) async fn inventory(
        &self,
        dataset: DatasetId,
        query: Option<&str>,
    ) -> Result<Response<Body>, Refusal> {
        if let Some(wrong) = wire::parse_doubt(query) {
            let store = Arc::clone(&self.store);
            let look = move || {
                store.doubt(&dataset, wrong);
                Ok(())
            };
            blocking(look).await?;
            return Ok(Response::new(full(Vec::new())));
        }
        let (from, proves) = wire::parse_from(query).ok_or_else(|| {
            let what = "the query is not from=CHUNK.FRAGMENT or proof";
            Refusal::new(ErrorKind::Invalid, what)
        })?;
        let store = Arc::clone(&self.store);
        let most = wire::INVENTORY_PAGE_MAX;
        let held = move || {
            Ok(match proves {
                true => store.proven(&dataset, from, most),
                false => store.inventory(&dataset, from, most),
            })
        };
        let (held, next) = blocking(held).await?;
        let mut page = Vec::with_capacity(held.len() * wire::INVENTORY_ENTRY_BYTES);
        held.iter()
            .for_each(|entry| wire::write_held(&mut page, entry));
        let mut response = Response::new(full(page));
        if let Some((chunk, fragment)) = next {
            let next = format!("{}.{}", chunk.get(), fragment.get());
            let next = next
                .try_into()
                .map_err(|_| Refusal::new(ErrorKind::Other, "a header"))?;
            response.headers_mut().insert(wire::NEXT_HEADER, next);
        }
        Ok(response)
    }
}
