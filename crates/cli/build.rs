//! Links the unoptimized program and its tests to fixed addresses. Else each start relocates ten thousand
//! addresses first, for a third of its time, and tests start the program many thousand times.

#![expect(
    clippy::disallowed_methods,
    reason = "this is how Cargo tells a build script what it builds"
)]

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|set| set == value);
    if is("PROFILE", "debug") && is("CARGO_CFG_TARGET_OS", "linux") {
        println!("cargo::rustc-link-arg=-no-pie");
    }
}
