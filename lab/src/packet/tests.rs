use proptest::prelude::*;

use super::*;

/// Returns a TCP packet of `payload` bytes in segments of 1448, as the kernel gives it; byte n of
/// the payload is n modulo 251.
pub(crate) fn tcp(version: u8, payload: usize) -> Packet {
    let ip_bytes = if version == 4 { 20 } else { IPV6_BYTES };
    let headers = ip_bytes + 32;
    let mut bytes = vec![0; VIRTIO_BYTES + headers];
    let large = payload > 1448;
    bytes[0] = NEEDS_CHECKSUM;
    bytes[1] = match (large, version) {
        (false, _) => GSO_NONE,
        (true, 4) => GSO_TCP_V4 | GSO_ECN,
        (true, _) => GSO_TCP_V6,
    };
    bytes[2..4].copy_from_slice(&u16::try_from(headers).unwrap().to_ne_bytes());
    let segment: u16 = if large { 1448 } else { 0 };
    bytes[4..6].copy_from_slice(&segment.to_ne_bytes());
    bytes[6..8].copy_from_slice(&u16::try_from(ip_bytes).unwrap().to_ne_bytes());
    bytes[8..10].copy_from_slice(&16_u16.to_ne_bytes());
    let ip = &mut bytes[VIRTIO_BYTES..];
    let whole = u16::try_from(headers + payload).unwrap();
    if version == 4 {
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&whole.to_be_bytes());
        ip[4..6].copy_from_slice(&0xffff_u16.to_be_bytes());
        ip[9] = TCP;
        ip[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    } else {
        ip[0] = 0x60;
        ip[4..6].copy_from_slice(&(whole - 40).to_be_bytes());
        ip[6] = TCP;
        ip[23] = 1;
        ip[39] = 2;
    }
    ip[ip_bytes + 4..ip_bytes + 8].copy_from_slice(&u32::MAX.to_be_bytes());
    ip[ip_bytes + 12] = 0x80;
    ip[ip_bytes + 13] = TCP_FIN | TCP_PSH | TCP_CWR | 0x10;
    bytes.extend((0..payload).map(|place| u8::try_from(place % 251).unwrap()));
    Packet::new(bytes).unwrap()
}

fn field(packet: &Packet, at: usize) -> u16 {
    let ip = &packet.bytes[VIRTIO_BYTES..];
    u16::from_be_bytes([ip[at], ip[at + 1]])
}

#[test]
fn a_large_packet_counts_its_segments_and_their_headers() {
    let packet = tcp(4, 2 * 1448 + 10);
    assert_eq!(packet.segments(), 3);
    assert_eq!(packet.wire_bytes(38), 2 * 1538 + (38 + 20 + 32 + 10));
    assert_eq!(tcp(4, 100).segments(), 1);
    assert_eq!(tcp(6, 1449).segments(), 2);
    assert_eq!(Packet::new(vec![0; VIRTIO_BYTES]), None);
}

#[test]
fn a_piece_has_its_own_length_sequence_flags_and_checksums() {
    let packet = tcp(4, 4 * 1448);
    let middle = packet.cut(1..3).unwrap();
    assert_eq!(middle.segments(), 2);
    assert_eq!(field(&middle, 2), 52 + 2 * 1448);
    assert_eq!(field(&middle, 4), 0, "the identification went round");
    assert_eq!(fold(sum_of(&middle.bytes[VIRTIO_BYTES..][..20])), 0xffff);
    let tcp_header = &middle.bytes[VIRTIO_BYTES + 20..];
    assert_eq!(
        read_u32(tcp_header, 4),
        Some(1447),
        "the sequence went round"
    );
    assert_eq!(
        tcp_header[13], 0x10,
        "only the last ends, only the first answers"
    );
    assert_eq!(middle.bytes[1], GSO_TCP_V4);
    let sum = pseudo_header_sum(&middle.bytes[VIRTIO_BYTES..], 32 + 2 * 1448).unwrap();
    assert_eq!(field(&middle, 20 + 16), sum);
    let last = packet.cut(3..4).unwrap();
    assert_eq!(last.bytes[1], GSO_NONE);
    assert_eq!(last.bytes[VIRTIO_BYTES + 20 + 13], TCP_FIN | TCP_PSH | 0x10);
    let first = packet.cut(0..1).unwrap();
    assert_eq!(first.bytes[VIRTIO_BYTES + 20 + 13], TCP_CWR | 0x10);
}

#[test]
fn a_piece_of_ipv6_has_its_length() {
    let piece = tcp(6, 3 * 1448).cut(2..3).unwrap();
    assert_eq!(field(&piece, 4), 32 + 1448);
    assert_eq!(piece.bytes.len(), VIRTIO_BYTES + 40 + 32 + 1448);
}

#[test]
fn what_is_no_large_tcp_packet_is_one_segment() {
    let mut udp = tcp(4, 3000).bytes;
    udp[1] = 5;
    assert_eq!(Packet::new(udp).unwrap().segments(), 1);
    let mut odd = tcp(4, 3000).bytes;
    odd[6..8].copy_from_slice(&5000_u16.to_ne_bytes());
    assert_eq!(Packet::new(odd).unwrap().segments(), 1);
}

#[test]
fn groups_are_told_from_hosts() {
    for (version, at, group) in [(4, 16, 224), (6, 24, 0xff)] {
        let mut packet = tcp(version, 1);
        assert!(!packet.is_multicast());
        packet.bytes[VIRTIO_BYTES + at] = group;
        assert!(packet.is_multicast());
    }
}

proptest! {
    #[test]
    fn pieces_hold_every_byte_once(version in prop_oneof![Just(4_u8), Just(6)],
                                   payload in 1_usize..60_000, cuts in prop::collection::vec(0_u32..45, 0..6)) {
        let packet = tcp(version, payload);
        let mut marks: Vec<u32> = cuts.into_iter().map(|cut| cut.min(packet.segments())).collect();
        marks.extend([0, packet.segments()]);
        marks.sort_unstable();
        let pieces: Vec<Packet> = marks.windows(2).filter_map(|pair| packet.cut(pair[0]..pair[1])).collect();
        let headers = VIRTIO_BYTES + if version == 4 { 52 } else { 72 };
        let held: Vec<u8> = pieces.iter().flat_map(|piece| piece.bytes[headers..].to_vec()).collect();
        prop_assert_eq!(&held, &packet.bytes[headers..]);
        let wire: u64 = pieces.iter().map(|piece| piece.wire_bytes(38)).sum();
        prop_assert_eq!(wire, packet.wire_bytes(38));
        for piece in pieces {
            prop_assert_eq!(Packet::new(piece.bytes.clone()).map(|again| again.segments()), Some(piece.segments()));
        }
    }

    #[test]
    fn as_many_segments_fit_as_fit(payload in 1_usize..60_000, room in 0_u64..80_000) {
        let packet = tcp(4, payload);
        let fitting = packet.segments_within(room, 38);
        let size = |segments: u32| packet.cut(0..segments).map_or(0, |piece| piece.wire_bytes(38));
        prop_assert!(size(fitting) <= room);
        prop_assert!(fitting == packet.segments() || size(fitting + 1) > room);
    }

    #[test]
    fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Some(packet) = Packet::new(bytes) {
            for end in 1..=packet.segments() {
                let _piece = packet.cut(end - 1..end);
            }
        }
    }
}
