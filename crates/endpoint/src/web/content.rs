//! Checks that the body of an answer is the stored content, unchanged on the way.

use http::{HeaderMap, Response, StatusCode, header};

use super::{
    About,
    place::{Answer, Place},
    refused, text_of,
};
use crate::{Error, ErrorKind, Result, endpoint::base_name};

/// Codings, and name endings of files stored in them: servers state the coding of `x.tar.gz` beside
/// bytes that are just those of the file.
const STORED_AS: [(&str, &[&str]); 9] = [
    ("gzip", GZIP),
    ("x-gzip", GZIP),
    ("compress", &["z", "taz"]),
    ("x-compress", &["z", "taz"]),
    ("br", &["br"]),
    ("zstd", &["zst", "tzst"]),
    ("bzip2", &["bz2", "tbz", "tbz2"]),
    ("x-bzip2", &["bz2", "tbz", "tbz2"]),
    ("xz", &["xz", "txz"]),
];

const GZIP: &[&str] = &["gz", "tgz", "bgz", "svgz", "gzip"];

/// Header values that servers write though they are no codings: the bytes are those of the file.
/// Uploads leave the last in what S3 keeps.
const NO_CODINGS: [&str; 8] = [
    "",
    "identity",
    "none",
    "binary",
    "8bit",
    "7bit",
    "utf-8",
    "aws-chunked",
];

/// Refuses a success without a file: a deferral, and an answer that a proxy changed.
///
/// # Errors
/// [`ErrorKind::Busy`] for 202; [`ErrorKind::Unsupported`] for any other but 200 and 206.
pub(crate) fn check_status<B>(answer: &Response<B>, about: &About) -> Result<()> {
    let status = answer.status();
    let (kind, hint, cause) = match status {
        StatusCode::OK | StatusCode::PARTIAL_CONTENT => return Ok(()),
        StatusCode::ACCEPTED => (
            ErrorKind::Busy,
            "try again later: it may be brought from tape",
            "has only taken note of it",
        ),
        StatusCode::NON_AUTHORITATIVE_INFORMATION => (
            ErrorKind::Unsupported,
            "go around it, with NO_PROXY for instance",
            "or a proxy before it has changed the content",
        ),
        _ => (
            ErrorKind::Unsupported,
            "try the address with curl -v",
            "sends no content",
        ),
    };
    let cause = format!("the server {cause} ({status})");
    Err(refused(
        about,
        status,
        answer.headers(),
        (kind, hint),
        cause,
    ))
}

/// Ends of names of pages, and of programs that make pages.
const PAGES: [&str; 8] = ["html", "htm", "xhtml", "shtml", "php", "asp", "aspx", "jsp"];

/// Refuses a page that came for the file at `path`, from an address of another name: a server that
/// wants to know who asks sends on to its login. What people name themselves may be a page if its
/// name does not say what it is.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`].
pub(super) fn refuse_page(
    place: &Place,
    path: &[u8],
    answer: &Answer,
    about: &About,
) -> Result<()> {
    let full = place.full(path);
    let name = base_name(&full);
    let dot = name.iter().rposition(|byte| *byte == b'.');
    let end = dot.map_or(&b""[..], |dot| &name[dot + 1..]);
    let says_page = |known: &&str| known.as_bytes().eq_ignore_ascii_case(end);
    let may_be_page = place.is_folder(path) || path.is_empty() && end.is_empty();
    let is_other = !may_be_page && !PAGES.iter().any(says_page);
    let response = &answer.response;
    match is_other && response.status().is_success() && is_page(response.headers()) {
        true => refuse_login(answer, about),
        false => Ok(()),
    }
}

/// Refuses a page from an address of another name than was asked for.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`].
pub(crate) fn refuse_login(answer: &Answer, about: &About) -> Result<()> {
    if !answer.is_renamed {
        return Ok(());
    }
    let host = answer.from.host().unwrap_or_default();
    let cause = format!(
        "it leads to a page, probably a login: {host}{}",
        answer.from.path()
    );
    Err(about
        .fail(ErrorKind::PermissionDenied)
        .cause(cause)
        .hint("check the credentials, see docs/reference/profiles.md"))
}

/// Returns whether a body is a page of HTML.
pub(crate) fn is_page(headers: &HeaderMap) -> bool {
    let kind = text_of(headers, "content-type").unwrap_or_default();
    kind.starts_with("text/html") || kind.starts_with("application/xhtml")
}

