//! Timely Offloading (offload-ics08, section 5): the mind that ships, played in the simulator over
//! the links that the paper's Figure 5 prints, beside the paper's measurements.

mod availability;
mod figure6;
mod figure7;
pub mod live;
mod measured;
mod push;
mod torrent;
mod transfers;
mod world;

use measured::{Matrix, Tables};

use crate::bench::figures::commit;

const HEAD: &str = "\
# Timely Offloading, reproduced

Written by `cargo xtask reproduce offload`. Numbers of the paper (`offload-ics08`, section 5) stand beside those of
the mind that ships, played in the simulator. The world is the paper's Figure 5: each link carries what it prints,
all the time, with 20 ms to each node; what the paper does not print is said where it is needed.

**What to compare.** The paper's runs took place on PlanetLab at other times than its bandwidths were measured, and
it shows: the direct transfers of Table 1 ran at 2.8 to 2.9 Mbit/s over a link of 2.05, the offloads at 20 to
29 Mbit/s over links of 82.9 together. So shapes and ratios can be compared, seconds can't. The *bound* is the size
over the sum of the links: nothing can be faster, and what we lose against it is ours.

**Push and Pull.** The sixteen nodes e to t are of Level 2; Level-1 nodes send on to them over the links that Figure 5
prints between them. The end site then takes from all twenty at once, over the links it prints to each; that is a model
of the real `pull`, which asks for each fragment where it will be sent first. What a node's own way in or out carries
is not printed, and not limited here.

";

/// Returns the page.
///
/// # Errors
/// Fails if a table can't be read or a scenario is invalid.
pub fn page() -> anyhow::Result<String> {
    let (matrix, tables) = (Matrix::read()?, Tables::read()?);
    let mut text = String::from(HEAD);
    text.push_str(&format!("- commit: {}\n\n", commit()));
    text.push_str(&transfers::table1(&matrix, &tables)?);
    text.push_str(&transfers::table2(&matrix, &tables)?);
    text.push_str(&transfers::table3(&matrix, &tables)?);
    text.push_str(&transfers::when_to_stage(&matrix, &tables)?);
    text.push_str(&figure6::section(&matrix)?);
    text.push_str(&figure7::section()?);
    Ok(text)
}
