//! Delay and rate, as ping and iperf3 see them.

use std::process::Stdio;

use crate::support::{Server, alone, build, iperf3, pair, ping, received_mbit_per_s, report};

/// A busy machine only ever adds to a path's delay, so the shortest time tells what was set.
fn assert_shortest_ms(times: &[f64], set: f64) {
    let shortest = times[0];
    assert!(
        (set - 0.1..set + 1.0).contains(&shortest),
        "{shortest} ms instead of {set}: {times:?}"
    );
}

#[test]
fn ping_takes_twice_the_delay_over_ipv4_and_ipv6() {
    let _alone = alone();
    let lab = pair("rate = \"1Gbit/s\"\ndelay = \"30ms\"\n");
    assert_shortest_ms(&ping(&lab, "a", "b", 9), 60.0);
    assert_shortest_ms(&ping(&lab, "b", "a-6", 5), 60.0);
}

#[test]
fn ping_takes_what_all_links_on_the_way_take() {
    let _alone = alone();
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
        assert_shortest_ms(&ping(&lab, from, to, 5), 42.0);
    }
    assert_shortest_ms(&ping(&lab, "b", "c", 5), 30.0);
}

#[test]
fn iperf3_gets_the_rate_in_both_directions() {
    let _alone = alone();
    let lab = pair("rate = \"200Mbit/s\"\ndelay = \"5ms\"\nback = { rate = \"50Mbit/s\" }\n");
    let _server = Server::start(&lab, "b");
    for (more, set) in [
        (&[][..], 200.0),
        (&["--reverse"], 50.0),
        (&["--version6"], 200.0),
    ] {
        let to = if more.contains(&"--version6") {
            "b-6"
        } else {
            "b"
        };
        let client = iperf3(&lab, "a", to)
            .args(["-O", "1", "-t", "2"])
            .args(more)
            .spawn();
        let got = received_mbit_per_s(&report(client.unwrap()));
        assert!(
            (set * 0.95..set * 1.05).contains(&got),
            "{got} instead of {set} Mbit/s {more:?}"
        );
    }
    let status = lab.status().unwrap();
    let share = status.emulator_cpu_s / status.uptime_s;
    assert!(
        share < 0.5,
        "the emulator took {share} of a core for 200 Mbit/s"
    );
    assert_eq!(status.refused_packets, 0);
}

#[test]
fn framing_takes_its_share_of_the_rate() {
    let _alone = alone();
    let lab = build(
        "name = \"framed\"\nframing_bytes = 38\nhost = [{ name = \"a\" }, { name = \"b\" }]\n\
         link = [{ name = \"ab\", ends = [\"a\", \"b\"], rate = \"100Mbit/s\", delay = \"2ms\" }]\n",
    );
    let _server = Server::start(&lab, "b");
    let client = iperf3(&lab, "a", "b").args(["-O", "1", "-t", "2"]).spawn();
    let got = received_mbit_per_s(&report(client.unwrap()));
    // 1448 bytes of payload of each 1538 on the wire.
    assert!((90.0..94.6).contains(&got), "{got} instead of 94.15 Mbit/s");
}

#[test]
fn a_script_changes_rate_and_delay_while_data_flows() {
    let _alone = alone();
    let lab = pair(
        "rate = \"100Mbit/s\"\ndelay = \"5ms\"\nqueue = \"500kB\"\n\
         [[change]]\nat = \"4s\"\nlink = \"ab\"\nrate = \"20Mbit/s\"\n\
         [[change]]\nat = \"7s\"\nlink = \"ab\"\ndelay = \"40ms\"\n",
    );
    let _server = Server::start(&lab, "b");
    // Received at the client, so that what it counts has passed the link. Starts within a second.
    let client = iperf3(&lab, "a", "b")
        .args(["--reverse", "-t", "6"])
        .spawn();
    let report = report(client.unwrap());
    let rates: Vec<f64> = report["intervals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|interval| interval["sum"]["bits_per_second"].as_f64().unwrap() / 1e6)
        .collect();
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
    assert!(
        (90.0..105.0).contains(&mean(&rates[1..3])),
        "before: {rates:?}"
    );
    assert!(
        (17.0..22.0).contains(&mean(&rates[4..6])),
        "after: {rates:?}"
    );
    while lab.status().unwrap().uptime_s < 7.1 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_shortest_ms(&ping(&lab, "a", "b", 5), 80.0);
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
    let _alone = alone();
    let lab = pair("delay = \"20ms\"\njitter = \"10ms\"\n");
    let times = ping(&lab, "a", "b", 30);
    let (least, most) = (times[0], times[times.len() - 1]);
    // One of a busy machine may come later than any jitter.
    assert!(least > 19.5 && times[24] < 62.0, "{times:?}");
    assert!(most - least > 8.0, "nothing strays: {times:?}");
}
