//! Flows over different links share the access of their common host.

use crate::support::{OTHER_PORT, PORT, Received, Server, build, iperf3, measure_until};

const STAR: &str = r#"
    name = "star"
    [[host]]
    name = "home"
    down = "20Mbit/s"
    up = "8Mbit/s"
    sysctl = { "net.ipv4.tcp_congestion_control" = "cubic" }
    [[host]]
    name = "a"
    sysctl = { "net.ipv4.tcp_congestion_control" = "cubic" }
    [[host]]
    name = "b"
    sysctl = { "net.ipv4.tcp_congestion_control" = "cubic" }
    [[link]]
    name = "to-a"
    ends = ["home", "a"]
    delay = "5ms"
    [[link]]
    name = "to-b"
    ends = ["b", "home"]
    delay = "5ms"
"#;

#[test]
fn two_flows_share_the_access_both_ways() {
    let lab = build(STAR);
    let down = [(("a", PORT), "home"), (("b", PORT), "home")];
    let up = [(("home", PORT), "a"), (("home", OTHER_PORT), "b")];
    for (flows, access) in [(down, 20.0), (up, 8.0)] {
        let _servers = flows.map(|((host, port), _)| Server::start(&lab, host, port));
        // A flow that stands still for a while leaves all to the other: then the next half second
        // decides.
        let is_shared = |[one, other]: &[Received; 2]| {
            let mut halves = one.halves.iter().zip(&other.halves);
            halves.any(|(one, other)| {
                let is_all = (access * 0.95..access * 1.05).contains(&(one + other));
                is_all && one.min(*other) > access / 4.0
            })
        };
        measure_until(is_shared, || {
            let clients = flows.map(|(from, to)| {
                let mut client = iperf3(&lab, from, to);
                client.args(["-O", "1", "-t", "4"]).spawn().unwrap()
            });
            clients.map(Received::of)
        });
    }
}
