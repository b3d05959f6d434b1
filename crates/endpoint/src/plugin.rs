//! Stores that other programs reach: a plug-in is a process that speaks a line protocol on its
//! standard input and output (`docs/reference/plugin-protocol.md`), written in any language.
//!
//! A process serves one address, many requests at a time. Its output is not trusted: lines,
//! payloads, names and figures have limits, and exceeding them ends the process. Requests under way
//! then fail as temporary, and the next one restarts it.

mod board;
mod call;
mod catalog;
mod check;
mod draft;
mod entry;
mod greeting;
mod listing;
mod process;
mod refusal;
mod remote;
mod session;
mod trial;
mod wire;

use std::{collections::BTreeMap, ffi::OsString, ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use serde_json::{Map, Value};

use crate::{
    Capabilities, Checksum, Error, ErrorKind, FileTime, Result,
    access::Chosen,
    config,
    endpoint::{
        Boxed, ByteStream, Endpoint, Entry, FileSpec, Listing, Reader, Whole, Writer, join,
        no_links,
    },
    posix::DraftRules,
};
pub use catalog::{Configured, configured};
use draft::PluginWriter;
use listing::{Course, Names, PluginListing};
use refusal::Doing;
use remote::{Remote, attributed, dressed, is_same};
use session::{Ask, Session, Unstarted};
use wire::{decode_name, encode_name};

/// Time limits of a plug-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Time limit of the hello.
    pub greeted: Duration,
    /// Timeout between two messages about a pending request.
    pub quiet: Duration,
    /// Time limit for ending a cancelled request.
    pub cancelled: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            // A plug-in may load an interpreter from a busy file system, and log in somewhere.
            greeted: Duration::from_secs(60),
            quiet: Duration::from_secs(60),
            cancelled: Duration::from_secs(10),
        }
    }
}

/// Command that starts a plug-in, and its input.
#[derive(Clone)]
pub struct Launch {
    /// Scheme of its addresses.
    pub scheme: String,
    /// Program and its arguments.
    pub command: Vec<OsString>,
    /// Settings of its users, without secrets.
    pub settings: Map<String, Value>,
    /// Credentials: passed in its first line, never in arguments or the environment.
    pub profile: BTreeMap<String, String>,
    /// Time limits.
    pub patience: Patience,
}

impl Launch {
    /// Finds how to start the plug-in for `scheme`; `None` if there is none.
    pub(crate) fn find(scheme: &str, chosen: Option<&Chosen>) -> Result<Option<Self>> {
        let Some(found) = catalog::find(scheme)? else {
            return Ok(None);
        };
        let Some(chosen) = chosen else {
            return Self::of(found).map(Some);
        };
        let profile = chosen.ours.as_ref();
        let profile = profile.ok_or_else(|| config::no_profile(&chosen.name))?;
        Ok(Some(Self::with(found, profile.for_plugin())))
    }

    /// Returns how to start a configured plug-in, with the credentials `plugins.toml` names for it.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if there is no such profile; [`ErrorKind::Invalid`] and
    /// [`ErrorKind::PermissionDenied`] for an unusable `profiles.toml`.
    pub fn of(plugin: Configured) -> Result<Self> {
        let profile = match &plugin.profile {
            Some(name) => config::profile(None, name)?
                .ok_or_else(|| config::no_profile(name))?
                .for_plugin(),
            None => BTreeMap::new(),
        };
        Ok(Self::with(plugin, profile))
    }

    fn with(plugin: Configured, profile: BTreeMap<String, String>) -> Self {
        Self {
            scheme: plugin.scheme,
            command: plugin.command,
            settings: plugin.settings,
            profile,
            patience: Patience::default(),
        }
    }

    /// Starts the plug-in only to read its description and abilities.
    ///
    /// # Errors
    /// See [`Plugin::open`].
    pub async fn describe(&self) -> Result<Description> {
        let shown = format!("{}://…", self.scheme);
        let session = Session::start(self, None, &shown)
            .await
            .map_err(Unstarted::error)?;
        let greeting = &session.greeting;
        Ok(Description {
            name: session.secrets.hide(&greeting.name),
            version: session.secrets.hide(&greeting.version),
            capabilities: greeting.capabilities(&self.scheme),
        })
    }
}

/// Description that a plug-in gives of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
    /// Capabilities wherever it is used; some addresses may have fewer.
    pub capabilities: Capabilities,
}

/// Files at one address of a plug-in's scheme.
pub struct Plugin {
    remote: Arc<Remote>,
    capabilities: Capabilities,
}