/// Refuses a body that was compressed without a request to. A file whose name says so is stored
/// compressed; a body generated while it is sent may be compressed once more.
///
/// # Errors
/// [`ErrorKind::Unsupported`].
pub(crate) fn check_coding(headers: &HeaderMap, path: &[u8], about: &About) -> Result<()> {
    let mut may_be_stored_so = !is_made_on_the_way(headers);
    let told = headers.get_all(header::CONTENT_ENCODING).iter();
    let told = told.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    for coding in told {
        let coding = String::from_utf8_lossy(coding).trim().to_ascii_lowercase();
        if NO_CODINGS.contains(&&*coding) {
            continue;
        }
        if !std::mem::take(&mut may_be_stored_so) || !is_stored_so(path, &coding) {
            return Err(changed(&coding, about));
        }
    }
    Ok(())
}

/// Returns whether an answer states a coding of its body.
pub(super) fn is_coded(headers: &HeaderMap) -> bool {
    let told = headers.get_all(header::CONTENT_ENCODING).iter();
    let mut told = told.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    told.any(|coding| {
        let coding = String::from_utf8_lossy(coding).trim().to_ascii_lowercase();
        !NO_CODINGS.contains(&&*coding)
    })
}

/// Returns whether a body is generated while it is sent: its length is unknown, or Apache marked
/// its version so.
fn is_made_on_the_way(headers: &HeaderMap) -> bool {
    let mut versions = headers.get_all(header::ETAG).iter();
    !headers.contains_key(header::CONTENT_LENGTH)
        || versions.any(|version| version.as_bytes().ends_with(b"-gzip\""))
}

fn is_stored_so(path: &[u8], coding: &str) -> bool {
    let dot = path.iter().rposition(|byte| *byte == b'.');
    let end = dot.map_or(&b""[..], |dot| &path[dot + 1..]);
    let is_so = |known: &&str| known.as_bytes().eq_ignore_ascii_case(end);
    let mut codings = STORED_AS.iter();
    codings.any(|(known, ends)| *known == coding && ends.iter().any(is_so))
}

fn changed(coding: &str, about: &About) -> Error {
    about
        .fail(ErrorKind::Unsupported)
        .cause(format!(
            "the server sends it compressed (Content-Encoding: {coding}), which was not asked for"
        ))
        .hint("have the server or the proxy before it send it as it is stored, or read it another way")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_what_is_stored_where_its_name_says_the_coding() {
        let about = About::reading("read", "https://h/x".to_owned());
        for (coding, path, is_right) in [
            ("gzip", "/d/x.tar.gz", true),
            ("x-gzip", "/d/X.TGZ", true),
            ("x-compress", "/d/x.Z", true),
            ("identity", "/d/x", true),
            ("UTF-8", "/d/x.csv", true),
            ("gzip", "/d/x.csv", false),
            ("br", "/d/x.gz", false),
            ("gzip, br", "/d/x.gz", false),
            ("gzip, gzip", "/d/x.gz", false),
            ("deflate", "/d/gz", false),
            ("what-is-that", "/d/x", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_ENCODING, coding.parse().unwrap());
            headers.insert(header::CONTENT_LENGTH, 7.into());
            let check = |headers: &HeaderMap| check_coding(headers, path.as_bytes(), &about);
            assert_eq!(check(&headers).is_ok(), is_right, "{coding} {path}");
            let is_coded = is_right && !NO_CODINGS.contains(&&*coding.to_ascii_lowercase());
            headers.insert(header::ETAG, "\"e-gzip\"".parse().unwrap());
            assert_eq!(check(&headers).is_ok(), is_right && !is_coded);
            headers.remove(header::ETAG);
            headers.remove(header::CONTENT_LENGTH);
            assert_eq!(check(&headers).is_ok(), is_right && !is_coded);
        }
    }

    #[test]
    fn a_success_without_content_is_none() {
        let about = About::reading("read", "https://h/x".to_owned());
        for (status, kind) in [
            (202, ErrorKind::Busy),
            (203, ErrorKind::Unsupported),
            (204, ErrorKind::Unsupported),
        ] {
            let answer = Response::builder().status(status).body(()).unwrap();
            assert_eq!(check_status(&answer, &about).unwrap_err().kind(), kind);
        }
    }
}
