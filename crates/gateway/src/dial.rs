//! Connects to the next gateway or to the target.

use std::net::IpAddr;

use posthaste_endpoint::{
    Error, ErrorKind, Result,
    gateway::{Reserved, Segment, Target, ask, connect, is_of_this_machine, resolve},
};
use socket2::SockRef;
use tokio::net::TcpSocket;

use crate::{carry::End, route::Table};

/// Checks that the kernel offers what a segment wants.
pub(crate) fn check(segment: &Segment) -> Result<()> {
    let Some(name) = &segment.congestion else {
        return Ok(());
    };
    let tried = TcpSocket::new_v4()
        .and_then(|socket| SockRef::from(&socket).set_tcp_congestion(name.as_bytes()));
    tried.map_err(|cause| {
        Error::new(
            ErrorKind::Unsupported,
            "use congestion control",
            name.clone(),
        )
        .cause(cause)
        .hint(format!(
            "modprobe tcp_{name}; net.ipv4.tcp_available_congestion_control lists what there is"
        ))
    })
}

/// Opens the way of a stream that came over the gateways in `path`, if the table allows it.
pub(crate) async fn open(
    table: &Table,
    target: &Target,
    path: &[String],
    reservation: Option<&Reserved>,
) -> Result<End> {
    let by_name = table.allows(target);
    let addresses = if by_name && !table.needs_addresses() {
        Vec::new()
    } else {
        // Somebody nearer to it may be the one who can look it up.
        match resolve(target).await {
            Ok(addresses) => addresses,
            Err(_) if by_name => Vec::new(),
            Err(error) => return Err(error),
        }
    };
    if !by_name && !has_allowed(table, target, &addresses) {
        return Err(
            Error::new(ErrorKind::PermissionDenied, "lead to", target.to_string())
                .cause("no rule of this gateway allows it")
                .hint("ask its operator for --allow"),
        );
    }
    let way = table.way(target, &addresses);
    if let Some(hop) = way.via {
        let addresses = resolve(&hop.address).await?;
        let stream = connect(&hop.address, &addresses, way.segment).await?;
        let (stream, early) = ask(stream, hop, target, path, reservation).await?;
        return Ok(End { stream, early });
    }
    let mut addresses = match addresses {
        none if none.is_empty() => resolve(target).await?,
        known => known,
    };
    // A name that is allowed as such must not lead to the gateway's own machine.
    addresses
        .retain(|&at| table.allows_address(at, target.port) || by_name && !is_of_this_machine(at));
    if addresses.is_empty() {
        return Err(
            Error::new(ErrorKind::PermissionDenied, "lead to", target.to_string())
                .cause("its addresses are those of the gateway's own machine"),
        );
    }
    let stream = connect(target, &addresses, way.segment).await?;
    Ok(End {
        stream,
        early: Vec::new(),
    })
}

fn has_allowed(table: &Table, target: &Target, addresses: &[IpAddr]) -> bool {
    let mut all = addresses.iter();
    all.any(|&at| table.allows_address(at, target.port))
}
