//! Redirects: their targets, and the headers that go along.

use http::{HeaderMap, StatusCode, Uri};

use super::{About, text_of};
use crate::{ErrorKind, Result};

/// Returns the target of a redirect.
///
/// A method stays unchanged: the exception that RFC 9110 (section 15.4) allows for POST is not
/// used. `None` for any other answer.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for an invalid address: none, another protocol, or no TLS after TLS.
pub(super) fn next_of(
    from: &Uri,
    method: &str,
    status: StatusCode,
    headers: &HeaderMap,
    about: &About,
) -> Result<Option<Uri>> {
    let follows = match method {
        "GET" | "HEAD" | "PROPFIND" => matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308),
        "PUT" => matches!(status.as_u16(), 301 | 302 | 307 | 308),
        _ => matches!(status.as_u16(), 307 | 308),
    };
    if !follows {
        return Ok(None);
    }
    let fail = |cause: String| about.fail(ErrorKind::Unsupported).cause(cause);
    let next = text_of(headers, "location").and_then(|to| join(from, to));
    let next = next.ok_or_else(|| {
        fail(format!(
            "the server answers {status} and no address to go on to"
        ))
    })?;
    if from.scheme_str() == Some("https") && next.scheme_str() != Some("https") {
        let host = next.host().unwrap_or_default();
        return Err(
            fail(format!("the server sends us on to {host} without TLS"))
                .hint("ask those who run it for TLS there"),
        );
    }
    Ok(Some(next))
}

/// Resolves `to`, which may be relative (RFC 3986, section 5.2), in an answer from `from`.
fn join(from: &Uri, to: &str) -> Option<Uri> {
    let to = to.split('#').next().unwrap_or_default();
    let (scheme, authority) = (from.scheme_str()?, from.authority()?);
    let path_begins = to.find(['/', '?']).unwrap_or(to.len());
    let text = if to.get(path_begins.saturating_sub(1)..)?.starts_with("://") {
        to.to_owned()
    } else if to.starts_with("//") {
        format!("{scheme}:{to}")
    } else if to.starts_with('/') {
        format!("{scheme}://{authority}{to}")
    } else {
        let (folder, _) = from.path().rsplit_once('/').unwrap_or_default();
        format!("{scheme}://{authority}{folder}/{to}")
    };
    let next = Uri::try_from(text).ok()?;
    // Such a login puts a secret into the address, which errors would show.
    let has_login = next.authority()?.as_str().contains('@');
    (matches!(next.scheme_str(), Some("http" | "https")) && !has_login).then_some(next)
}

/// Returns whether two addresses share scheme, host and port: a secret of one server stays with it.
pub(super) fn is_same_origin(one: &Uri, other: &Uri) -> bool {
    let port = |uri: &Uri| {
        let usual = if uri.scheme_str() == Some("https") {
            443
        } else {
            80
        };
        uri.port_u16().unwrap_or(usual)
    };
    let host = |uri: &Uri| uri.host().unwrap_or_default().to_ascii_lowercase();
    one.scheme_str() == other.scheme_str() && host(one) == host(other) && port(one) == port(other)
}

/// Returns whether `host` is one of `trusted`, or below one that starts with a dot.
pub(super) fn is_trusted(host: &str, trusted: &[String]) -> bool {
    let host = host.to_ascii_lowercase();
    trusted.iter().any(|name| {
        let name = name.to_ascii_lowercase();
        host == name || (name.starts_with('.') && host.ends_with(&name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(from: &str, method: &str, status: u16, location: &str) -> Result<Option<String>> {
        let mut headers = HeaderMap::new();
        if !location.is_empty() {
            headers.insert("location", location.parse().unwrap());
        }
        let about = About::writing("write", "webdav://h/d/x".to_owned());
        let status = StatusCode::from_u16(status).unwrap();
        let next = next_of(&from.parse().unwrap(), method, status, &headers, &about)?;
        Ok(next.map(|next| next.to_string()))
    }

    #[test]
    fn addresses_are_followed_as_they_are_meant() {
        let from = "http://h:81/d/x?q";
        for (location, wanted) in [
            ("https://p:4/y?token=t", "https://p:4/y?token=t"),
            ("//p/y", "http://p/y"),
            ("/y", "http://h:81/y"),
            ("y", "http://h:81/d/y"),
            ("y?next=http://z/", "http://h:81/d/y?next=http://z/"),
            ("/y?next=http://z/", "http://h:81/y?next=http://z/"),
            ("/y#z", "http://h:81/y"),
        ] {
            for (method, status) in [("GET", 302), ("PUT", 307), ("MOVE", 308)] {
                let found = next(from, method, status, location).unwrap();
                assert_eq!(found.as_deref(), Some(wanted), "{location}");
            }
        }
        assert_eq!(next(from, "PUT", 303, "/y").unwrap(), None);
        assert_eq!(next(from, "DELETE", 302, "/y").unwrap(), None);
        assert_eq!(next(from, "GET", 200, "/y").unwrap(), None);
    }

    #[test]
    fn what_can_not_be_followed_is_said() {
        for (location, words) in [
            ("http://p/y", "p without TLS"),
            ("", "no address"),
            ("ftp://p/y", "no address"),
            ("https://user:secret@p/y", "no address"),
        ] {
            let error = next("https://h/x", "PUT", 307, location).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn only_the_same_origin_is_the_same() {
        let is_same =
            |one: &str, other: &str| is_same_origin(&one.parse().unwrap(), &other.parse().unwrap());
        assert!(is_same("https://h/x", "https://H:443/y"));
        assert!(!is_same("https://h/x", "https://h.evil.example/x"));
        assert!(!is_same("http://h:80/x", "http://h:8080/x"));
        assert!(!is_same("http://h/x", "https://h/x"));
        let trusted = [".pools.example".to_owned(), "door.example".to_owned()];
        assert!(is_trusted("p1.Pools.example", &trusted));
        assert!(is_trusted("door.example", &trusted));
        for other in ["pools.example", "evilpools.example", "x.door.example"] {
            assert!(!is_trusted(other, &trusted), "{other}");
        }
    }
}
