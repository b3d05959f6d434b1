//! Connections to the next gateway or to the target.

use std::{net::IpAddr, sync::Arc};

use posthaste_endpoint::{
    Error, ErrorKind, Result,
    gateway::{
        Braid, Hop, Passage, Reserved, Segment, Target, ask, connect, is_of_this_machine, is_own,
        resolve,
    },
};
use socket2::SockRef;
use tokio::net::TcpSocket;

use crate::{
    braid::{Book, Offer},
    carry::End,
    route::Table,
};

/// Open connection towards the target.
pub(crate) struct Found {
    pub end: End,
    /// Offer of the next gateway to accept further connections of the stream.
    pub offer: Option<Offer>,
}

/// Checks that the kernel supports the settings of a segment.
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

/// Connects a stream that came over the gateways in `path`, if the table allows it.
pub(crate) async fn open(
    table: &Table,
    target: &Target,
    path: &[String],
    reservation: Option<&Reserved>,
    book: &Arc<Book>,
) -> Result<Found> {
    let by_name = table.allows(target);
    let addresses = if by_name && !table.needs_addresses() {
        Vec::new()
    } else {
        // A gateway nearer to the target may be able to resolve its name.
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
        let passage = Passage {
            target,
            path,
            reservation,
            connections: way.connections,
        };
        return open_via(hop, &way.segment, passage, book).await;
    }
    let mut addresses = match addresses {
        none if none.is_empty() => resolve(target).await?,
        known => known,
    };
    // A name that is allowed as such must not lead to the gateway's own machine, nor to another
    // address of it if every name is.
    let is_named = table.names(target);
    let is_others = |at| !is_of_this_machine(at) && (is_named || !is_own(at));
    addresses.retain(|&at| table.allows_address(at, target.port) || by_name && is_others(at));
    if addresses.is_empty() {
        return Err(
            Error::new(ErrorKind::PermissionDenied, "lead to", target.to_string())
                .cause("its addresses are those of the gateway's own machine"),
        );
    }
    let stream = connect(target, &addresses, &way.segment).await?;
    let early = Vec::new();
    Ok(Found {
        end: End { stream, early },
        offer: None,
    })
}

/// Connects through the next gateway, over as many connections as there is space for.
async fn open_via(
    hop: &Hop,
    segment: &Segment,
    mut passage: Passage<'_>,
    book: &Arc<Book>,
) -> Result<Found> {
    let wanted = passage.connections;
    let permit = (wanted > 1).then(|| book.permit()).flatten();
    if permit.is_none() {
        passage.connections = 1;
    }
    let addresses = resolve(&hop.address).await?;
    let stream = connect(&hop.address, &addresses, segment).await?;
    let address = stream.peer_addr().map_err(|cause| {
        let subject = hop.address.to_string();
        Error::io("go through the gateway", subject, cause)
    })?;
    let opened = ask(stream, hop, &passage).await?;
    // The next gateway offers more only on request, and this gateway requests it only with space.
    let offer = opened.braid.zip(permit).map(|(braid, permit)| Offer {
        braid: Braid {
            connections: braid.connections.min(wanted),
            ..braid
        },
        hop: hop.clone(),
        address: address.ip(),
        segment: segment.clone(),
        permit,
    });
    let (stream, early) = (opened.stream, opened.early);
    Ok(Found {
        end: End { stream, early },
        offer,
    })
}

fn has_allowed(table: &Table, target: &Target, addresses: &[IpAddr]) -> bool {
    let mut all = addresses.iter();
    all.any(|&at| table.allows_address(at, target.port))
}