impl Plugin {
    /// Starts the plug-in for `address`, the text after `scheme://`.
    ///
    /// # Errors
    /// The plug-in's own errors; the system's if it can't be started; [`ErrorKind::Unsupported`] if
    /// it speaks another version; [`ErrorKind::Unreachable`] and [`ErrorKind::TimedOut`] if it ends
    /// or hangs before its hello.
    pub async fn open(launch: Launch, address: Vec<u8>, rules: DraftRules) -> Result<Self> {
        let remote = Remote::open(launch, address, rules).await?;
        Ok(Self {
            capabilities: remote.greeting.capabilities(remote.scheme()),
            remote: Arc::new(remote),
        })
    }

    fn unsupported(&self, doing: Doing, path: &[u8]) -> Error {
        doing
            .error(ErrorKind::Unsupported, &self.show(path))
            .cause("this plug-in can't")
            .hint("`posthaste endpoints` shows what each one can")
    }

    /// Fails unless the plug-in can write.
    fn writes(&self, doing: Doing, path: &[u8]) -> Result<()> {
        if self.capabilities.writes {
            return Ok(());
        }
        Err(self.unsupported(doing, path))
    }

    async fn start_listing(&self, path: &[u8], course: Course) -> Result<Box<dyn Listing>> {
        let remote = Arc::clone(&self.remote);
        let listing = PluginListing::start(remote, path, course).await?;
        Ok(Box::new(listing))
    }

    /// Sends a request with an empty answer.
    async fn change(&self, ask: Ask, doing: Doing, path: &[u8]) -> Result<()> {
        self.remote.ask(ask, doing, path).await?;
        Ok(())
    }
}

impl Endpoint for Plugin {
    fn read_only(&self, path: &[u8]) -> Error {
        self.unsupported(Doing::WRITE, path)
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn show(&self, path: &[u8]) -> String {
        self.remote.show(path)
    }

    fn stat<'a>(&'a self, path: &'a [u8], follow: bool) -> Boxed<'a, Result<Option<Entry>>> {
        Box::pin(self.remote.stat(path, follow))
    }

    fn list<'a>(&'a self, path: &'a [u8], follow: bool) -> Boxed<'a, Result<Box<dyn Listing>>> {
        Box::pin(async move {
            if !self.capabilities.lists {
                return Err(self.unsupported(Doing::LIST, path));
            }
            let course = Course::start(Names::Single, follow);
            self.start_listing(path, course).await
        })
    }

    fn list_tree<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Option<Box<dyn Listing>>>> {
        Box::pin(async {
            if !self.remote.greeting.capabilities.lists_trees {
                return Ok(None);
            }
            let course = Course::start(Names::Paths, false);
            self.start_listing(path, course).await.map(Some)
        })
    }

    fn list_on<'a>(
        &'a self,
        path: &'a [u8],
        mark: &'a [u8],
    ) -> Boxed<'a, Result<Box<dyn Listing>>> {
        Box::pin(async {
            let course = Course::read(mark).filter(|_| self.remote.greeting.capabilities.marks);
            match course {
                Some(course) => self.start_listing(path, course).await,
                None => Err(self.unsupported(Doing::LIST, path)),
            }
        })
    }

    fn get<'a>(&'a self, path: &'a [u8], entry: &'a Entry) -> Boxed<'a, Result<Whole>> {
        Box::pin(self.remote.get(path, entry))
    }

    fn open<'a>(&'a self, path: &'a [u8], _entry: &'a Entry) -> Boxed<'a, Result<Arc<dyn Reader>>> {
        Box::pin(async {
            let reader: Arc<dyn Reader> = Arc::new(PluginReader {
                remote: Arc::clone(&self.remote),
                path: path.to_vec(),
                entry: self.remote.present(path).await?,
                ranges: self.capabilities.ranges,
            });
            Ok(reader)
        })
    }

    fn read_link<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Vec<u8>>> {
        Box::pin(async {
            let ask = Ask::new("read-link").with("path", encode_name(path));
            let answer = self.remote.ask(ask, Doing::READ_LINK, path).await?;
            let target = answer.get("target").and_then(Value::as_str);
            target.and_then(decode_name).ok_or_else(|| {
                self.remote
                    .nonsense(Doing::READ_LINK, path, "no target of the link")
            })
        })
    }

    fn put<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move {
            self.writes(Doing::WRITE, path)?;
            self.remote.put(path, spec, data, sum).await
        })
    }

    fn create<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<Arc<dyn Writer>>> {
        Box::pin(async {
            self.writes(Doing::WRITE, path)?;
            let writer = PluginWriter::start(Arc::clone(&self.remote), path, spec).await?;
            let writer: Arc<dyn Writer> = Arc::new(writer);
            Ok(writer)
        })
    }

    fn make_link<'a>(
        &'a self,
        path: &'a [u8],
        target: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<()>> {
        if !self.capabilities.links {
            return Box::pin(async { Err(no_links(self.show(path))) });
        }
        let ask = dressed(Ask::new("make-link"), path, spec).with("target", encode_name(target));
        Box::pin(self.change(ask, Doing::MAKE_LINK, path))
    }

    fn make_parents(&self) -> Boxed<'_, Result<()>> {
        Box::pin(async {
            self.writes(Doing::MAKE_DIRECTORY, b"")?;
            let ask = Ask::new("make-parents");
            self.change(ask, Doing::MAKE_DIRECTORY, b"").await
        })
    }

    fn make_directory<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<bool>> {
        Box::pin(async {
            self.writes(Doing::MAKE_DIRECTORY, path)?;
            let ask = Ask::new("make-directory").with("path", encode_name(path));
            let answer = self.remote.ask(ask, Doing::MAKE_DIRECTORY, path).await?;
            Ok(answer.get("new").and_then(Value::as_bool) == Some(true))
        })
    }

    fn seal_directory<'a>(
        &'a self,
        path: &'a [u8],
        entry: &'a Entry,
        empty: bool,
    ) -> Boxed<'a, Result<()>> {
        let ask = Ask::new("seal-directory")
            .with("path", encode_name(path))
            .with("empty", empty);
        let ask = attributed(ask, entry.mtime, entry.mode);
        Box::pin(self.change(ask, Doing::SEAL, path))
    }

    fn remove<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<()>> {
        if !self.capabilities.removes {
            return Box::pin(async { Err(self.unsupported(Doing::REMOVE, path)) });
        }
        let ask = Ask::new("remove").with("path", encode_name(path));
        Box::pin(self.change(ask, Doing::REMOVE, path))
    }

    fn realm(&self) -> Option<String> {
        let realm = self.remote.greeting.realm.as_ref()?;
        self.capabilities
            .server_copy
            .then(|| format!("{}:{realm}", self.remote.scheme()))
    }

    fn locate(&self, path: &[u8]) -> Vec<u8> {
        let root = decode_name(&self.remote.greeting.root).unwrap_or_default();
        join(&root, path)
    }

    fn system(&self) -> Option<String> {
        Some(self.remote.scheme().to_owned())
    }

    fn real_path<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Vec<u8>>> {
        Box::pin(async move { Ok(self.show(path).into_bytes()) })
    }

    fn copy_within<'a>(
        &'a self,
        from: &'a [u8],
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<()>> {
        if !self.capabilities.server_copy {
            return Box::pin(async { Err(self.unsupported(Doing::COPY, path)) });
        }
        let ask = dressed(Ask::new("copy"), path, spec)
            .with("from", encode_name(from))
            .with("size", spec.size);
        Box::pin(self.change(ask, Doing::COPY, path))
    }
}

