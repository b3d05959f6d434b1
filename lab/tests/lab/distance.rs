//! Delay and rate, measured by ping and iperf3.

use std::{process::Stdio, thread};

use posthaste_lab::Lab;

use crate::support::{
    LOOK_EVERY, PORT, Received, Server, build, iperf3, measure_until, pair, ping,
};

/// Checks the shortest time of a path: a busy machine only ever adds to the delay. Asks again until
/// one comes as soon as it may.
fn assert_shortest_ms(lab: &Lab, (from, to): (&str, &str), set: f64) {
    let is_right = |times: &Vec<f64>| {
        let is_possible = times.iter().all(|time| *time > set - 0.1);
        assert!(is_possible, "{times:?} instead of {set} ms");
        times.first().is_some_and(|shortest| *shortest < set + 1.0)
    };
    measure_until(is_right, || ping(lab, from, to, 9));
}

#[test]
fn ping_takes_twice_the_delay_over_ipv4_and_ipv6() {
    let lab = pair("rate = \"1Gbit/s\"\ndelay = \"30ms\"\n");
    assert_shortest_ms(&lab, ("a", "b"), 60.0);
    assert_shortest_ms(&lab, ("b", "a-6"), 60.0);
}

#[test]
fn ping_takes_what_all_links_on_the_way_take() {
    let lab = build(
        r#"
        name = "row"
        host = [{ name = "a" }, { name = "b" }, { name = "c" }, { name = "d" }]
        link = [
            { name = "ab", ends = ["a", "b"], delay = "5ms" },
            { name = "bc", ends = ["b", "c"], delay = "10ms", back = { delay = "20ms" } },
            { name = "cd", ends = ["d", "c"], rate = "100Mbit/s", delay = "1ms" },
        ]
        "#,
    );
    for (from, to) in [("a", "d"), ("d", "a"), ("a", "d-6")] {
        assert_shortest_ms(&lab, (from, to), 42.0);
    }
    assert_shortest_ms(&lab, ("b", "c"), 30.0);
}

#[test]
fn iperf3_gets_the_rate_in_both_directions() {
    let lab = pair("rate = \"40Mbit/s\"\ndelay = \"5ms\"\nback = { rate = \"10Mbit/s\" }\n");
    let _servers = ["a", "b"].map(|host| Server::start(&lab, host, PORT));
    for (from, to, more, set) in [
        ("a", "b", "--version4", 40.0),
        ("b", "a", "--version4", 10.0),
        ("a-6", "b", "--version6", 40.0),
    ] {
        measure_until(
            |got: &Received| got.is_within(set * 0.95, set * 1.05),
            || {
                let mut client = iperf3(&lab, (from, PORT), to);
                client.args(["-O", "1", "-t", "2", more]);
                Received::of(client.spawn().unwrap())
            },
        );
    }
    let status = lab.status().unwrap();
    let share = status.emulator_cpu_s / status.uptime_s;
    assert!(
        share < 0.5,
        "the emulator took {share} of a core for 40 Mbit/s"
    );
    assert_eq!(status.refused_packets, 0);
}

#[test]
fn framing_takes_its_share_of_the_rate() {
    let lab = build(
        "name = \"framed\"\nframing_bytes = 38\nhost = [{ name = \"a\" }, { name = \"b\" }]\n\
         link = [{ name = \"ab\", ends = [\"a\", \"b\"], rate = \"20Mbit/s\", delay = \"2ms\" }]\n",
    );
    let _server = Server::start(&lab, "a", PORT);
    // 18.83 Mbit/s are 1448 bytes of payload of each 1538 on the wire.
    measure_until(
        |got: &Received| got.is_within(18.0, 18.92),
        || {
            let mut client = iperf3(&lab, ("a", PORT), "b");
            client.args(["-O", "1", "-t", "2"]);
            Received::of(client.spawn().unwrap())
        },
    );
}

