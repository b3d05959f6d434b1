//! Routes from each host to each other: least delay there and back, then fewest links.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use super::{Host, HostId, Link, LinkId};

/// Cost of a link besides its delay, so that the shorter of two routes without delay wins.
const LINK_COST: Duration = Duration::from_micros(1);

/// Returns the link to take by host and destination; none without a route. Dijkstra's algorithm
/// from each destination, in O(hosts * links * log hosts).
pub(super) fn all(hosts: &[Host], links: &[Link]) -> Vec<Vec<Option<LinkId>>> {
    let mut routes = vec![Vec::new(); hosts.len()];
    for destination in 0..hosts.len() {
        for (row, link) in routes.iter_mut().zip(towards(destination, hosts, links)) {
            row.push(link);
        }
    }
    routes
}

/// Returns the link of each host towards the destination.
fn towards(destination: usize, hosts: &[Host], links: &[Link]) -> Vec<Option<LinkId>> {
    let mut best = vec![Duration::MAX; hosts.len()];
    let mut next = vec![None; hosts.len()];
    best[destination] = Duration::ZERO;
    let mut open = BinaryHeap::from([Reverse((Duration::ZERO, destination))]);
    while let Some(Reverse((cost, host))) = open.pop() {
        let passes = host == destination || hosts[host].forwards;
        if cost > best[host] || !passes {
            continue;
        }
        for (place, link) in links.iter().enumerate() {
            let Some(neighbour) = other_end(link, host) else {
                continue;
            };
            let delay = link.forth.delay.duration() + link.back.delay.duration();
            let whole = cost + delay + LINK_COST;
            if whole < best[neighbour] {
                best[neighbour] = whole;
                next[neighbour] = Some(LinkId(place));
                open.push(Reverse((whole, neighbour)));
            }
        }
    }
    next
}

fn other_end(link: &Link, host: usize) -> Option<usize> {
    match link.ends {
        [HostId(one), HostId(other)] if one == host => Some(other),
        [HostId(one), HostId(other)] if other == host => Some(one),
        [_, _] => None,
    }
}
