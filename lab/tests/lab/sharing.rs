//! Flows over different links share the access of the host they have in common.

use crate::support::{Server, alone, build, iperf3, measure_until, received_mbit_per_s};

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
    let _alone = alone();
    let lab = build(STAR);
    let _servers = ["a", "b"].map(|host| Server::start(&lab, host));
    for (more, access) in [(&["--reverse"][..], 20.0), (&[], 8.0)] {
        let is_shared = |rates: &[f64; 2]| {
            let is_all = (access * 0.95..access * 1.05).contains(&rates.iter().sum());
            is_all && rates.iter().all(|rate| *rate > access / 4.0)
        };
        measure_until(is_shared, || {
            let clients = ["a", "b"].map(|host| {
                let mut client = iperf3(&lab, "home", host);
                client
                    .args(["-O", "1", "-t", "4"])
                    .args(more)
                    .spawn()
                    .unwrap()
            });
            clients.map(received_mbit_per_s)
        });
    }
}
