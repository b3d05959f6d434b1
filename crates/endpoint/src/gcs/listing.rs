//! Pages of keys, for listings that request many at once.

use http::Method;

use super::{
    client::{Call, GcsClient},
    resource::Page,
};
use crate::{
    ErrorKind, Result,
    endpoint::Boxed,
    s3::listing::{Bucket, ListedPage, Start},
    web::About,
};

/// Keys of a page: the store returns no more.
const PAGE_KEYS: &str = "1000";

/// Separator of an offset and a token, which is text without such a character.
const SEPARATOR: char = '\n';

const FIELDS: &str =
    "nextPageToken,prefixes,items(name,size,generation,crc32c,timeCreated,metadata)";

impl Bucket for GcsClient {
    fn page<'a>(
        &'a self,
        prefix: &'a str,
        flat: bool,
        from: &'a Start,
    ) -> Boxed<'a, Result<ListedPage>> {
        Box::pin(async move {
            let mut call = self.listing(prefix);
            if flat {
                // The store chooses how many prefixes fit on a page beside the keys: some count
                // only the keys.
                call = call.query("delimiter", "/");
            } else {
                call = call.query("maxResults", PAGE_KEYS);
            }
            let (offset, token) = match from {
                Start::First => (None, None),
                Start::After(key) => (Some(format!("{prefix}{key}")), None),
                Start::Token(next) => unpacked(next),
            };
            if let Some(offset) = &offset {
                call = call.query("startOffset", offset.as_str());
            }
            if let Some(token) = token {
                call = call.query("pageToken", token);
            }
            let mut page = ListedPage::from(self.page_of(call).await?);
            page.next = page.next.map(|token| packed(offset.as_deref(), &token));
            if let Start::After(key) = from {
                // A listing includes its offset.
                let is_behind = |found: &str| found.strip_prefix(prefix) != Some(key);
                page.objects.retain(|object| is_behind(&object.key));
                page.prefixes.retain(|prefix| is_behind(prefix));
            }
            Ok(page)
        })
    }

    fn show(&self, key: &str) -> String {
        Self::show(self, key)
    }
}

/// Joins a page's token with the offset of its query, to which it belongs.
fn packed(offset: Option<&str>, token: &str) -> String {
    match offset {
        Some(offset) => format!("{offset}{SEPARATOR}{token}"),
        None => token.to_owned(),
    }
}

/// Splits a text that [`packed`] made.
fn unpacked(next: &str) -> (Option<String>, Option<&str>) {
    match next.rsplit_once(SEPARATOR) {
        Some((offset, token)) => (Some(offset.to_owned()), Some(token)),
        None => (None, Some(next)),
    }
}

impl GcsClient {
    fn listing(&self, prefix: &str) -> Call {
        let about = About::reading("list", self.show(prefix));
        let mut call = Call::new(Method::GET, self.objects(), about).query("fields", FIELDS);
        if !prefix.is_empty() {
            call = call.query("prefix", prefix);
        }
        call
    }

    /// Requests a page; only the bucket can be missing.
    async fn page_of(&self, call: Call) -> Result<Page> {
        let about = call.about.clone();
        let page: Result<Page> = self.ask(call).await;
        if page.as_ref().is_ok_and(|page| page.error.is_some()) {
            let error = about.fail(ErrorKind::Other);
            return Err(error.cause("the answer is a success that tells of an error"));
        }
        page.map_err(|error| {
            let error = error.with("directory", true);
            match error.kind() == ErrorKind::NotFound {
                true => error.hint("create the bucket first"),
                false => error,
            }
        })
    }

    /// Returns whether any key begins with `prefix`.
    ///
    /// # Errors
    /// Errors of [`GcsClient::send`].
    pub(super) async fn has_below(&self, prefix: &str) -> Result<bool> {
        let page = self
            .page_of(self.listing(prefix).query("maxResults", "1"))
            .await?;
        // Pages may be empty although there is more.
        let more = page.next_page_token.filter(|token| !token.is_empty());
        Ok(!page.items.is_empty() || more.is_some())
    }

    /// Requests a page of all keys with `prefix`, from the end of the one before.
    ///
    /// # Errors
    /// Errors of [`GcsClient::send`].
    pub(super) async fn all_below(&self, prefix: &str, token: Option<&str>) -> Result<Page> {
        let mut call = self.listing(prefix).query("maxResults", PAGE_KEYS);
        if let Some(token) = token {
            call = call.query("pageToken", token);
        }
        self.page_of(call).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_keeps_the_offset_it_was_given_for() {
        for (offset, token) in [(None, "t="), (Some("a/b c"), "t="), (Some(""), "t")] {
            let next = packed(offset, token);
            assert_eq!(unpacked(&next), (offset.map(str::to_owned), Some(token)));
        }
    }
}
