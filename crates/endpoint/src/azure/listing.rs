//! Listings of directories and trees, one page ahead of the reader.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{
    client::AzureClient,
    page::{Found, Listed, Page},
};
use crate::{
    Error, ErrorKind, Locus, Result,
    endpoint::{Boxed, Entry, Kind, Listing},
    limits::Limits,
    objects::{Circle, KeysListing, take_link},
};

/// Form of a written mark: the version, whether the listing is of one directory, its position and
/// the directories it reported.
const MARK_FORM: u8 = 1;

/// Position of a listing.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
enum Stand {
    Start,
    /// After a page; the service's marker requests the next one.
    Behind(String),
    End,
}

pub(crate) struct AzureListing {
    client: Arc<AzureClient>,
    prefix: Arc<str>,
    flat: bool,
    stand: Stand,
    circle: Circle,
    told: Told,
    flying: JoinSet<Result<Page>>,
    limits: Option<Limits>,
}

impl KeysListing for AzureListing {
    type Store = AzureClient;

    fn new(client: Arc<AzureClient>, prefix: String, flat: bool) -> Self {
        Self {
            client,
            prefix: prefix.into(),
            flat,
            stand: Stand::Start,
            circle: Circle::default(),
            told: Told::default(),
            flying: JoinSet::new(),
            limits: None,
        }
    }

    fn held_to(self, limits: Option<Limits>) -> Self {
        Self { limits, ..self }
    }

    fn resumed(client: Arc<AzureClient>, prefix: String, mark: &[u8]) -> Result<Self> {
        let read: Result<(u8, bool, Stand, Vec<String>), _> = serde_json::from_slice(mark);
        match read {
            Ok((MARK_FORM, flat, stand, told)) => Ok(Self {
                stand,
                told: Told(told),
                ..Self::new(client, prefix, flat)
            }),
            Ok(_) | Err(_) => {
                Err(
                    Error::new(ErrorKind::Invalid, "go on listing", client.show(&prefix))
                        .cause("the mark of where it was can't be read")
                        .hint("start the listing anew"),
                )
            }
        }
    }
}

impl AzureListing {
    /// Requests the next page, unless it is in flight or there is none.
    fn ask_ahead(&mut self) {
        if !self.flying.is_empty() || self.stand == Stand::End {
            return;
        }
        let (client, prefix) = (Arc::clone(&self.client), Arc::clone(&self.prefix));
        let (stand, flat, limits) = (self.stand.clone(), self.flat, self.limits.clone());
        self.flying.spawn(async move {
            let _place = match &limits {
                Some(limits) => Some(limits.enter().await),
                None => None,
            };
            let mut query = Vec::new();
            if flat {
                query.push(("delimiter", "/"));
            }
            if let Stand::Behind(marker) = &stand {
                query.push(("marker", &**marker));
            }
            client.ask_page(&prefix, &query).await
        });
    }

    async fn read_page(&mut self) -> Result<Option<Vec<Entry>>> {
        self.ask_ahead();
        let Some(arrived) = self.flying.join_next().await else {
            return Ok(None);
        };
        let shown = self.client.show(self.prefix.trim_end_matches('/'));
        let fail = || Error::new(ErrorKind::Other, "list", &*shown).at(Locus::Source);
        let page = arrived.map_err(|cause| fail().cause(cause))??;
        let next = match page.next {
            Some(marker) => Stand::Behind(marker),
            None => Stand::End,
        };
        let last = page.found.last().map(|last| match last {
            Found::Object(Listed { key, .. }) | Found::Below(key) => key.as_bytes(),
        });
        if let Stand::Behind(marker) = &next
            && self.circle.closes(marker.as_bytes(), last)
        {
            return Err(fail().cause("the service's list comes to no end"));
        }
        self.stand = next;
        self.ask_ahead();
        let entries = self.told.entries(page.found, &self.prefix);
        let entries = entries.ok_or_else(|| fail().cause("the service lists other names too"))?;
        Ok(Some(entries))
    }
}

/// Directories already reported with which later names may still begin. Blobs of a directory are
/// contiguous, but a blob that stands for a directory comes some names before them.
#[derive(Debug, Default)]
struct Told(Vec<String>);

impl Told {
    /// Converts a page to entries, directories before their content; `None` for names not below
    /// `prefix`.
    fn entries(&mut self, found: Vec<Found>, prefix: &str) -> Option<Vec<Entry>> {
        let mut entries = Vec::with_capacity(found.len());
        for found in found {
            match found {
                Found::Below(key) => {
                    let name = key.strip_prefix(prefix)?.trim_end_matches('/');
                    self.forget_but(name);
                    self.tell(name, &mut entries);
                }
                Found::Object(object) => {
                    let name = object.key.strip_prefix(prefix)?.to_owned();
                    self.add(&name, object, &mut entries);
                }
            }
        }
        Some(entries)
    }

