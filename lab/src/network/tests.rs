use proptest::prelude::*;

use super::*;
use crate::packet::tests::tcp;

const FORTH: PipeId = PipeId(0);

fn network(link: &str) -> Network {
    let text = format!(
        "name = \"pair\"\nhost = [{{ name = \"a\" }}, {{ name = \"b\" }}]\n\
         [[link]]\nname = \"ab\"\nends = [\"a\", \"b\"]\n{link}"
    );
    Network::new(&Topology::parse(&text).unwrap())
}

/// Returns the arrival of each packet, and its number of segments.
fn arrivals(network: &mut Network) -> Vec<(Duration, u32)> {
    let mut all = Vec::new();
    while let Some(at) = network.next() {
        network.advance(at);
        all.extend(
            network
                .take_ready()
                .map(|(_, packet)| (at, packet.segments())),
        );
    }
    all
}

#[test]
fn a_packet_arrives_when_it_was_sent_and_has_travelled() {
    let mut network = network("rate = \"12Mbit/s\"\ndelay = \"30ms\"\n");
    network.enter(Duration::ZERO, FORTH, tcp(4, 1448));
    network.enter(Duration::ZERO, FORTH, tcp(4, 1448));
    let ms = Duration::from_millis;
    assert_eq!(arrivals(&mut network), [(ms(31), 1), (ms(32), 1)]);
    assert_eq!(network.count(FORTH).delivered_bytes, 3000);
}

#[test]
fn a_late_look_changes_no_moment() {
    let text = "rate = \"12Mbit/s\"\ndelay = \"30ms\"\n";
    let mut late = network(text);
    for _ in 0..5 {
        late.enter(Duration::ZERO, FORTH, tcp(4, 1448));
    }
    // Nobody advances it for 3.5 ms; packets that left the queue meanwhile are in flight since
    // then.
    late.advance(Duration::from_micros(3_500));
    let moments: Vec<Duration> = arrivals(&mut late).iter().map(|(at, _)| *at).collect();
    assert_eq!(moments, [31, 32, 33, 34, 35].map(Duration::from_millis));
}

#[test]
fn a_link_that_is_down_loses_what_waits_and_what_comes_but_not_what_is_under_way() {
    let script = "rate = \"12Mbit/s\"\ndelay = \"30ms\"\n\
                  [[change]]\nat = \"1500us\"\nlink = \"ab\"\nstate = \"down\"\n\
                  [[change]]\nat = \"10ms\"\nlink = \"ab\"\nstate = \"up\"\n";
    let mut network = network(script);
    for _ in 0..3 {
        network.enter(Duration::ZERO, FORTH, tcp(4, 1448));
    }
    network.enter(Duration::from_millis(5), FORTH, tcp(4, 1448));
    network.enter(Duration::from_millis(20), FORTH, tcp(4, 1448));
    let ms = Duration::from_millis;
    assert_eq!(arrivals(&mut network), [(ms(31), 1), (ms(51), 1)]);
    let count = network.count(FORTH);
    assert_eq!((count.entered, count.delivered, count.cut_off), (5, 2, 3));
}

#[test]
fn scripted_changes_happen_at_their_moment() {
    let script = "rate = \"12Mbit/s\"\n\
                  [[change]]\nat = \"2ms\"\nlink = \"ab\"\nrate = \"6Mbit/s\"\n";
    let mut network = network(script);
    for _ in 0..4 {
        network.enter(Duration::ZERO, FORTH, tcp(4, 1448));
    }
    let moments: Vec<Duration> = arrivals(&mut network).iter().map(|(at, _)| *at).collect();
    assert_eq!(moments, [1, 2, 4, 6].map(Duration::from_millis));
}