/// Replays a plug-in's output, for [`crate::fuzzing`].
pub(crate) fn try_output(data: &[u8]) {
    trial::output(data);
}

/// Reads an entry, for [`crate::fuzzing`].
pub(crate) fn try_entry(data: &[u8]) {
    trial::entry(data);
}

/// File read by ranges.
struct PluginReader {
    remote: Arc<Remote>,
    path: Vec<u8>,
    entry: Entry,
    ranges: bool,
}

impl PluginReader {
    async fn start(&self, range: Range<u64>) -> Result<ByteStream> {
        if range.is_empty() {
            return Ok(Box::pin(stream::empty()));
        }
        if range.start > 0 && !self.ranges {
            return Err(Doing::READ
                .error(ErrorKind::Unsupported, &self.remote.show(&self.path))
                .cause("this plug-in reads files only from their start"));
        }
        let place = Ask::new("read").with("path", encode_name(&self.path));
        let len = range.end - range.start;
        let call = self.remote.read(place, range.start, len, &self.path);
        Ok(call.await?.stream())
    }
}

impl Reader for PluginReader {
    fn entry(&self) -> &Entry {
        &self.entry
    }

    fn checksum(&self) -> Option<Checksum> {
        None
    }

    /// Times in whole seconds don't show a change within the last of them.
    fn is_of_one_version(&self) -> bool {
        self.entry.version.is_some() || self.entry.mtime.is_some_and(FileTime::shows_changes)
    }

    fn read(&self, range: Range<u64>) -> Boxed<'_, Result<ByteStream>> {
        Box::pin(self.start(range))
    }

    fn confirm(&self) -> Boxed<'_, Result<()>> {
        Box::pin(async {
            let now = self.remote.present(&self.path).await?;
            if is_same(&self.entry, &now) {
                return Ok(());
            }
            Err(self.remote.changed(&self.path))
        })
    }
}
