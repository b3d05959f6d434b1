//! Listings, page by page.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{entry::read_entry, refusal::Doing, remote::Remote, session::Ask, wire::encode_name};
use crate::{
    Result,
    endpoint::{Boxed, Entry, Listing},
    objects::Circle,
};

pub(super) use super::entry::Names;

/// Direction of a listing, and its progress.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Course {
    names: Names,
    follow: bool,
    /// Start of the next page, in the plug-in's own words; `None` at the end.
    from: Option<Value>,
}

impl Course {
    pub(super) fn start(names: Names, follow: bool) -> Self {
        Self {
            names,
            follow,
            from: Some(Value::Null),
        }
    }

    /// Returns a text that [`Course::read`] understands.
    fn write(&self) -> Vec<u8> {
        let is_tree = self.names == Names::Paths;
        let course = serde_json::json!([is_tree, self.follow, self.from.is_some(), self.from]);
        course.to_string().into_bytes()
    }

    pub(super) fn read(mark: &[u8]) -> Option<Self> {
        let (is_tree, follow, goes_on, from): (bool, bool, bool, Value) =
            serde_json::from_slice(mark).ok()?;
        Some(Self {
            names: if is_tree { Names::Paths } else { Names::Single },
            follow,
            from: goes_on.then_some(from),
        })
    }
}

/// Directory or tree being listed.
pub(super) struct PluginListing {
    remote: Arc<Remote>,
    path: Vec<u8>,
    course: Course,
    /// First page, read already to check that the directory is there.
    first: Option<Vec<Entry>>,
    circle: Circle,
}

impl PluginListing {
    /// Starts a listing by reading its first page.
    pub(super) async fn start(remote: Arc<Remote>, path: &[u8], course: Course) -> Result<Self> {
        let mut listing = Self {
            remote,
            path: path.to_vec(),
            course,
            first: None,
            circle: Circle::default(),
        };
        listing.first = Some(listing.read_page().await?);
        Ok(listing)
    }

    /// Reads a page; after an error the same one again.
    async fn read_page(&mut self) -> Result<Vec<Entry>> {
        while let Some(from) = self.course.from.clone() {
            let op = match self.course.names {
                Names::Single => "list",
                Names::Paths => "list-tree",
            };
            let ask = Ask::new(op)
                .with("path", encode_name(&self.path))
                .with("follow", self.course.follow)
                .with("from", from);
            let mut answer = self.remote.ask(ask, Doing::LIST, &self.path).await?;
            let page = self.entries(&answer)?;
            let next = answer.remove("next").filter(|next| !next.is_null());
            let last = page.last().map(|last| &*last.name);
            let mark = next.as_ref().map(Value::to_string);
            // A plug-in that always promises another page would keep us for ever.
            if mark.is_some_and(|mark| self.circle.closes(mark.as_bytes(), last)) {
                let nonsense = "page after page, without end";
                return Err(self.remote.nonsense(Doing::LIST, &self.path, nonsense));
            }
            self.course.from = next;
            if !page.is_empty() {
                return Ok(page);
            }
        }
        Ok(Vec::new())
    }

    fn entries(&self, answer: &Map<String, Value>) -> Result<Vec<Entry>> {
        let entries = answer.get("entries").and_then(Value::as_array);
        let entries = entries.map(Vec::as_slice).unwrap_or_default();
        let read = entries.iter().map(|entry| {
            read_entry(entry, Some(self.course.names)).ok_or_else(|| {
                self.remote
                    .nonsense(Doing::LIST, &self.path, "an impossible entry")
            })
        });
        read.collect()
    }
}

impl Listing for PluginListing {
    fn next_page(&mut self) -> Boxed<'_, Result<Vec<Entry>>> {
        Box::pin(async {
            match self.first.take() {
                Some(page) => Ok(page),
                None => self.read_page().await,
            }
        })
    }

    fn mark(&self) -> Option<Vec<u8>> {
        // A page that was read but not handed out yet would be lost.
        let is_told = self.first.is_none();
        (is_told && self.remote.greeting.capabilities.marks).then(|| self.course.write())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_lead_back_to_where_they_were_made() {
        let start = Course::start(Names::Paths, true);
        let middle = Course {
            from: Some("caf%E9".into()),
            ..Course::start(Names::Single, false)
        };
        let end = Course {
            from: None,
            ..start.clone()
        };
        for course in [start, middle, end] {
            assert_eq!(Course::read(&course.write()), Some(course));
        }
        for bad in ["", "7", "[true,false,true]", "[true,false,true,0,0]", "{}"] {
            assert_eq!(Course::read(bad.as_bytes()), None, "{bad}");
        }
    }
}
