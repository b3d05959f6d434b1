//! The laboratory: real distance on one machine.
//!
//! A [`Topology`] names hosts and the links between them, with rate, delay, queue, loss, jitter,
//! and scripted changes. [`Lab::up`] builds it. Each host is a network namespace with the kernel's
//! own TCP, each link a pair of TUN devices, and one thread carries packets between them as a real
//! network would. Devices have offloads, so the thread sees packets of up to 64 KiB and carries a
//! gigabit a second on a fraction of a core. Loss and full queues still drop single segments, which
//! are cut out as a network card would cut them.
//!
//! Nothing leaves the namespaces: no host of a laboratory has a route to the machine's own network.
//!
//! A [`Twin`] plays a scenario of the simulator in a laboratory, with real processes.
//!
//! Pure code is apart from the rest: `network` is a machine of packets and time that tests drive
//! without a socket, `emulator` gives it a clock and devices.

mod clock;
pub mod control;
mod emulator;
mod kernel;
mod lab;
mod namespace;
mod network;
mod packet;
pub mod register;
pub mod topology;
pub mod twin;

pub use control::Status;
pub use lab::{Lab, command};
pub use network::Count;
pub use topology::Topology;
pub use twin::Twin;
