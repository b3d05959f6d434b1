//! A packet as a TUN device with offloads gives it: a virtio header, then IP. A large TCP packet
//! stands for many segments, which can be cut apart as a network card would cut them.
//!
//! Header fields: `struct virtio_net_hdr` of the kernel's `linux/virtio_net.h`, in the byte order
//! of the machine; IPv4 (RFC 791), IPv6 (RFC 8200), TCP (RFC 9293) in network byte order.

use std::ops::Range;

/// Bytes of the virtio header.
pub const VIRTIO_BYTES: usize = 10;

/// The longest packet a device gives: the virtio header and 64 KiB of IP.
pub const PACKET_BYTES_MAX: usize = VIRTIO_BYTES + 65_536;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum field holds the sum of the pseudo header only.
const NEEDS_CHECKSUM: u8 = 1;

/// `VIRTIO_NET_HDR_GSO_…`.
const GSO_NONE: u8 = 0;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_ECN: u8 = 0x80;

/// The protocol number of TCP.
const TCP: u8 = 6;

/// Offsets of fields in the TCP header.
const TCP_SEQUENCE: usize = 4;
const TCP_DATA_OFFSET: usize = 12;
const TCP_FLAGS: usize = 13;
const TCP_CHECKSUM: usize = 16;
const TCP_HEADER_BYTES_MIN: usize = 20;

const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// Bytes of an IPv6 header.
const IPV6_BYTES: usize = 40;

/// A packet, with its virtio header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    bytes: Vec<u8>,
    /// Bytes of IP and TCP headers, repeated on each segment; 0 for a packet that can't be cut.
    headers: usize,
    /// Payload of each segment but the last.
    segment_bytes: usize,
    segments: u32,
}

impl Packet {
    /// Reads a packet from a device. All but a TCP packet of several segments is one segment.
    ///
    /// None if it contains no packet.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Option<Self> {
        if bytes.len() <= VIRTIO_BYTES {
            return None;
        }
        let (headers, segment_bytes) = large(&bytes).unwrap_or((0, 0));
        let payload = bytes.len() - VIRTIO_BYTES - headers;
        let segments = match segment_bytes {
            0 => 1,
            _ => u32::try_from(payload.div_ceil(segment_bytes)).ok()?,
        };
        Some(Self {
            bytes,
            headers,
            segment_bytes,
            segments,
        })
    }

    /// Returns the bytes for a device.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns whether it goes to a group and not to a host.
    #[must_use]
    pub fn is_multicast(&self) -> bool {
        let ip = &self.bytes[VIRTIO_BYTES..];
        match ip[0] >> 4 {
            4 => ip.get(16).is_some_and(|first| *first >= 224),
            6 => ip.get(24) == Some(&0xff),
            _ => false,
        }
    }

    /// Returns its number of packets on the wire.
    #[must_use]
    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// Returns its bytes on the wire with so much framing for each segment.
    #[must_use]
    pub fn wire_bytes(&self, framing_bytes: u64) -> u64 {
        let segments = u64::from(self.segments);
        let whole = (self.bytes.len() - VIRTIO_BYTES) as u64;
        whole + (segments - 1) * self.headers as u64 + segments * framing_bytes
    }

    /// Returns how many of its first segments fit into so many bytes on the wire.
    #[must_use]
    pub fn segments_within(&self, wire_bytes: u64, framing_bytes: u64) -> u32 {
        if self.wire_bytes(framing_bytes) <= wire_bytes {
            return self.segments;
        }
        if self.segments == 1 {
            return 0;
        }
        let each = (self.headers + self.segment_bytes) as u64 + framing_bytes;
        let fitting = u32::try_from(wire_bytes / each).unwrap_or(u32::MAX);
        fitting.min(self.segments - 1)
    }

    /// Returns some of its segments as a packet of their own; none for an empty range or one beyond
    /// its end.
    #[must_use]
    pub fn cut(&self, range: Range<u32>) -> Option<Self> {
        if range.is_empty() || range.end > self.segments {
            return None;
        }
        if range == (0..self.segments) {
            return Some(self.clone());
        }
        let first = VIRTIO_BYTES + self.headers + range.start as usize * self.segment_bytes;
        let end = VIRTIO_BYTES + self.headers + range.end as usize * self.segment_bytes;
        let payload = self.bytes.get(first..end.min(self.bytes.len()))?;
        let mut bytes = Vec::with_capacity(VIRTIO_BYTES + self.headers + payload.len());
        bytes.extend_from_slice(self.bytes.get(..VIRTIO_BYTES + self.headers)?);
        bytes.extend_from_slice(payload);
        let segments = range.end - range.start;
        self.mend_virtio(&mut bytes, &range);
        let (_, ip) = bytes.split_at_mut(VIRTIO_BYTES);
        mend_ip(ip, range.start)?;
        self.mend_tcp(ip, &range)?;
        Some(Self {
            bytes,
            headers: self.headers,
            segment_bytes: self.segment_bytes,
            segments,
        })
    }

    fn mend_virtio(&self, bytes: &mut [u8], range: &Range<u32>) {
        bytes[0] = NEEDS_CHECKSUM;
        let headers = u16::try_from(self.headers).unwrap_or(u16::MAX);
        bytes[2..4].copy_from_slice(&headers.to_ne_bytes());
        if range.end - range.start == 1 {
            bytes[1] = GSO_NONE;
            bytes[4..6].copy_from_slice(&[0, 0]);
        } else if range.start > 0 {
            bytes[1] &= !GSO_ECN;
        }
    }

    /// Sets the sequence, the flags, and the sum of the pseudo header, to which the checksum is
    /// added later.
    fn mend_tcp(&self, ip: &mut [u8], range: &Range<u32>) -> Option<()> {
        let start = transport_start(&self.bytes)?;
        let sum = pseudo_header_sum(ip, ip.len() - start)?;
        let tcp = ip.get_mut(start..)?;
        let sequence = read_u32(tcp, TCP_SEQUENCE)?;
        let before = range
            .start
            .wrapping_mul(u32::try_from(self.segment_bytes).ok()?);
        let sequence = sequence.wrapping_add(before);
        tcp[TCP_SEQUENCE..TCP_SEQUENCE + 4].copy_from_slice(&sequence.to_be_bytes());
        if range.end < self.segments {
            tcp[TCP_FLAGS] &= !(TCP_FIN | TCP_PSH);
        }
        if range.start > 0 {
            tcp[TCP_FLAGS] &= !TCP_CWR;
        }
        tcp[TCP_CHECKSUM..TCP_CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
        Some(())
    }
}

