//! Pages of List Blobs.

use super::object::Metadata;
use crate::{
    FileTime, dates,
    objects::listed_size,
    web::{decode, quoted},
    xml::{Ended, walk},
};

/// Result of one request for names, in the service's order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    pub found: Vec<Found>,
    /// Marker for the next page; none on the last.
    pub next: Option<String>,
}

/// Blob or, in a directory, prefix.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Object(Listed),
    /// Prefix into which names were grouped, with its slash.
    Below(String),
}

/// Blob in a listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listed {
    pub key: String,
    pub size: u64,
    pub etag: Option<Box<str>>,
    pub stored: Option<FileTime>,
    pub metadata: Metadata,
}

impl Page {
    /// Parses the service's answer.
    ///
    /// # Errors
    /// Description of the fault.
    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        let mut page = Self::default();
        let (mut object, mut sized) = (Listed::default(), false);
        let mut prefix = String::new();
        let mut whole = false;
        walk(body, known_name, |ended| {
            match (ended.above, ended.name) {
                ("Blob", "Name") => object.key = name_in(ended)?,
                ("BlobPrefix", "Name") => prefix = name_in(ended)?,
                ("Properties", "Content-Length") => {
                    object.size = listed_size(ended.text);
                    sized = true;
                }
                ("Properties", "Etag") => object.etag = Some(quoted(ended.text).into()),
                ("Properties", "Last-Modified") => object.stored = dates::parse_http(ended.text),
                ("Metadata", name) => object.metadata.add(name, ended.text),
                ("Blobs", "Blob") if !std::mem::take(&mut sized) => {
                    return Err(format!("no size of {}", object.key));
                }
                ("Blobs", "Blob") => page.found.push(Found::Object(std::mem::take(&mut object))),
                ("Blobs", "BlobPrefix") => {
                    sized = false;
                    page.found.push(Found::Below(std::mem::take(&mut prefix)));
                }
                ("EnumerationResults", "NextMarker") => {
                    page.next = Some(std::mem::take(ended.text)).filter(|next| !next.is_empty());
                }
                ("", "EnumerationResults") => whole = true,
                _ => {}
            }
            Ok(())
        })?;
        match whole {
            true => Ok(page),
            false => Err("no whole listing".to_owned()),
        }
    }
}

/// Returns a name; the service percent-encodes characters that XML can't hold.
fn name_in(ended: Ended<'_>) -> Result<String, String> {
    if !ended.encoded {
        return Ok(std::mem::take(ended.text));
    }
    let bytes = decode(ended.text).ok_or("an unreadable name")?;
    String::from_utf8(bytes).map_err(|_| "a name that is not UTF-8".to_owned())
}

/// Returns the names that matter, independent of their document's lifetime.
fn known_name(name: &str) -> &'static str {
    match name {
        "Name" => "Name",
        "Blob" => "Blob",
        "Blobs" => "Blobs",
        "BlobPrefix" => "BlobPrefix",
        "Properties" => "Properties",
        "Metadata" => "Metadata",
        "Content-Length" => "Content-Length",
        "Etag" => "Etag",
        "Last-Modified" => "Last-Modified",
        "NextMarker" => "NextMarker",
        "EnumerationResults" => "EnumerationResults",
        name => Metadata::known_name(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read() {
        let text = "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?>\
            <EnumerationResults ServiceEndpoint=\"http://x/\" ContainerName=\"c\">\
            <Prefix>not/this</Prefix><Blobs>\
            <Blob><Name>a&amp;b c%20d</Name><Properties>\
            <Last-Modified>Mon, 12 Oct 2009 17:50:30 GMT</Last-Modified><Etag>0x8D</Etag>\
            <Content-Length>3</Content-Length><BlobType>BlockBlob</BlobType></Properties>\
            <Metadata><Mtime>2009-10-12T17:50:30.25Z</Mtime><mode>100640</mode><x>y</x></Metadata>\
            <OrMetadata /></Blob>\
            <BlobPrefix><Name>b/</Name></BlobPrefix>\
            <Blob><Name Encoded=\"true\">c%EF%BF%BE</Name><Properties>\
            <Content-Length>0</Content-Length></Properties></Blob>\
            </Blobs><NextMarker>t</NextMarker></EnumerationResults>";
        let page = Page::parse(text.as_bytes()).unwrap();
        let Found::Object(first) = &page.found[0] else {
            panic!("it is a blob");
        };
        assert_eq!((&*first.key, first.size), ("a&b c%20d", 3));
        assert_eq!(first.etag.as_deref(), Some("\"0x8D\""));
        assert_eq!(first.stored.unwrap().secs, 1_255_369_830);
        let mtime = FileTime {
            secs: 1_255_369_830,
            nanos: 250_000_000,
        };
        assert_eq!(first.metadata.mtime, Some(mtime));
        assert_eq!(first.metadata.mode, Some(0o640));
        assert_eq!(page.found[1], Found::Below("b/".to_owned()));
        let Found::Object(last) = &page.found[2] else {
            panic!("it is a blob");
        };
        assert_eq!(last.key, "c\u{fffe}");
        assert_eq!(last.metadata, Metadata::default());
        assert_eq!(page.next.as_deref(), Some("t"));
    }

    #[test]
    fn the_last_page_asks_for_none() {
        let text = "<EnumerationResults><Blobs /><NextMarker /></EnumerationResults>";
        let page = Page::parse(text.as_bytes()).unwrap();
        assert_eq!(page, Page::default());
        let text =
            "<EnumerationResults><Blobs></Blobs><NextMarker></NextMarker></EnumerationResults>";
        assert_eq!(Page::parse(text.as_bytes()).unwrap().next, None);
    }

    #[test]
    fn a_broken_page_is_no_short_page() {
        for text in [
            "<EnumerationResults><Blobs><Blob><Name>a</Name>",
            "<EnumerationResults><Blobs><Blob><Name Encoded=\"true\">%zz</Name></Blob></Blobs>\
             </EnumerationResults>",
            "</EnumerationResults>",
            "",
            "<html></html>",
        ] {
            assert!(Page::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
