//! Folders of so many files that making each would take longer than the test.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

/// Names of one file. ext4 allows 65,000.
const NAMES_MAX: usize = 30_000;

/// Makes empty files of these names in a folder. Many names are one file each time: a new inode
/// takes ten times as long as another name of an old one, where files were removed just before.
///
/// # Errors
/// Fails with an error of the file system.
pub fn make_empty_files(folder: &Path, names: impl IntoIterator<Item = String>) -> io::Result<()> {
    let mut first = folder.to_owned();
    for (number, name) in names.into_iter().enumerate() {
        let path = folder.join(name);
        if number % NAMES_MAX == 0 {
            File::create_new(&path)?;
            first = path;
        } else {
            fs::hard_link(&first, path)?;
        }
    }
    Ok(())
}
