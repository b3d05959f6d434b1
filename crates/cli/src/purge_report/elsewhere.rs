//! Data that is safe elsewhere, by a service's knowledge.

use std::{collections::HashMap, ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use jiff::Timestamp;
use posthaste_api as api;
use posthaste_batch::purge::Facts;
use posthaste_engine::dataset::{FileKind, Manifest};

use super::tell;
use crate::{
    client::{ServiceArguments, ServiceClient},
    config,
    failure::Failure,
};

/// Requests whose files are looked up, the latest first: each manifest is read.
const REQUESTS_MAX: usize = 200;

/// States of requests whose data survives the loss of their source.
const SAFE: [api::RequestState; 3] = [
    api::RequestState::Safe,
    api::RequestState::Delivered,
    api::RequestState::Released,
];

/// Facts of a file when it became safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Saved {
    size: u64,
    modified_s: i64,
    /// Time of its submission.
    submitted_s: i64,
}

/// Files that are safe elsewhere.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    files: HashMap<Vec<u8>, Saved>,
    /// True if a service was asked.
    pub is_known: bool,
    /// Destination of the last request, for commands that can be typed.
    pub to: Option<String>,
    /// Depots that it used.
    pub via: Vec<String>,
}

impl Elsewhere {
    /// Asks the service, if one is named or has left its token here.
    ///
    /// # Errors
    /// Fails if a named service can't be asked.
    pub fn ask(arguments: &ServiceArguments, root: &[u8]) -> Result<Self, Failure> {
        let is_named = arguments.token_file.is_some() || arguments.url != config::SERVICE_URL;
        if !is_named && !config::state_directory().join("token").exists() {
            return Ok(Self::default());
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(anyhow::Error::from)?;
        match runtime.block_on(Self::learn(arguments, root)) {
            Err(failure) if !is_named => {
                tell(&format!("{failure}; nothing counts as safe elsewhere"));
                Ok(Self::default())
            }
            learnt => learnt,
        }
    }

    async fn learn(arguments: &ServiceArguments, root: &[u8]) -> Result<Self, Failure> {
        let service = ServiceClient::open(arguments)?;
        let requests = service.requests("", usize::MAX).await?;
        let outs = || requests.iter().filter(|request| request.stage_in.is_none());
        let mut elsewhere = Self {
            is_known: true,
            ..Self::default()
        };
        if let Some(last) = outs().next() {
            elsewhere.to = Some(last.to.clone());
            elsewhere.via = last
                .shares
                .iter()
                .map(|share| share.depot.clone())
                .collect();
        }
        let about = |request: &&api::Request| {
            let source = request.source.as_bytes();
            SAFE.contains(&request.state) && (lies_in(source, root) || lies_in(root, source))
        };
        let safe: Vec<&api::Request> = outs().filter(about).collect();
        if safe.len() > REQUESTS_MAX {
            tell(&format!(
                "only the latest {REQUESTS_MAX} of {} safe requests are looked at",
                safe.len()
            ));
        }
        for request in safe.into_iter().take(REQUESTS_MAX) {
            let path = format!("/v1/requests/{}/manifest", request.id);
            let manifest = Manifest::from_bytes(&service.get_bytes(&path).await?);
            match (manifest, request.submitted.parse::<Timestamp>()) {
                (Ok(manifest), Ok(submitted)) => {
                    elsewhere.add(request, &manifest, submitted.as_second(), root);
                }
                // Only a recipient can read the names of encrypted files.
                (Err(_), _) | (_, Err(_)) => tell(&format!(
                    "what {} holds can't be read here, so that nothing counts as safe by it",
                    request.id
                )),
            }
        }
        Ok(elsewhere)
    }

    fn add(&mut self, request: &api::Request, manifest: &Manifest, submitted_s: i64, root: &[u8]) {
        // The service was told the path that was typed; files here are known by the one without
        // links.
        let source = Path::new(OsStr::from_bytes(request.source.as_bytes()));
        let source = source.canonicalize().unwrap_or_else(|_| source.to_owned());
        for file in &manifest.list.files {
            let path = file.below(&source).as_os_str().as_bytes().to_vec();
            if file.kind == FileKind::Directory || !lies_in(&path, root) {
                continue;
            }
            let saved = Saved {
                size: file.size,
                modified_s: file.mtime_s,
                submitted_s,
            };
            // The latest request comes first.
            self.files.entry(path).or_insert(saved);
        }
    }

    /// Returns whether a file is unchanged since it became safe. A write in the second of the
    /// submission may have come after the read, so it does not count.
    pub fn has(&self, path: &[u8], facts: &Facts) -> bool {
        self.files.get(path).is_some_and(|saved| {
            let same = saved.size == facts.size && saved.modified_s == facts.modified_s;
            same && saved.modified_s < saved.submitted_s
        })
    }
}

/// Returns whether a path equals another or lies below it.
fn lies_in(path: &[u8], folder: &[u8]) -> bool {
    let rest = path.strip_prefix(folder);
    rest.is_some_and(|rest| rest.is_empty() || folder == b"/" || rest.starts_with(b"/"))
}