    fn add(&mut self, name: &str, object: Listed, entries: &mut Vec<Entry>) {
        let stem = name.trim_end_matches('/');
        if stem.is_empty() && object.size == 0 {
            return;
        }
        self.forget_but(stem);
        for (cut, _) in stem.match_indices('/') {
            self.tell(&stem[..cut], entries);
        }
        if !stem.is_empty() && stem.len() < name.len()
            || (object.metadata.is_folder && object.size == 0)
        {
            if self.tell(stem, entries)
                && let Some(told) = entries.last_mut()
            {
                told.mtime = object.metadata.mtime;
                told.mode = object.metadata.mode;
            }
            // With bytes it has a name that no file system has; the copy reports it.
            if object.size == 0 {
                return;
            }
        }
        let mut name = name.as_bytes().to_vec();
        let kind = match take_link(&mut name) {
            true => Kind::Link,
            false => Kind::File,
        };
        entries.push(Entry {
            name,
            kind,
            size: object.size,
            mtime: object.metadata.mtime.or(object.stored),
            stored: None,
            mode: object.metadata.mode,
            version: object.etag,
        });
    }

    /// Forgets directories with which `name` does not begin: nothing in them is still to come.
    fn forget_but(&mut self, name: &str) {
        self.0.retain(|told| name.starts_with(&**told));
    }

    /// Reports a directory, unless that was done. Returns whether it did.
    fn tell(&mut self, directory: &str, entries: &mut Vec<Entry>) -> bool {
        if self.0.iter().any(|told| told == directory) {
            return false;
        }
        self.0.push(directory.to_owned());
        let name = directory.as_bytes().to_vec();
        entries.push(Entry::bare(name, Kind::Directory));
        true
    }
}

impl Listing for AzureListing {
    fn next_page(&mut self) -> Boxed<'_, Result<Vec<Entry>>> {
        Box::pin(async {
            // An empty page may be followed by another one.
            while let Some(page) = self.read_page().await? {
                if !page.is_empty() {
                    return Ok(page);
                }
            }
            Ok(Vec::new())
        })
    }

    fn counts_itself(&self) -> bool {
        self.limits.is_some()
    }

    fn mark(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(&(MARK_FORM, self.flat, &self.stand, &self.told.0)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(key: &str, is_folder: bool) -> Found {
        let mut listed = Listed {
            key: key.to_owned(),
            ..Listed::default()
        };
        listed.metadata.is_folder = is_folder;
        Found::Object(listed)
    }

    fn told(pages: Vec<Vec<Found>>) -> Vec<(String, Kind)> {
        let mut told = Told::default();
        let pages = pages.into_iter();
        let entries = pages.flat_map(|page| told.entries(page, "p/").unwrap());
        let names = entries.map(|entry| (String::from_utf8(entry.name).unwrap(), entry.kind));
        names.collect()
    }

    #[test]
    fn each_directory_is_told_once_and_before_what_it_holds() {
        let found = told(vec![
            vec![
                object("p/", true),
                object("p/0", false),
                object("p/a", true),
                object("p/a-b/z", false),
            ],
            vec![object("p/a/", true), object("p/a/deep/x", false)],
            vec![
                object("p/a/deep/y", false),
                object("p/a/z.rclonelink", false),
                object("p/b/", true),
            ],
        ]);
        let name = |name: &str, kind| (name.to_owned(), kind);
        let (file, directory) = (Kind::File, Kind::Directory);
        assert_eq!(
            found,
            [
                name("0", file),
                name("a", directory),
                name("a-b", directory),
                name("a-b/z", file),
                name("a/deep", directory),
                name("a/deep/x", file),
                name("a/deep/y", file),
                name("a/z", Kind::Link),
                name("b", directory),
            ]
        );
    }

    #[test]
    fn prefixes_and_objects_that_stand_for_them_are_one_directory() {
        let below = |key: &str| Found::Below(key.to_owned());
        let found = told(vec![
            vec![object("p/a", true), object("p/a.txt", false)],
            vec![below("p/a/"), below("p/b/")],
        ]);
        let names: Vec<&str> = found.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["a", "a.txt", "b"]);
        assert!(
            Told::default()
                .entries(vec![object("q/a", false)], "p/")
                .is_none()
        );
    }
}
