//! Prints the stories that `tests/all/stories.rs` expects. Write them to `tests/stories.txt`.

#[path = "../tests/all/stories/told.rs"]
mod told;

fn main() {
    let mut out = std::io::stdout().lock();
    let _ = std::io::Write::write_all(&mut out, told::all().as_bytes());
}
