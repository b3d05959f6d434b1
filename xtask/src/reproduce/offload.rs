//! Timely Offloading (offload-ics08, section 5): the mind that ships, played in the simulator over the links
//! that the paper's Figure 5 prints, beside what the paper measured.

mod availability;
mod figure6;
mod figure7;
mod measured;
mod transfers;
mod world;

use measured::{Matrix, Tables};

const HEAD: &str = "\
# Timely Offloading, reproduced

Written by `cargo xtask reproduce offload`. Numbers of the paper (`offload-ics08`, section 5) stand beside those of
the mind that ships, played in the simulator. The world is the paper's Figure 5: each link carries what it prints,
all the time, with 20 ms to each node; what the paper does not print is said where it is needed.

**What to compare.** The paper's runs took place on PlanetLab at other times than its bandwidths were measured, and
it shows: the direct transfers of Table 1 ran at 2.8 to 2.9 Mbit/s over a link of 2.05, the offloads at 20 to
29 Mbit/s over links of 82.9 together. So shapes and ratios can be compared, seconds can't. The *bound* is the size
over the sum of the links: nothing can be faster, and what we lose against it is ours.

**Not yet.** The Push phase (Level-1 nodes send on to Level-2 nodes) and the Pull phase need the command that lets a
depot send on what it holds. The mind does not have it yet, so these columns show the paper alone.

";

/// The page.
///
/// # Errors
/// When a table can't be read or a scenario is none.
pub fn page() -> anyhow::Result<String> {
    let (matrix, tables) = (Matrix::read()?, Tables::read()?);
    let mut text = String::from(HEAD);
    text.push_str(&transfers::table1(&matrix, &tables)?);
    text.push_str(&transfers::table2(&matrix, &tables)?);
    text.push_str(&transfers::table3(&matrix, &tables)?);
    text.push_str(&transfers::when_to_stage(&matrix, &tables)?);
    text.push_str(&figure6::section(&matrix)?);
    text.push_str(&figure7::section()?);
    Ok(text)
}
