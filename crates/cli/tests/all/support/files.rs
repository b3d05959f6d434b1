//! Files for tests that move some, and their content.

use std::{fs, path::Path};

use crate::support::processes::{noise, picture};

/// Makes files of a MiB each; no links, which sources of a stage-in don't have.
pub fn make_files(root: &Path, count: u64) {
    fs::create_dir_all(root.join("deep")).unwrap();
    for number in 0..count {
        let name = if number % 2 == 0 { "deep/" } else { "" };
        fs::write(
            root.join(format!("{name}{number}.h5")),
            noise(count << 8 | number, 1 << 20),
        )
        .unwrap();
    }
}

/// Returns the names of files with the digests of their content.
pub fn contents(root: &Path) -> Vec<(String, String)> {
    let words = |line: &String| {
        let (name, digest) = (line.split(' ').next(), line.split(' ').next_back());
        (name.unwrap().to_owned(), digest.unwrap().to_owned())
    };
    // The lines of directories end with other things.
    let picture = picture(root);
    let files = picture.iter().filter(|line| line.contains(".h5 "));
    files.map(words).collect()
}
