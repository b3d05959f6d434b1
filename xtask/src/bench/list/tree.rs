//! Trees and buckets to list.

use std::{fs, path::Path};

use anyhow::Context;

use super::tool::Place;

/// Entries of a local directory, and objects of one directory of a bucket that has some.
const PER_FOLDER: usize = 10_000;
const PER_PREFIX: usize = 100;

/// Names of one file: ext4 allows 65,000.
const LINKS_MAX: usize = 60_000;

/// Makes empty objects, and returns their keys in their order.
///
/// # Errors
/// Fails if they can't be made.
pub fn objects(bucket: &Path, place: Place, count: usize) -> anyhow::Result<Vec<String>> {
    let mut keys = Vec::with_capacity(count);
    for number in 0..count {
        let key = match place {
            Place::Deep => format!("run-{:05}/step-{number:07}.nc", number / PER_PREFIX),
            Place::Flat | Place::Local => format!("event-{number:07}.root"),
        };
        let path = bucket.join(&key);
        if number % PER_PREFIX == 0
            && let Some(folder) = path.parent()
        {
            fs::create_dir_all(folder)?;
        }
        fs::File::create(&path).with_context(|| format!("make {}", path.display()))?;
        keys.push(key);
    }
    Ok(keys)
}

/// Makes a tree of that many files, which are links to few files: only names are listed.
///
/// # Errors
/// Fails if they can't be made.
pub fn entries(tree: &Path, count: usize) -> anyhow::Result<()> {
    let originals = tree.with_extension("originals");
    fs::create_dir_all(&originals)?;
    let mut original = originals.join("0");
    for number in 0..count {
        if number % LINKS_MAX == 0 {
            original = originals.join(number.to_string());
            fs::write(&original, "x")?;
        }
        let folder = tree.join(format!("run-{:05}", number / PER_FOLDER));
        if number % PER_FOLDER == 0 {
            fs::create_dir_all(&folder)?;
        }
        fs::hard_link(&original, folder.join(format!("event-{number:08}.root")))
            .with_context(|| format!("make a file in {}", folder.display()))?;
    }
    Ok(())
}
