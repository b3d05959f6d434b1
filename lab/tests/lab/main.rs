//! The laboratory against the kernel's own networking: distance, rate, loss, sharing, change, and
//! clean removal. Needs root, /dev/net/tun, ip, ping and iperf3; fails without.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod distance;
mod life;
mod loss;
mod sharing;
mod support;
