//! System calls without a safe wrapper: all unsafe code of the laboratory.

#![expect(unsafe_code, reason = "no safe crate has these calls")]

use std::{
    ffi::CString,
    fs::{File, OpenOptions},
    io,
    mem::zeroed,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{fs::OpenOptionsExt, process::CommandExt},
    },
    process::Command,
    sync::Arc,
};

use rustix::{
    mount::{MountPropagationFlags, mount_bind, mount_change},
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe},
};

/// Lowest real-time priority: above everything that is not real-time, below all else.
const PRIORITY: libc::c_int = 1;

/// Creates a TUN device in the network namespace of the calling thread. It is gone when the
/// descriptor is closed. Reads and writes are packets after a virtio header; large TCP packets come
/// and go whole, checksums uncomputed.
///
/// # Errors
/// Fails if the kernel forbids it, or the name is in use or too long.
pub fn open_tun(name: &str) -> io::Result<OwnedFd> {
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")?;
    // SAFETY: `ifreq` is a C struct of integers and a union of such, for which zeros are a value.
    let mut request: libc::ifreq = unsafe { zeroed() };
    let letters = name.as_bytes();
    if letters.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, letter) in request.ifr_name.iter_mut().zip(letters) {
        *to = libc::c_char::from_ne_bytes([*letter]);
    }
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(flags).map_err(io::Error::other)?;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which lives until the call returns.
    check(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
    let offloads = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let offloads = libc::c_ulong::from(offloads);
    // SAFETY: TUNSETOFFLOAD takes its argument by value and touches no memory of ours.
    check(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETOFFLOAD, offloads) })?;
    Ok(device.into())
}

/// Runs the calling thread before all others that are not real-time, so that packets are in time on
/// a busy machine. The kernel still keeps 5 % of each processor for the others.
///
/// # Errors
/// Fails if the kernel forbids it.
pub fn prefer_this_thread() -> io::Result<()> {
    let parameters = libc::sched_param {
        sched_priority: PRIORITY,
    };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the call reads one `sched_param`, which lives until it returns; 0 is this thread.
    check(unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) })
}

/// Place of a command: this network namespace, with these names.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The namespace.
    pub namespace: Arc<File>,
    /// File that replaces `/etc/hosts`.
    pub hosts: CString,
    /// Name of the host there.
    pub name: String,
}

/// Makes the command start there. It sees the machine's files, except for `/etc/hosts`.
pub fn enter_on_start(command: &mut Command, entry: Entry) {
    let enter = move || -> io::Result<()> {
        let network = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(entry.namespace.as_fd(), network)?;
        // SAFETY: neither flag touches the table of descriptors, the call's one danger.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::NEWUTS)? };
        let apart = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        mount_change(c"/", apart)?;
        mount_bind(entry.hosts.as_c_str(), c"/etc/hosts")?;
        rustix::system::sethostname(entry.name.as_bytes())?;
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. The closure makes
    // system calls on values made before the fork; it takes no lock and allocates nothing, and its
    // errors are plain numbers.
    unsafe { command.pre_exec(enter) };
}

fn check(answer: libc::c_int) -> io::Result<()> {
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
