//! Route for directories of any endpoint, page by page.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Query, RawQuery, State},
    http::{HeaderMap, HeaderValue, header},
};
use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind, FileTime, Kind, Location, Result, encode};
use serde::Deserialize;

use super::{Answer, Desk};
use crate::{
    actors::Actors,
    inbound::look,
    listing::{Ask, LEVELS, LEVELS_MAX, Place, Seen},
    render,
    tokens::Caller,
};

/// Entries of one page at most.
const PAGE_MAX: usize = 10_000;
/// Default number of entries of a page.
const PAGE: usize = 1_000;
/// Longest address.
pub(super) const ADDRESS_BYTES_MAX: usize = 16 << 10;

/// Listing that is asked for.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct What {
    /// The directory: an absolute path on the service's machine, or any other address that `posthaste cp` takes.
    address: String,
    /// The profile of the service's user whose credentials are used; the environment's without.
    profile: Option<String>,
    /// Most entries to show: 10,000 at most, and 1,000 where nothing is said.
    limit: Option<usize>,
    /// List it anew, whatever is known.
    #[serde(default)]
    refresh: bool,
    /// Levels below it that are listed ahead, in the background: 8 at most, 2 where nothing is said, 0 for none.
    depth: Option<u8>,
}

/// Lists a directory. What was listed lately is told again; the directories below it are listed ahead. Where there is more, `next`
/// and the header `Link` have the address of the next page.
#[utoipa::path(get, path = "/v1/listing", operation_id = "list_directory", tag = "listing", security(("bearer" = ["read"])),
    params(What, ("after" = Option<String>, Query, description = "Only entries behind this name")),
    responses((status = 200, body = api::Directory), (status = 401, body = api::Problem),
        (status = 403, body = api::Problem), (status = 404, body = api::Problem),
        (status = 422, body = api::Problem), (status = 502, body = api::Problem),
        (status = 503, body = api::Problem, description = "It takes long: ask again")))]
pub(crate) async fn show(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Query(mut what): Query<What>,
    RawQuery(query): RawQuery,
) -> Answer<(HeaderMap, Json<api::Directory>)> {
    let limit = what.limit()?;
    let after = value_of(query.as_deref().unwrap_or_default(), "after");
    let ask = Ask {
        after,
        refresh: what.refresh,
        levels: what.levels()?,
        looks_beside: true,
    };
    let actors = &desk.centre.store.actors;
    let profile = what.profile.as_deref();
    let place = tokio::task::block_in_place(|| find(actors, &caller, &mut what.address, profile))?;
    let answer = desk.centre.listings.ask(&place, &ask).await?;
    let start = ask.after.map_or(0, |after| answer.listed.after(&after));
    let (page, has_more) = answer.listed.page(start, limit);
    let page: Vec<Seen<'_>> = page.collect();
    let next = page.last().filter(|_| has_more);
    let next = next.map(|last| what.next(limit, last.name));
    let mut headers = HeaderMap::new();
    if let Some(next) = &next
        && let Ok(link) = HeaderValue::from_str(&format!("<{next}>; rel=\"next\""))
    {
        headers.insert(header::LINK, link);
    }
    let directory = api::Directory {
        entries: page.iter().map(entry).collect(),
        as_of: render::moment(answer.as_of),
        cached: answer.is_cached,
        next,
        address: what.address,
    };
    Ok((headers, Json(directory)))
}

/// Resolves the place after checking that the caller may read there. Blocking.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] if it may not, and invalid addresses.
pub(super) fn find(
    actors: &Actors,
    caller: &Caller,
    address: &mut String,
    profile: Option<&str>,
) -> Result<Place> {
    let owner = caller.owner().unwrap_or_default();
    actors.credentials.claim(owner, address)?;
    let address = &**address;
    let is_local = matches!(Location::parse(address.as_ref())?, Location::Local(_));
    let behalf = match is_local {
        true => actors.owner(owner)?,
        false => actors.elsewhere(owner),
    };
    // Links are followed with the caller's rights.
    let place = behalf.run(|| {
        caller.reads(address, profile)?;
        let place = Place::of(address, profile, |location| {
            look::resolve(&behalf, location)
        })?;
        if let Some(local) = place.local() {
            // This very path is listed, wherever links led a moment ago.
            caller.reads(&local.to_string_lossy(), profile)?;
        }
        Ok(place)
    })?;
    Ok(match behalf.own(address)? {
        Some(own) => place.seen_by(owner, own.number),
        None if is_local && actors.are_owners() => place.seen_by(owner, 0),
        None => place,
    })
}

impl What {
    fn wrong(&self, cause: String) -> Error {
        let shown: String = self.address.chars().take(100).collect();
        let shown = shown.split('?').next().unwrap_or_default().to_owned();
        Error::new(ErrorKind::Invalid, "list", shown).cause(cause)
    }

