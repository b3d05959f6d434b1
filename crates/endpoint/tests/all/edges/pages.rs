//! Pages of Azure and GCS that repeat, are empty or lack fields, and one unreadable object among
//! others.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use posthaste_endpoint::{Endpoint, Error, ErrorKind, Kind, Locus};
use posthaste_testbed::odd::{Answer, Asked, Server};

use crate::edges::{
    azure, gcs, s3, says,
    stores::list,
    table::{End, shown},
};

/// Returns a page of Azure of these names below `t/`.
fn azure_page(names: &[&str], size: &str, next: &str) -> Answer {
    let objects: String = names
        .iter()
        .map(|name| format!("<Blob><Name>t/{name}</Name><Properties>{size}</Properties></Blob>"))
        .collect();
    let text = format!(
        "<EnumerationResults><Blobs>{objects}</Blobs><NextMarker>{next}</NextMarker></EnumerationResults>"
    );
    Answer::sized(200, "", text)
}

const ONE_BYTE: &str = "<Content-Length>1</Content-Length>";

/// Returns a page of GCS of these names below `t/`.
fn gcs_page(names: &[&str], size: &str, next: &str) -> Answer {
    let items: Vec<String> = names
        .iter()
        .map(|name| format!(r#"{{"name":"t/{name}","generation":"1"{size}}}"#))
        .collect();
    let text = format!(r#"{{"items":[{}]{next}}}"#, items.join(","));
    Answer::sized(200, "", text)
}

const SIZE_OF_ONE: &str = r#","size":"1""#;

#[tokio::test(flavor = "multi_thread")]
async fn pages_that_come_round_end() {
    // A single page again, or two in alternation.
    for turns in [1, 2] {
        let server = Server::start(move |asked| {
            let first = turns == 1 || !asked.target.contains("marker=x");
            azure_page(&["a"], ONE_BYTE, if first { "x" } else { "y" })
        })
        .await;
        says(list(&*azure(&server).await).await, "comes to no end");
        let server = Server::start(move |asked| {
            let first = turns == 1 || !asked.target.contains("pageToken=x");
            let next = if first { "x" } else { "y" };
            gcs_page(
                &["a"],
                SIZE_OF_ONE,
                &format!(r#","nextPageToken":"{next}""#),
            )
        })
        .await;
        assert!(list(&*gcs(&server).await).await.is_err());
    }
    shown("Azure, Google", "pages come round", End::Refused);
}

/// Returns a page of S3 of these names below `t/`.
fn s3_page(names: &[&str], next: &str) -> Answer {
    let objects: String = names
        .iter()
        .map(|name| format!("<Contents><Key>t/{name}</Key><Size>1</Size></Contents>"))
        .collect();
    let more = match next {
        "" => String::new(),
        next => format!(
            "<IsTruncated>true</IsTruncated><NextContinuationToken>{next}</NextContinuationToken>"
        ),
    };
    Answer::sized(
        200,
        "",
        format!("<ListBucketResult>{objects}{more}</ListBucketResult>"),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn one_object_again_and_again_ends() {
    // Under a new token each time, and alone or in alternation.
    for names in [&["a"][..], &["b", "a"]] {
        let count = AtomicUsize::new(0);
        let next = move || {
            let count = count.fetch_add(1, Relaxed);
            ([names[count % names.len()]], format!("n{count}"))
        };
        let server = Server::start(move |asked| {
            let (names, token) = next();
            match &*asked.target {
                target if target.starts_with("/storage/") => gcs_page(
                    &names,
                    SIZE_OF_ONE,
                    &format!(r#","nextPageToken":"{token}""#),
                ),
                target if target.contains("comp=list") => azure_page(&names, ONE_BYTE, &token),
                _ => s3_page(&names, &token),
            }
        })
        .await;
        says(list(&*azure(&server).await).await, "comes to no end");
        for endpoint in [gcs(&server).await, s3(&server)] {
            says(list(&*endpoint).await, "again and again");
        }
    }
    shown(
        "S3, Azure, Google",
        "one object comes again and again",
        End::Refused,
    );
}

/// Answers with `first`, and then with the last page.
fn in_two(asked: &Asked, first: impl Fn() -> Answer, last: impl Fn() -> Answer) -> Answer {
    let goes_on = ["marker=x", "pageToken=x", "continuation-token=x"];
    match goes_on.iter().any(|text| asked.target.contains(text)) {
        true => last(),
        false => first(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_page_with_more_behind_it_is_not_all() {
    let of_azure = Server::start(|asked| match &*asked.method {
        "HEAD" => Answer::sized(404, "", ""),
        _ => in_two(
            asked,
            || azure_page(&[], "", "x"),
            || azure_page(&["a"], ONE_BYTE, ""),
        ),
    })
    .await;
    let of_gcs = Server::start(|asked| match asked.target.contains("/o/") {
        true => Answer::sized(404, "", ""),
        false => in_two(
            asked,
            || gcs_page(&[], "", r#","nextPageToken":"x""#),
            || gcs_page(&["a"], SIZE_OF_ONE, r#","nextPageToken":"""#),
        ),
    })
    .await;
    let of_s3 = Server::start(|asked| match &*asked.method {
        "HEAD" => Answer::sized(404, "", ""),
        _ => in_two(
            asked,
            || {
                let more = "<ListBucketResult><IsTruncated>true</IsTruncated>\
                    <NextContinuationToken>x</NextContinuationToken></ListBucketResult>";
                Answer::sized(200, "", more)
            },
            || {
                let one = "<ListBucketResult><Contents><Key>t/a</Key><Size>1</Size></Contents>\
                    </ListBucketResult>";
                Answer::sized(200, "", one)
            },
        ),
    })
    .await;
    for endpoint in [azure(&of_azure).await, gcs(&of_gcs).await, s3(&of_s3)] {
        assert!(endpoint.stat(b"", true).await.unwrap().is_some());
        let entries = list(&*endpoint).await.unwrap();
        assert_eq!((entries.len(), &*entries[0].name), (1, &b"a"[..]));
    }
    shown(
        "S3, Azure, Google",
        "an empty page has more behind it",
        End::Right,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_without_sizes_and_answers_that_are_none_are_refused() {
    let server = Server::start(|_| azure_page(&["a"], "", "")).await;
    says(list(&*azure(&server).await).await, "no size");
    let server = Server::start(|_| gcs_page(&["a"], "", "")).await;
    says(list(&*gcs(&server).await).await, "size");
    shown("Azure, Google", "a page tells no sizes", End::Refused);
    let error = r#"{"error":{"code":500,"message":"later"}}"#;
    let server = Server::start(move |_| Answer::sized(200, "", error)).await;
    says(list(&*gcs(&server).await).await, "tells of an error");
    shown(
        "Google",
        "a listing succeeds and tells of an error",
        End::Refused,
    );
}

/// Reads the objects `a`, `b` and `c`, one of which must be refused.
async fn one_of_three(endpoint: &dyn Endpoint) -> Error {
    let mut refused = None;
    for entry in list(endpoint).await.unwrap() {
        match endpoint.get(&entry.name, &entry).await {
            Ok(whole) => assert_eq!(whole.data.concat(), b"x"),
            Err(error) => {
                assert_eq!(entry.name, b"b");
                refused = Some(error);
            }
        }
    }
    refused.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_object_that_can_not_be_read_is_one_object() {
    let names = ["a", "b", "c"];
    for (status, code, kind) in [
        (409, "BlobArchived", ErrorKind::Unsupported),
        (409, "BlobBeingRehydrated", ErrorKind::Unsupported),
        (
            403,
            "AuthorizationPermissionMismatch",
            ErrorKind::PermissionDenied,
        ),
    ] {
        let refusal = format!("x-ms-error-code: {code}\r\n");
        let server = Server::start(move |asked| {
            let path = asked.target.split('?').next().unwrap();
            match path {
                path if path.ends_with("/t/b") => Answer::sized(status, &refusal, ""),
                path if path.contains("/t/") => Answer::sized(200, "etag: \"e\"\r\n", "x"),
                _ => azure_page(&names, ONE_BYTE, ""),
            }
        })
        .await;
        let error = one_of_three(&*azure(&server).await).await;
        assert_eq!((error.kind(), error.locus()), (kind, Locus::Source));
    }
    for (status, message) in [
        (403, "no access to the object"),
        (
            401,
            "Anonymous caller does not have storage.objects.get access",
        ),
    ] {
        let server = Server::start(move |asked| {
            let path = asked.target.split('?').next().unwrap();
            match path {
                path if path.ends_with("/t%2Fb") => Answer::sized(status, "", message),
                path if path.contains("/t%2F") => Answer::sized(200, "", "x"),
                _ => gcs_page(&names, SIZE_OF_ONE, ""),
            }
        })
        .await;
        let error = one_of_three(&*gcs(&server).await).await;
        let found = (error.kind(), error.locus());
        assert_eq!(found, (ErrorKind::PermissionDenied, Locus::Source));
    }
    shown(
        "Azure, Google",
        "one object of many is archived or forbidden",
        End::LeftOut,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_with_the_name_of_a_directory_is_told() {
    for has_object in [true, false] {
        let server = Server::start(move |asked| {
            let target = &*asked.target;
            let path = target.split('?').next().unwrap_or_default();
            let is_object = path.ends_with("/t") || path.ends_with("%2Ft");
            let missing = || Answer::sized(404, "", "");
            match target {
                _ if is_object && !has_object => missing(),
                _ if path == "/storage/v1/b/b/o/t" => {
                    Answer::sized(200, "", r#"{"name":"t","size":"1","generation":"1"}"#)
                }
                _ if path.ends_with("/t") => Answer::sized(200, "etag: \"e\"\r\n", "x"),
                _ if path == "/storage/v1/b/b/o" => gcs_page(&["y"], SIZE_OF_ONE, ""),
                target if target.contains("comp=list") => azure_page(&["y"], ONE_BYTE, ""),
                target if target.contains("list-type") => s3_page(&["y"], ""),
                _ => missing(),
            }
        })
        .await;
        for endpoint in [azure(&server).await, gcs(&server).await, s3(&server)] {
            let found = endpoint.stat(b"", true).await.unwrap().unwrap();
            assert_eq!(found.kind, Kind::Directory);
            assert_eq!(list(&*endpoint).await.unwrap().len(), 1);
            let told = endpoint.namesake().map(|error| error.to_string());
            assert_eq!(told.is_some(), has_object, "{told:?}");
            assert!(told.is_none_or(|told| told.contains("the name of this directory")));
        }
    }
    shown(
        "S3, Azure, Google",
        "an object has the name of a directory",
        End::LeftOut,
    );
}
