use super::*;

const PAIR: &str = r#"name = "pair"
[[host]]
name = "near"
[[host]]
name = "far"
[[link]]
name = "wan"
ends = ["near", "far"]
rate = "1Gbit/s"
delay = "30ms"
back = { rate = "100Mbit/s" }
"#;

fn refusal(text: &str) -> String {
    let message = Topology::parse(text).unwrap_err().to_string();
    assert!(!message.contains('\n'), "more than a line: {message}");
    message
}

#[test]
fn a_topology_is_what_it_says() {
    let topology = Topology::parse(PAIR).unwrap();
    let link = &topology.links()[0];
    assert_eq!(link.forth.rate.to_string(), "1Gbit/s");
    assert_eq!(link.back.rate.to_string(), "100Mbit/s");
    assert_eq!(link.back.delay, link.forth.delay);
    assert_eq!(topology.host("far"), Some(HostId(1)));
    assert_eq!(
        topology.next_link(HostId(0), HostId(1)).unwrap().name,
        "wan"
    );
}

fn assert_refused(text: &str, says: &str) {
    let message = refusal(text);
    assert!(message.contains(says), "{message}\n  does not say: {says}");
}

#[test]
fn wrong_words_are_refused_in_one_line_that_says_where() {
    for (right, wrong, says) in [
        ("1Gbit/s", "1Gbits", "line 9: \"1Gbits\" is no rate"),
        ("delay", "dealy", "line 10: unknown field `dealy`"),
        (
            "\"far\"]",
            "\"fra\"]",
            "link wan: there is no host \"fra\"; there are: near, far",
        ),
        ("[[link]]", "[[link", "line 6: "),
        ("\"far\"", "\"near\"", "link wan joins near to itself"),
        ("\"wan\"", "\"WAN\"", "\"WAN\" is no name of a link"),
        ("\"wan\"", "\"far\"", "two are called \"far\""),
        ("\"wan\"", "\"a-very-long-link-name\"", "15 letters"),
        ("30ms", "3000s", "bytes would be under way"),
    ] {
        assert_refused(&PAIR.replace(right, wrong), says);
    }
}

#[test]
fn what_cannot_be_built_is_refused_in_one_line() {
    for (more, says) in [
        (
            "jitter = \"31ms\"\n",
            "link wan: jitter (31ms) is more than the delay (30ms)",
        ),
        ("queue = \"10B\"\n", "link wan: a queue of 10 bytes"),
        (
            "loss = \"200%\"\n",
            "line 12: \"200%\" is more than everything",
        ),
        (
            "burst_every = 5\nburst_length = 0\n",
            "burst_length of 1 at least",
        ),
        (
            "[[host]]\nname = \"alone\"\n",
            "no links lead from near to alone",
        ),
        (
            "[[link]]\nname = \"two\"\nends = [\"far\", \"near\"]\n",
            "links wan and two join",
        ),
        (
            "[[host]]\nname = \"x\"\n[host.sysctl]\n\"vm.x\" = \"1\"\n",
            "no kernel setting",
        ),
    ] {
        assert_refused(&format!("{PAIR}{more}"), says);
    }
    assert_refused("name = \"x\"\nhost = []\n", "there is no host");
    assert_refused("name = \"x\"\n", "missing field `host`");
}

#[test]
fn changes_that_cannot_be_are_refused_in_one_line() {
    for (change, says) in [
        ("link = \"nope\"\nrate = \"off\"\n", "link \"nope\""),
        ("link = \"wan\"\n", "changes nothing"),
        (
            "link = \"wan\"\nup = \"1Mbit/s\"\n",
            "only hosts have up and down",
        ),
        (
            "host = \"far\"\nrate = \"1Mbit/s\"\n",
            "host far: only up, down",
        ),
        (
            "link = \"wan\"\njitter = \"1s\"\n",
            "link wan at 1s: jitter",
        ),
        ("rate = \"off\"\n", "one link or of one host"),
    ] {
        assert_refused(&format!("{PAIR}[[change]]\nat = \"1s\"\n{change}"), says);
    }
}

#[test]
fn a_missing_file_is_refused_in_one_line() {
    let error = Topology::read(Path::new("/nowhere/x.toml"))
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("can't read /nowhere/x.toml: "), "{error}");
}

#[test]
fn ways_of_least_delay_are_taken_and_hosts_that_do_not_forward_are_avoided() {
    let text = r#"
        name = "ring"
        host = [{ name = "a" }, { name = "b" }, { name = "c" }, { name = "d" }]
        link = [
            { name = "ab", ends = ["a", "b"], delay = "10ms" },
            { name = "bc", ends = ["b", "c"], delay = "10ms" },
            { name = "ac", ends = ["a", "c"], delay = "50ms" },
            { name = "cd", ends = ["c", "d"] },
        ]
    "#;
    let way = |topology: &Topology, from: &str, to: &str| -> String {
        let (from, to) = (topology.host(from).unwrap(), topology.host(to).unwrap());
        topology.next_link(from, to).unwrap().name.clone()
    };
    let ring = Topology::parse(text).unwrap();
    assert_eq!(way(&ring, "a", "d"), "ab");
    assert_eq!(way(&ring, "d", "a"), "cd");
    let cut = text.replace("{ name = \"b\" }", "{ name = \"b\", forwards = false }");
    let cut = Topology::parse(&cut).unwrap();
    assert_eq!(way(&cut, "a", "d"), "ac");
    assert_eq!(way(&cut, "a", "b"), "ab");
    let dead = text.replace("{ name = \"c\" }", "{ name = \"c\", forwards = false }");
    assert!(refusal(&dead).contains("no links lead from a to d"));
}

#[test]
fn changes_come_in_order_of_time() {
    let text = format!(
        "{PAIR}[[change]]\nat = \"2s\"\nlink = \"wan\"\nstate = \"down\"\n\
         [[change]]\nat = \"1s\"\nlink = \"wan\"\ndirection = \"back\"\nrate = \"5Mbit/s\"\n"
    );
    let topology = Topology::parse(&text).unwrap();
    let moments: Vec<String> = topology
        .changes()
        .iter()
        .map(|(at, _)| at.to_string())
        .collect();
    assert_eq!(moments, ["1s", "2s"]);
}

#[test]
fn changes_can_be_said_in_words() {
    let topology = Topology::parse(PAIR).unwrap();
    let say = |target: &str, words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        topology
            .change(target, &words)
            .map_err(|error| error.to_string())
    };
    let words = [
        "rate=10Mbit/s",
        "loss=1%",
        "burst_every=100",
        "reorder=true",
        "direction=back",
    ];
    let Ok(Change::Link {
        direction, setting, ..
    }) = say("wan", &words)
    else {
        panic!("words are understood");
    };
    assert_eq!(direction, Some(Direction::Back));
    assert_eq!(
        (setting.burst_every, setting.reorder),
        (Some(100), Some(true))
    );
    assert!(matches!(
        say("far", &["down=1Mbit/s"]),
        Ok(Change::Host { .. })
    ));
    for (target, words, says) in [
        ("nope", vec!["rate=1bit"], "no link or host"),
        ("wan", vec!["rate"], "is not NAME=VALUE"),
        ("wan", vec!["rate=fast"], "is no rate"),
        ("wan", vec!["speed=1bit"], "unknown field `speed`"),
        ("wan", vec!["loss=1%", "loss=2%"], "twice"),
        ("wan", vec!["burst_every=x"], "is a number"),
        ("wan", vec![], "changes nothing"),
    ] {
        let error = say(target, &words).unwrap_err();
        assert!(error.contains(says) && !error.contains('\n'), "{error}");
    }
}
