//! Seals signatures in addresses. The query after `?` opens the named file for anyone who has it,
//! so it is sealed before the address is recorded. Journal, audit and log have
//! `https://host/file?~sealed-…`, and users see `https://host/file?…`.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use posthaste_endpoint::{Error, ErrorKind, Result, SEALED, shown_address, shown_sealed};

use super::keys::Keys;

/// Seals what follows `?` in an address of the web, where nobody did yet. The same address is sealed to the same text.
///
/// # Errors
/// Errors of making a key, the first time.
pub(super) fn seal(keys: &mut Keys, owner: &str, address: &mut String) -> Result<()> {
    let Some((place, query)) = query_of(address) else {
        return Ok(());
    };
    if query.starts_with(SEALED) && open(keys, owner, address).is_ok() {
        return Ok(());
    }
    if !keys.are_there() {
        keys.renew()?;
    }
    let sealed = keys.seal_alike((owner, place), query.as_bytes())?;
    *address = format!("{place}?{SEALED}{}", URL_SAFE_NO_PAD.encode(sealed));
    Ok(())
}

/// Splits an address of a web or WebDAV server at `?`, also one that is then refused.
pub(crate) fn query_of(address: &str) -> Option<(&str, &str)> {
    let (scheme, _) = address.split_once("://")?;
    let web = ["http", "https", "webdav", "webdavs", "dav", "davs"];
    let is_of_web = web.iter().any(|known| known.eq_ignore_ascii_case(scheme));
    address.split_once('?').filter(|_| is_of_web)
}

/// Returns the original address.
///
/// # Errors
/// [`ErrorKind::Invalid`] if it was sealed for another owner, or with another key.
pub(super) fn open(keys: &Keys, owner: &str, address: &str) -> Result<String> {
    let Some((place, sealed)) = split(address) else {
        return Ok(address.to_owned());
    };
    let opened = URL_SAFE_NO_PAD.decode(sealed).ok();
    let opened = opened.and_then(|sealed| keys.open((owner, place), &sealed));
    let query = opened.and_then(|query| String::from_utf8(query).ok());
    let query = query.ok_or_else(|| {
        Error::new(ErrorKind::Invalid, "open", shown_address(place.as_ref()))
            .cause("its signature was sealed for somebody else, or with a key that is gone")
            .hint("submit it again, with the address as you were given it")
    })?;
    Ok(format!("{place}?{query}"))
}

/// Returns a text with its addresses in the form that anybody may see.
pub(crate) fn shown(text: &str) -> String {
    shown_sealed(text).into_owned()
}

fn split(address: &str) -> Option<(&str, &str)> {
    let (place, query) = address.split_once('?')?;
    Some((place, query.strip_prefix(SEALED)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = "https://data.example.org/run7.h5?X-Amz-Signature=5f0c91d2";

    #[test]
    fn what_follows_the_path_is_sealed_for_its_owner_and_place_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut keys = Keys::read(&folder.path().join("key")).unwrap();
        let mut address = GIVEN.to_owned();
        seal(&mut keys, "alice", &mut address).unwrap();
        assert!(!address.contains("Amz") && !address.contains("5f0c"));
        let mut again = GIVEN.to_owned();
        seal(&mut keys, "alice", &mut again).unwrap();
        assert_eq!(again, address);
        seal(&mut keys, "alice", &mut again).unwrap();
        assert_eq!(again, address, "what is sealed is left alone");
        assert_eq!(open(&keys, "alice", &address).unwrap(), GIVEN);
        let two = format!("{address} /archive/mesh");
        assert_eq!(
            shown(&two),
            "https://data.example.org/run7.h5?… /archive/mesh"
        );
        let elsewhere = address.replace("data", "evil");
        for (owner, address) in [("bob", &address), ("alice", &elsewhere)] {
            let error = open(&keys, owner, address).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        }
    }

    #[test]
    fn what_is_no_good_address_or_only_looks_sealed_is_sealed_too() {
        let folder = tempfile::tempdir().unwrap();
        let mut keys = Keys::read(&folder.path().join("key")).unwrap();
        for given in [
            "HTTP://data.example.org/f?sig=hush",
            "https://data.example.org/f?~sealed-hush",
            "webdavs://data.example.org/f?token=hush",
            "davs://data.example.org/f?authz=hush",
        ] {
            let mut address = given.to_owned();
            seal(&mut keys, "", &mut address).unwrap();
            assert!(!address.contains("hush"), "{address}");
            assert_eq!(open(&keys, "", &address).unwrap(), given);
        }
    }

    #[test]
    fn nothing_else_is_sealed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        let mut keys = Keys::read(&file).unwrap();
        for address in [
            "https://data.example.org/run7",
            "s3://bucket/what?",
            "/scratch/what?",
            "archive:what?",
        ] {
            let mut kept = address.to_owned();
            seal(&mut keys, "", &mut kept).unwrap();
            assert_eq!(kept, address);
            assert_eq!(open(&keys, "", address).unwrap(), address);
            assert_eq!(shown(address), address);
        }
        assert!(!file.exists(), "a key is made for what needs it");
    }
}
