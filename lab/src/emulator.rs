//! The thread that carries packets between TUN devices by the rules of the [`Network`].

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, TryRecvError, sync_channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::Errno,
};

use crate::{
    clock::{Clock, thread_cpu_time},
    kernel,
    network::{Count, Network, PipeId},
    packet::{PACKET_BYTES_MAX, Packet},
    topology::{Access, Change, Conditions, HostId},
};

/// Packets read from one device before the turn of the others.
const BATCH: usize = 64;

/// Orders that may wait: several at a time come only from several control connections.
const ORDERS_MAX: usize = 8;

/// Longest time for an order. The thread answers between two batches, within milliseconds of its
/// own time; when it runs depends on the machine.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// Report on one direction of a link.
#[derive(Debug, Clone, Copy)]
pub struct PipeReport {
    /// Conditions.
    pub conditions: Conditions,
    /// Counts of what entered.
    pub count: Count,
    /// Queued bytes, on the wire.
    pub queued_bytes: u64,
    /// Bytes in flight.
    pub under_way_bytes: u64,
}

/// Report of the emulator.
#[derive(Debug, Clone)]
pub struct Report {
    /// Time since it started.
    pub uptime: Duration,
    /// Processor time used, including the receiving kernel's work on a packet.
    pub cpu_time: Duration,
    /// By link: forth and back.
    pub pipes: Vec<[PipeReport; 2]>,
    /// By host: up and down.
    pub accesses: Vec<(Access, Access)>,
    /// Packets that a host's kernel refused.
    pub refused_packets: u64,
    /// Scripted changes that were impossible.
    pub refused_changes: u64,
}

enum Order {
    Change(Change, SyncSender<Result<(), String>>),
    Report(SyncSender<Report>),
    Stop,
}

/// The running thread; it ends with its owner.
#[derive(Debug)]
pub struct Emulator {
    line: Line,
    thread: Option<JoinHandle<()>>,
}

/// Line for orders to the thread.
#[derive(Debug, Clone)]
pub struct Line {
    orders: SyncSender<Order>,
    bell: Arc<OwnedFd>,
}

impl Line {
    /// Changes a link or an access.
    ///
    /// # Errors
    /// Fails if the change is impossible, in one line, or the emulator has ended.
    pub fn change(&self, change: Change) -> Result<()> {
        self.ask(|answer| Order::Change(change, answer))?
            .map_err(anyhow::Error::msg)
    }

    /// Asks for a report.
    ///
    /// # Errors
    /// Fails if the emulator has ended.
    pub fn report(&self) -> Result<Report> {
        self.ask(Order::Report)
    }

    fn ask<T>(&self, order: impl FnOnce(SyncSender<T>) -> Order) -> Result<T> {
        let (answer, answered) = sync_channel(1);
        self.tell(order(answer))?;
        answered
            .recv_timeout(ANSWER_TIME_MAX)
            .map_err(|_| anyhow!("the emulator does not answer"))
    }

    fn tell(&self, order: Order) -> Result<()> {
        self.orders
            .send(order)
            .map_err(|_| anyhow!("the emulator has ended"))?;
        rustix::io::write(&self.bell, &1_u64.to_ne_bytes()).context("wake the emulator")?;
        Ok(())
    }
}

impl Emulator {
    /// Starts it. `devices` are by link the two ends, first to second.
    ///
    /// # Errors
    /// Fails if the machine has no thread or descriptor left.
    pub fn start(
        network: Network,
        links: usize,
        hosts: usize,
        devices: Vec<OwnedFd>,
    ) -> Result<Self> {
        assert_eq!(
            devices.len(),
            links * 2,
            "a device at both ends of each link"
        );
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .context("make the emulator's bell")?;
        let bell = Arc::new(bell);
        let (orders, inbox) = sync_channel(ORDERS_MAX);
        let carrier = Carrier {
            network,
            links,
            hosts,
            devices: devices.into_iter().map(Some).collect(),
            inbox,
            bell: Arc::clone(&bell),
            clock: Clock::start(),
            space: vec![0; PACKET_BYTES_MAX],
            refused_packets: 0,
        };
        let thread = std::thread::Builder::new()
            .name("emulator".to_owned())
            .spawn(move || carrier.run())
            .context("start the emulator")?;
        Ok(Self {
            line: Line { orders, bell },
            thread: Some(thread),
        })
    }

    /// Returns the line for orders.
    pub fn line(&self) -> &Line {
        &self.line
    }