/// Sample of the data delivered to the first end of a link: seconds since its start, and megabits.
type Sample = (f64, f64);

/// Returns the rates in Mbit/s between all samples at these times that are half a second apart.
fn rates(samples: &[Sample], from_s: f64, to_s: f64) -> Vec<f64> {
    let mut inside = samples.iter().filter(|(at, _)| (from_s..to_s).contains(at));
    let mut rates = Vec::new();
    while let Some((began, before)) = inside.next() {
        let later = inside.clone().find(|(at, _)| *at >= began + 0.5);
        rates.extend(later.map(|(ended, after)| (after - before) / (ended - began)));
    }
    rates
}

/// Returns the rates before and after a script changed the first one. The delay that it set later
/// is right, too.
fn play_script() -> [Vec<f64>; 2] {
    let lab = pair(
        "rate = \"20Mbit/s\"\ndelay = \"5ms\"\nqueue = \"100kB\"\n\
         [[change]]\nat = \"8s\"\nlink = \"ab\"\nrate = \"4Mbit/s\"\n\
         [[change]]\nat = \"12s\"\nlink = \"ab\"\ndelay = \"40ms\"\n",
    );
    let _server = Server::start(&lab, "b", PORT);
    let client = iperf3(&lab, ("b", PORT), "a").args(["-t", "12"]).spawn();
    let mut samples: Vec<Sample> = Vec::new();
    while samples.last().is_none_or(|(at, _)| *at < 12.1) {
        let status = lab.status().unwrap();
        let bytes = status.links[0].back.segments.delivered_bytes;
        samples.push((status.uptime_s, bytes as f64 * 8e-6));
        thread::sleep(LOOK_EVERY);
    }
    assert_shortest_ms(&lab, ("a", "b"), 80.0);
    drop(client.unwrap().wait_with_output().unwrap());
    [rates(&samples, 0.0, 8.0), rates(&samples, 8.7, 12.0)]
}

#[test]
fn a_script_changes_rate_and_delay_while_data_flows() {
    // A busy machine stands still for some of the time; the best rate counts.
    let is_within = |rates: &[f64], lower: f64, upper: f64| {
        let mut rates = rates.to_vec();
        rates.sort_by(f64::total_cmp);
        let (best, middle) = (rates.last(), rates.get(rates.len() / 2));
        best.is_some_and(|best| *best > lower) && middle.is_some_and(|middle| *middle < upper)
    };
    let is_right = |[before, after]: &[Vec<f64>; 2]| {
        is_within(before, 18.0, 21.0) && is_within(after, 3.4, 4.4)
    };
    measure_until(is_right, play_script);
}

#[test]
fn a_link_that_is_down_carries_nothing_until_it_is_up() {
    let lab = pair("delay = \"1ms\"\n");
    assert_eq!(ping(&lab, "a", "b", 2).len(), 2);
    lab.change("ab", &["state=down"]).unwrap();
    let program = posthaste_testbed::install::find_debian_program(posthaste_testbed::install::PING);
    let status = lab
        .command("a", program.unwrap())
        .args(["-c", "1", "-W", "0.3", "b"])
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(1), "no answer may come");
    lab.change("ab", &["state=up", "delay=10ms"]).unwrap();
    let times = ping(&lab, "a", "b", 3);
    assert!(times.len() == 3 && times[0] >= 20.0, "{times:?}");
}

#[test]
fn jitter_strays_around_the_delay() {
    let lab = pair("delay = \"20ms\"\njitter = \"10ms\"\n");
    // On a busy machine some packets come later than any jitter.
    let strays = |times: &Vec<f64>| {
        let (least, most) = (times[0], times[times.len() - 1]);
        assert!(least > 19.5, "{times:?}");
        assert!(most - least > 8.0, "nothing strays: {times:?}");
        times[times.len() / 2] < 62.0
    };
    measure_until(strays, || ping(&lab, "a", "b", 30));
}