/// Returns the length of the headers and of each segment's payload, of a TCP packet that stands for
/// several.
fn large(bytes: &[u8]) -> Option<(usize, usize)> {
    let ip = bytes.get(VIRTIO_BYTES..)?;
    let version = ip.first()? >> 4;
    let is_tcp = matches!(
        (bytes[1] & !GSO_ECN, version),
        (GSO_TCP_V4, 4) | (GSO_TCP_V6, 6)
    );
    let segment_bytes = usize::from(u16::from_ne_bytes([bytes[4], bytes[5]]));
    if !is_tcp || segment_bytes == 0 || bytes[0] & NEEDS_CHECKSUM == 0 {
        return None;
    }
    let start = transport_start(bytes)?;
    let least = if version == 4 { 20 } else { IPV6_BYTES };
    let tcp = ip.get(start..)?;
    let tcp_bytes = usize::from(tcp.get(TCP_DATA_OFFSET)? >> 4) * 4;
    let headers = start + tcp_bytes;
    let fits = start >= least && tcp_bytes >= TCP_HEADER_BYTES_MIN && headers < ip.len();
    fits.then_some((headers, segment_bytes))
}

/// Returns the offset of TCP in the IP packet: the start of its checksum.
fn transport_start(bytes: &[u8]) -> Option<usize> {
    let field = bytes.get(6..8)?;
    Some(usize::from(u16::from_ne_bytes([field[0], field[1]])))
}

/// Sets length, identification and checksum of the IP header; `place` segments lie before this one.
fn mend_ip(ip: &mut [u8], place: u32) -> Option<()> {
    let whole = ip.len();
    if ip.first()? >> 4 == 6 {
        let length = u16::try_from(whole.checked_sub(IPV6_BYTES)?).ok()?;
        ip.get_mut(4..6)?.copy_from_slice(&length.to_be_bytes());
        return Some(());
    }
    let header_bytes = usize::from(ip[0] & 0x0f) * 4;
    let header = ip.get_mut(..header_bytes)?;
    header
        .get_mut(2..4)?
        .copy_from_slice(&u16::try_from(whole).ok()?.to_be_bytes());
    let place = u16::try_from(place % 0x1_0000).ok()?;
    let id = u16::from_be_bytes([*header.get(4)?, *header.get(5)?]).wrapping_add(place);
    header[4..6].copy_from_slice(&id.to_be_bytes());
    header.get_mut(10..12)?.copy_from_slice(&[0, 0]);
    let sum = !fold(sum_of(header));
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    Some(())
}

/// Returns the sum over the pseudo header, not complemented: content of the checksum field until
/// the rest is added (RFC 9293 section 3.1, RFC 8200 section 8.1).
fn pseudo_header_sum(ip: &[u8], tcp_bytes: usize) -> Option<u16> {
    let addresses = if ip.first()? >> 4 == 6 {
        ip.get(8..IPV6_BYTES)?
    } else {
        ip.get(12..20)?
    };
    let length = u32::try_from(tcp_bytes).ok()?;
    Some(fold(sum_of(addresses) + u64::from(length) + u64::from(TCP)))
}

/// Returns the sum of 16-bit words in network byte order (RFC 1071).
fn sum_of(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(2);
    words
        .map(|word| u64::from(word[0]) << 8 | u64::from(word.get(1).copied().unwrap_or(0)))
        .sum()
}

/// Adds the carries back in.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes([field[0], field[1], field[2], field[3]]))
}

#[cfg(test)]
pub(crate) mod tests;