#[test]
fn a_change_that_cannot_be_changes_nothing() {
    let mut network = network("delay = \"10ms\"\njitter = \"5ms\"\n");
    let topology = "name = \"x\"\nhost = [{ name = \"a\" }, { name = \"b\" }]\n\
                    link = [{ name = \"ab\", ends = [\"a\", \"b\"] }]\n";
    let topology = Topology::parse(topology).unwrap();
    let change = topology.change("ab", &["delay=1ms".to_owned()]).unwrap();
    let before = network.conditions(FORTH);
    assert!(network.change(Duration::ZERO, &change).is_err());
    assert_eq!(network.conditions(FORTH), before);
}

#[test]
fn all_links_of_a_host_share_its_access() {
    let text = r#"
        name = "star"
        host = [{ name = "home", down = "12Mbit/s", up = "6Mbit/s" }, { name = "a" }, { name = "b" }]
        link = [{ name = "ha", ends = ["home", "a"] }, { name = "hb", ends = ["home", "b"] }]
    "#;
    let mut star = Network::new(&Topology::parse(text).unwrap());
    for pipe in [PipeId(1), PipeId(3)] {
        star.enter(Duration::ZERO, pipe, tcp(4, 1448));
    }
    let ms = Duration::from_millis;
    assert_eq!(arrivals(&mut star), [(ms(1), 1), (ms(2), 1)]);
    for pipe in [PipeId(0), PipeId(2)] {
        star.enter(ms(10), pipe, tcp(4, 1448));
    }
    assert_eq!(arrivals(&mut star), [(ms(12), 1), (ms(14), 1)]);
}

#[test]
fn lost_segments_leave_the_others_of_their_packet() {
    let mut network = network("loss = \"10%\"\ndelay = \"1ms\"\n");
    for _ in 0..100 {
        network.enter(Duration::ZERO, FORTH, tcp(4, 40 * 1448));
    }
    let arrived: u32 = arrivals(&mut network)
        .iter()
        .map(|(_, segments)| segments)
        .sum();
    let count = network.count(FORTH);
    assert_eq!(u64::from(arrived), count.delivered);
    assert_eq!(count.delivered + count.lost, 4000);
    // 400 expected, with a deviation of sqrt(4000 * 0.1 * 0.9) = 19.
    assert!((343..=457).contains(&count.lost), "{}", count.lost);
}

proptest! {
    #[test]
    fn every_segment_arrives_is_lost_or_dropped(
        sizes in prop::collection::vec((1_usize..60_000, 0_u64..3_000), 1..60),
        rate in prop_oneof![Just("off"), Just("1Mbit"), Just("50Mbit"), Just("1Gbit")],
        loss in prop_oneof![Just("0%"), Just("5%"), Just("100%")],
        access in prop_oneof![Just("off"), Just("20Mbit")],
    ) {
        let text = format!(
            "name = \"pair\"\nhost = [{{ name = \"a\", up = \"{access}\" }}, {{ name = \"b\", down = \"{access}\", down_queue = \"30kB\" }}]\n\
             [[link]]\nname = \"ab\"\nends = [\"a\", \"b\"]\nrate = \"{rate}\"\nloss = \"{loss}\"\ndelay = \"3ms\"\njitter = \"1ms\"\n\
             burst_every = 50\nqueue = \"100kB\"\n[[change]]\nat = \"40ms\"\nlink = \"ab\"\nstate = \"down\"\n"
        );
        let mut network = Network::new(&Topology::parse(&text).unwrap());
        let mut now = Duration::ZERO;
        for (size, later) in sizes {
            now += Duration::from_micros(later);
            network.enter(now, FORTH, tcp(4, size));
            let (queued, under_way) = network.held_bytes(FORTH);
            prop_assert!(queued <= 100_000 && under_way < 10_000_000);
        }
        let mut last = Duration::ZERO;
        while let Some(at) = network.next() {
            prop_assert!(at >= last, "time runs backwards");
            last = at;
            network.advance(at);
        }
        network.take_ready();
        let count = network.count(FORTH);
        prop_assert_eq!(count.entered, count.delivered + count.lost + count.dropped + count.cut_off);
        prop_assert_eq!(network.held_bytes(FORTH), (0, 0));
    }
}