    fn limit(&self) -> Result<usize> {
        if self.address.len() > ADDRESS_BYTES_MAX {
            return Err(self.wrong(format!(
                "the address has more than {ADDRESS_BYTES_MAX} bytes"
            )));
        }
        let limit = self.limit.unwrap_or(PAGE);
        if limit == 0 || limit > PAGE_MAX {
            return Err(self
                .wrong(format!("a page has 1 to {PAGE_MAX} entries, not {limit}"))
                .hint("follow `next` to further pages"));
        }
        Ok(limit)
    }

    fn levels(&self) -> Result<u8> {
        let levels = self.depth.unwrap_or(LEVELS);
        if levels > LEVELS_MAX {
            return Err(self.wrong(format!(
                "up to {LEVELS_MAX} levels are listed ahead, not {levels}"
            )));
        }
        Ok(levels)
    }

    /// Returns the link to the page after this name. That page is not refreshed: it belongs to the
    /// page before.
    fn next(&self, limit: usize, last: &[u8]) -> String {
        let profile = self.profile.as_ref();
        let profile = profile.map_or_else(String::new, |profile| {
            format!("&profile={}", encode(profile.as_bytes(), false))
        });
        let depth = self.depth;
        let depth = depth.map_or_else(String::new, |depth| format!("&depth={depth}"));
        format!(
            "/v1/listing?address={}{profile}{depth}&limit={limit}&after={}",
            encode(self.address.as_bytes(), false),
            encode(last, false)
        )
    }
}

/// Returns the bytes of a value in a query: names of files need not be UTF-8.
fn value_of(query: &str, name: &str) -> Option<Vec<u8>> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(key, _)| *key == name)?;
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        let digit = |at: usize| {
            rest.get(at)
                .and_then(|digit| char::from(*digit).to_digit(16))
        };
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push(u8::try_from(high * 16 + low).unwrap_or_default());
                rest = &rest[2..];
            }
            (b'+', ..) => bytes.push(b' '),
            (byte, ..) => bytes.push(*byte),
        }
    }
    Some(bytes)
}

pub(super) fn entry(seen: &Seen<'_>) -> api::DirectoryEntry {
    let name = String::from_utf8_lossy(seen.name).into_owned();
    let is_text = name.as_bytes() == seen.name;
    api::DirectoryEntry {
        name,
        name_encoded: (!is_text).then(|| encode(seen.name, false)),
        kind: match seen.kind {
            Kind::File => api::EntryKind::File,
            Kind::Directory => api::EntryKind::Directory,
            Kind::Link => api::EntryKind::Link,
            Kind::Special => api::EntryKind::Special,
        },
        size: (seen.kind != Kind::Directory).then_some(seen.size),
        modified: seen.mtime.and_then(moment),
        stored: seen.stored.and_then(moment),
        mode: seen.mode.map(|mode| format!("{mode:04o}")),
    }
}

fn moment(time: FileTime) -> Option<String> {
    let nanos = i32::try_from(time.nanos).ok()?;
    let time = jiff::Timestamp::new(time.secs, nanos).ok()?;
    Some(time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(address: &str) -> What {
        What {
            address: address.to_owned(),
            profile: Some("a b".to_owned()),
            limit: None,
            refresh: true,
            depth: Some(0),
        }
    }

    #[test]
    fn names_of_any_bytes_come_back_as_they_were() {
        let names: [&[u8]; 5] = [b"caf\xe9", b"a&b=c", b"100%", b"a b+c", "\u{e9}".as_bytes()];
        for name in names {
            let next = what("s3://b/x y").next(10, name);
            let (_, query) = next.split_once('?').unwrap();
            assert_eq!(value_of(query, "after").as_deref(), Some(name), "{next}");
            assert_eq!(value_of(query, "address").unwrap(), b"s3://b/x y");
            assert_eq!(value_of(query, "profile").unwrap(), b"a b");
            assert!(!next.contains("refresh"), "{next}");
        }
        assert_eq!(value_of("after=%4&x=%zz", "after").unwrap(), b"%4");
        assert_eq!(value_of("x=%zz", "x").unwrap(), b"%zz");
        assert_eq!(value_of("x=1", "after"), None);
    }

    #[test]
    fn pages_of_no_size_and_signatures_are_not_shown() {
        let mut wrong = what("https://h/x?sig=secret");
        wrong.limit = Some(0);
        let refused = wrong.limit().unwrap_err().to_string();
        assert!(
            refused.contains("1 to 10000") && !refused.contains("secret"),
            "{refused}"
        );
        wrong.limit = Some(10_001);
        assert!(wrong.limit().is_err());
        wrong.depth = Some(9);
        assert!(wrong.levels().is_err());
    }
}