    /// Returns whether it still carries packets.
    pub fn is_running(&self) -> bool {
        self.thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // A thread that has ended hears nothing, and its panic was reported then.
        let _ = self.line.tell(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// State of the thread.
struct Carrier {
    network: Network,
    links: usize,
    hosts: usize,
    /// Source of packets by pipe; none for a device whose interface was removed.
    devices: Vec<Option<OwnedFd>>,
    inbox: Receiver<Order>,
    bell: Arc<OwnedFd>,
    clock: Clock,
    space: Vec<u8>,
    refused_packets: u64,
}

impl Carrier {
    fn run(mut self) {
        if kernel::prefer_this_thread().is_err() {
            // Without real-time priority, the highest other one. If even that is forbidden, timing
            // suffers.
            let _ = rustix::process::setpriority_process(None, -20);
        }
        loop {
            self.network.advance(self.clock.now());
            self.deliver();
            let (ready, rung) = self.wait();
            for pipe in ready {
                self.receive(pipe);
            }
            if rung && !self.take_orders() {
                return;
            }
        }
    }

    /// Waits for packets, an order or the next arrival. Returns the devices with packets, and
    /// whether there are orders.
    fn wait(&self) -> (Vec<usize>, bool) {
        let timeout = self.network.next().map(|at| {
            let time = at.saturating_sub(self.clock.now());
            Timespec {
                tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: time.subsec_nanos().into(),
            }
        });
        let open = self.devices.iter().enumerate();
        let open: Vec<(usize, &OwnedFd)> = open
            .filter_map(|(place, device)| Some((place, device.as_ref()?)))
            .collect();
        let mut watched: Vec<PollFd<'_>> = open
            .iter()
            .map(|(_, device)| PollFd::new(*device, PollFlags::IN))
            .collect();
        watched.push(PollFd::new(&self.bell, PollFlags::IN));
        // Interrupted or not, the next round checks everything again.
        if poll(&mut watched, timeout.as_ref()).is_err() {
            return (Vec::new(), false);
        }
        let rung = watched
            .last()
            .is_some_and(|bell| !bell.revents().is_empty());
        let places = open.iter().zip(&watched);
        let ready = places.filter(|(_, seen)| !seen.revents().is_empty());
        (ready.map(|((place, _), _)| *place).collect(), rung)
    }

    /// Takes packets from the device at the entry of a pipe.
    fn receive(&mut self, pipe: usize) {
        for _ in 0..BATCH {
            let Some(device) = &self.devices[pipe] else {
                return;
            };
            match rustix::io::read(device, self.space.as_mut_slice()) {
                Ok(bytes) => {
                    // Kernels send packets to groups by themselves, at random moments. Those would
                    // take chance from the packets that are counted.
                    if let Some(packet) = Packet::new(self.space[..bytes].to_vec())
                        && !packet.is_multicast()
                    {
                        self.network.enter(self.clock.now(), PipeId(pipe), packet);
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(_) => self.devices[pipe] = None,
            }
        }
        self.deliver();
    }

    /// Delivers arrived packets to the host at the end of their pipe.
    fn deliver(&mut self) {
        for (pipe, packet) in self.network.take_ready() {
            // The other direction of the link begins where this one ends.
            let taken = match &self.devices[pipe.0 ^ 1] {
                Some(device) => rustix::io::write(device.as_fd(), packet.bytes()).is_ok(),
                None => false,
            };
            if !taken {
                self.refused_packets += u64::from(packet.segments());
            }
        }
    }

    /// Carries out all orders; returns false on the order to stop.
    fn take_orders(&mut self) -> bool {
        // The check of the inbox answers all rings before it.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        loop {
            match self.inbox.try_recv() {
                // A requester that is gone needs no answer.
                Ok(Order::Change(change, answer)) => {
                    let changed = self.network.change(self.clock.now(), &change);
                    let _ = answer.try_send(changed);
                }
                Ok(Order::Report(answer)) => {
                    let _ = answer.try_send(self.report());
                }
                Ok(Order::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn report(&self) -> Report {
        let pipe = |place: usize| {
            let id = PipeId(place);
            let (queued_bytes, under_way_bytes) = self.network.held_bytes(id);
            PipeReport {
                conditions: self.network.conditions(id),
                count: self.network.count(id),
                queued_bytes,
                under_way_bytes,
            }
        };
        let hosts = 0..self.hosts;
        Report {
            uptime: self.clock.now(),
            cpu_time: thread_cpu_time(),
            pipes: (0..self.links)
                .map(|link| [pipe(link * 2), pipe(link * 2 + 1)])
                .collect(),
            accesses: hosts
                .map(|host| self.network.accesses(HostId(host)))
                .collect(),
            refused_packets: self.refused_packets,
            refused_changes: self.network.refused_changes(),
        }
    }
}

/// Checks whether TUN devices are available.
///
/// # Errors
/// Fails if they are not, in one line with the reason.
pub fn check_tun() -> Result<()> {
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    opened.map(drop).map_err(|error: io::Error| {
        anyhow!("can't open /dev/net/tun: {error} (the kernel needs TUN devices, a container access to them)")
    })
}
