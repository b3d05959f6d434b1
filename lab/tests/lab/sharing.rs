//! Flows over different links share the access of the host they have in common.

use crate::support::{Server, alone, build, iperf3, received_mbit_per_s, report};

const STAR: &str = r#"
    name = "star"
    [[host]]
    name = "home"
    down = "100Mbit/s"
    up = "40Mbit/s"
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
    for (more, access) in [(&["--reverse"][..], 100.0), (&[], 40.0)] {
        let clients = ["a", "b"].map(|host| {
            let mut client = iperf3(&lab, "home", host);
            client
                .args(["-O", "1", "-t", "4"])
                .args(more)
                .spawn()
                .unwrap()
        });
        let rates = clients.map(|client| received_mbit_per_s(&report(client)));
        let sum: f64 = rates.iter().sum();
        assert!(
            (access * 0.95..access * 1.05).contains(&sum),
            "{rates:?} of {access} Mbit/s"
        );
        for rate in rates {
            assert!(rate > access / 4.0, "{rates:?} of {access} Mbit/s");
        }
    }
}
