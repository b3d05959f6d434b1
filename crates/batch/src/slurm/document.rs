//! Reader of a document of Slurm with a list, as a stream. Each item is parsed by itself, so an
//! invalid item costs only itself. Memory grows only with the data that is kept of the items.

use std::{
    cell::Cell,
    fmt,
    io::{self, BufReader, Read},
};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::queue::Unreadable;

/// Bytes read at once.
const READ_BYTES: usize = 128 << 10;
/// Longest item of a list, in bytes. Slurm names every core of a job, some 20 MB for ten thousand
/// nodes, with indentation.
const ITEM_BYTES_MAX: u64 = 64 << 20;
/// Largest value beside the list that is kept, in bytes: errors, or the plug-in that answers.
const ASIDE_BYTES_MAX: u64 = 1 << 20;
/// Most characters of a complaint that are reported.
const TOLD_MAX: usize = 400;

/// Name of the document, for errors, and of its list.
#[derive(Debug, Clone, Copy)]
pub(super) struct What {
    pub(super) name: &'static str,
    pub(super) list: &'static str,
}

/// Reads a document, and passes each item of its list to `take`; `None` for an invalid item.
///
/// # Errors
/// [`Unreadable`] if the document is not JSON, ends early, has no list, or has an item of more than
/// 64 MiB. Also if Slurm reports an error, even beside a list: the list ends where the error was.
pub(super) fn read<T: DeserializeOwned>(
    what: What,
    from: impl Read,
    mut take: impl FnMut(Option<T>),
) -> Result<(), Unreadable> {
    let unreadable = |why: &str| Unreadable::new(what.name, why);
    let mut found = 0u64;
    let mut take = |item: &RawValue| {
        found += 1;
        take(serde_json::from_str(item.get()).ok());
    };
    let bound = Bound::default();
    let reading = Document {
        list: what.list,
        take: &mut take,
        bound: &bound,
    };
    let from = Legible {
        from,
        bound: &bound,
    };
    let from = BufReader::with_capacity(READ_BYTES, from);
    let mut json = serde_json::Deserializer::from_reader(from);
    let rest = reading.deserialize(&mut json);
    let rest = rest.and_then(|rest| json.end().map(|()| rest));
    let rest = rest.map_err(|cause| unreadable(&cause.to_string()))?;
    match rest.complaint() {
        Some(complaint) if found == 0 => Err(unreadable(&complaint)),
        Some(complaint) => Err(unreadable(&format!(
            "its list of {} is not whole: {complaint}",
            what.list
        ))),
        None if !rest.has_list => Err(unreadable(&format!("it has no list of {}", what.list))),
        None => Ok(()),
    }
}

/// Limit on the bytes read until the current value ends, as the parser keeps it in memory.
struct Bound {
    left: Cell<u64>,
    most: Cell<u64>,
}

impl Default for Bound {
    fn default() -> Self {
        let bytes = || Cell::new(ASIDE_BYTES_MAX);
        Self {
            left: bytes(),
            most: bytes(),
        }
    }
}

impl Bound {
    /// Begins a value of up to `most` bytes, including bytes read ahead.
    fn begin(&self, most: u64) {
        self.left.set(most);
        self.most.set(most);
    }

    fn take(&self, bytes: usize) -> io::Result<()> {
        let left = self.left.get().checked_sub(bytes as u64);
        self.left.set(left.unwrap_or(0));
        left.map(|_| ()).ok_or_else(|| {
            let most = self.most.get() >> 20;
            io::Error::other(format!("one thing in it is longer than {most} MiB"))
        })
    }
}

/// Reader that replaces bytes outside ASCII by `?`. Slurm passes on users' text as they wrote it,
/// and it may not be valid UTF-8.
struct Legible<'b, R> {
    from: R,
    bound: &'b Bound,
}

impl<R: Read> Read for Legible<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(into)?;
        self.bound.take(read)?;
        for byte in &mut into[..read] {
            if !byte.is_ascii() {
                *byte = b'?';
            }
        }
        Ok(read)
    }
}

/// Content of a document beside its list.
#[derive(Default)]
struct Rest {
    has_list: bool,
    errors: Vec<Trouble>,
    meta: Meta,
}

impl Rest {
    /// Returns Slurm's first error and the plug-in that reports it, cut to the length of a line.
    fn complaint(&self) -> Option<String> {
        let told = self.errors.iter().find_map(|trouble| match trouble {
            Trouble::Told { error, description } => error.as_ref().or(description.as_ref()),
            Trouble::Other(_) => None,
        })?;
        let plugin = &self.meta.plugin;
        let by = plugin.data_parser.as_ref().or(plugin.r#type.as_ref());
        Some(match by {
            Some(by) => format!("{} (by {})", short(told), short(by)),
            None => short(told),
        })
    }
}

/// Cuts a text that is too long to report.
fn short(told: &str) -> String {
    match told.char_indices().nth(TOLD_MAX) {
        Some((end, _)) => format!("{}…", &told[..end]),
        None => told.to_owned(),
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Trouble {
    Told {
        error: Option<String>,
        description: Option<String>,
    },
    Other(IgnoredAny),
}

#[derive(Deserialize, Default)]
struct Meta {
    #[serde(default)]
    plugin: Plugin,
}

/// Version of the plug-in: in `type` until 23.02, later in `data_parser`.
#[derive(Deserialize, Default)]
struct Plugin {
    r#type: Option<String>,
    data_parser: Option<String>,
}

/// Returns Slurm's error in the answer to a refused request; `None` if it is no such answer.
#[must_use]
pub fn complaint(answer: &[u8]) -> Option<String> {
    let mut ignore = |_: &RawValue| {};
    let reading = Document {
        list: "",
        take: &mut ignore,
        bound: &Bound::default(),
    };
    let mut json = serde_json::Deserializer::from_slice(answer);
    let told = reading.deserialize(&mut json).ok()?.complaint()?;
    Some(told.escape_debug().to_string())
}

/// Deserializer of the document.
struct Document<'t> {
    list: &'static str,
    take: &'t mut dyn FnMut(&RawValue),
    bound: &'t Bound,
}

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = Rest;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Rest, D::Error> {
        input.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = Rest;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Rest, M::Error> {
        let mut rest = Rest::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "errors" => rest.errors = map.next_value()?,
                "meta" => rest.meta = map.next_value()?,
                key if key == self.list => {
                    let (take, bound) = (&mut *self.take, self.bound);
                    rest.has_list = map.next_value_seed(List { take, bound })?;
                }
                _ => {
                    // The parser keeps none of it.
                    self.bound.begin(u64::MAX);
                    map.next_value::<IgnoredAny>()?;
                }
            }
            self.bound.begin(ASIDE_BYTES_MAX);
        }
        Ok(rest)
    }
}

/// Deserializer of the list; returns whether there is one.
struct List<'t> {
    take: &'t mut dyn FnMut(&RawValue),
    bound: &'t Bound,
}

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<bool, D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<bool, S::Error> {
        self.bound.begin(ITEM_BYTES_MAX);
        while let Some(item) = list.next_element::<Box<RawValue>>()? {
            (self.take)(&item);
            self.bound.begin(ITEM_BYTES_MAX);
        }
        Ok(true)
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }
}
