//! Loss as numbered datagrams and TCP experience it.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::{IpAddr, Ipv6Addr, TcpListener, TcpStream, UdpSocket},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use posthaste_lab::Lab;

use crate::support::pair;

/// Most datagrams in flight: far fewer than a socket's buffer holds, or the receiver would lose
/// some itself.
const AHEAD_MAX: u64 = 50;

/// Interval at which an idle receiver checks whether more will come.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Checks for datagrams, a millisecond apart, until they count as gone: two minutes.
const LOOKS_MAX: u32 = 120_000;

/// Sends numbered datagrams from `a` to `b` and returns those that arrived.
fn arrived(lab: &Lab, count: u64) -> BTreeSet<u64> {
    let receiver = lab
        .within("b", || Ok(UdpSocket::bind((lab.address("b"), 4000))?))
        .unwrap();
    let sender = lab
        .within("a", || Ok(UdpSocket::bind((lab.address("a"), 0))?))
        .unwrap();
    sender.connect((lab.address("b"), 4000)).unwrap();
    receiver.set_read_timeout(Some(LOOK_EVERY)).unwrap();
    let (seen, over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let mut arrived = BTreeSet::new();
            let mut number = [0; 8];
            loop {
                // All has come by the time it is over.
                let was_over = over.load(Ordering::Acquire);
                if receiver.recv(&mut number).is_ok() {
                    arrived.insert(u64::from_be_bytes(number));
                    seen.fetch_add(1, Ordering::Release);
                } else if was_over {
                    return arrived;
                }
            }
        });
        // Datagrams that are neither seen nor, by the laboratory's count, lost.
        let under_way = |sent: u64| {
            let lost = lab.status().unwrap().links[0].forth.segments.lost;
            sent.saturating_sub(lost + seen.load(Ordering::Acquire))
        };
        let wait_for = |sent: u64, most: u64| {
            let mut looks = 0;
            while under_way(sent) > most {
                looks += 1;
                assert!(looks < LOOKS_MAX, "neither arrived nor lost");
                thread::sleep(Duration::from_millis(1));
            }
        };
        let mut settled = 0;
        for number in 0..count {
            if number - settled >= AHEAD_MAX {
                wait_for(number, AHEAD_MAX / 2);
                settled = number - AHEAD_MAX / 2;
            }
            sender.send(&number.to_be_bytes()).unwrap();
        }
        wait_for(count, 0);
        over.store(true, Ordering::Release);
        receiving.join().unwrap()
    })
}

#[test]
fn random_loss_is_as_set_within_three_deviations() {
    let lab = pair("delay = \"1ms\"\nloss = \"2%\"\nback = { loss = \"0%\" }\n");
    let arrived = arrived(&lab, 20_000);
    let lost = 20_000 - arrived.len();
    // 400 expected, with a deviation of sqrt(20,000 * 0.02 * 0.98) = 19.8.
    assert!((341..=459).contains(&lost), "{lost} of 20,000 lost");
    let link = &lab.status().unwrap().links[0];
    assert_eq!(
        link.forth.segments.lost, lost as u64,
        "the laboratory counts what it loses"
    );
    assert_eq!(
        (link.forth.segments.dropped, link.back.segments.lost),
        (0, 0)
    );
}

#[test]
fn bursts_take_neighbours() {
    let lab =
        pair("delay = \"1ms\"\nburst_every = 300\nburst_length = 8\nback = { burst_every = 0 }\n");
    let arrived: Vec<u64> = arrived(&lab, 20_000).into_iter().collect();
    let gaps = arrived.windows(2).map(|pair| pair[1] - pair[0] - 1);
    let bursts: Vec<u64> = gaps.filter(|gap| *gap > 0).collect();
    // 20,000 / 308 = 65 expected; each count strays by about its square root, and the mean length of
    // 65 geometric lengths by 8 / sqrt(65) = 1.
    assert!((40..=90).contains(&bursts.len()), "{bursts:?}");
    let mean = bursts.iter().sum::<u64>() as f64 / bursts.len() as f64;
    assert!(
        (5.0..11.0).contains(&mean),
        "{mean} lost in a row: {bursts:?}"
    );
}

#[test]
fn the_same_seed_loses_the_same() {
    let lose = || arrived(&pair("delay = \"1ms\"\nloss = \"5%\"\n"), 2_000);
    assert!(
        lose() == lose(),
        "a packet nobody sent shifts all that follow"
    );
}

/// Returns the bytes that both ends know.
fn content(bytes: usize) -> Vec<u8> {
    let mut number = 1_u32;
    let mut next = || {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        number.to_be_bytes()[0]
    };
    (0..bytes).map(|_| next()).collect()
}

/// Checks that large packets are cut right around lost segments. Devices with offloads compute no
/// checksums, so only the bytes themselves show whether the cuts were right.
fn survives(lab: &Lab, to: IpAddr) {
    let content = content(30 << 20);
    let listener = lab
        .within("b", || Ok(TcpListener::bind((to, 4000))?))
        .unwrap();
    let mut sender = lab
        .within("a", || Ok(TcpStream::connect((to, 4000))?))
        .unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    let received = thread::scope(|scope| {
        let receiving = scope.spawn(move || {
            let mut received = Vec::new();
            receiver.read_to_end(&mut received).map(|_| received)
        });
        sender.write_all(&content).unwrap();
        drop(sender);
        receiving.join().unwrap().unwrap()
    });
    assert!(
        received == content,
        "{} bytes came, not the ones sent",
        received.len()
    );
    let segments = lab.status().unwrap().links[0].forth.segments;
    assert!(segments.lost > 50, "{segments:?}");
    // 30 MiB are 22,000 segments of 1448; the kernel hands them over in far fewer packets.
    assert!(segments.entered > 20_000, "{segments:?}");
}

#[test]
fn tcp_over_a_lossy_link_delivers_every_byte() {
    let lab = pair("rate = \"200Mbit/s\"\ndelay = \"1ms\"\nloss = \"1%\"\nburst_every = 2000\n");
    survives(&lab, lab.address("b"));
}

#[test]
fn tcp_over_ipv6_and_a_short_queue_delivers_every_byte() {
    let lab = pair("rate = \"200Mbit/s\"\ndelay = \"1ms\"\nloss = \"1%\"\nqueue = \"60kB\"\n");
    let number = Ipv6Addr::new(0xfd00, 0x117, 0, 0, 0, 0, 0, 2);
    survives(&lab, number.into());
}
