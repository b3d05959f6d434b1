//! Two independent copies share a common link. Needs the laboratory's requirements: root,
//! /dev/net/tun and ip.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use posthaste_lab::{Lab, Topology};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_posthaste");

/// Link for both copies. Behind it each has its own path, where arriving bytes are counted.
const TOPOLOGY: &str = r#"
    name = "shared"
    framing_bytes = 38
    [[host]]
    name = "near"
    sysctl = { "net.ipv4.tcp_congestion_control" = "cubic" }
    [[host]]
    name = "gate"
    [[host]]
    name = "one"
    sysctl = { "net.ipv4.tcp_congestion_control" = "cubic" }
    [[host]]
    name = "two"
    sysctl = { "net.ipv4.tcp_congestion_control" = "cubic" }
    [[link]]
    name = "wan"
    ends = ["near", "gate"]
    rate = "40Mbit/s"
    delay = "15ms"
    [[link]]
    name = "to-one"
    ends = ["gate", "one"]
    [[link]]
    name = "to-two"
    ends = ["gate", "two"]
"#;

/// Rate of IP on the link, in bytes a second.
const LINK_BYTES_PER_S: f64 = 5e6 * 1500.0 / 1538.0;

/// Delay of the second copy.
const APART: Duration = Duration::from_secs(10);

/// Time from then on until shares are measured, and the length of a measurement.
const SETTLING: Duration = Duration::from_secs(40);
const MEASURED: Duration = Duration::from_secs(20);

/// Measurements until the shares count as unfair: a copy without a processor for some seconds sends
/// nothing.
const MEASURED_MAX: u32 = 5;

/// Spare time in which they begin no file. Only a finished copy reports its choices.
const SPARE: Duration = Duration::from_secs(2);

/// Least fairness of the copies, and the least use of the link by both together.
const JAIN_MIN: f64 = 0.9;
const SHARE_MIN: f64 = 0.85;

/// Number of files, more than one copy alone could send in all that time. All names mean the same
/// bytes.
const FILES: usize = 512;
const FILE_BYTES: usize = 2 << 20;

/// Process that ends with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

fn make_source(folder: &Path) {
    fs::create_dir(folder).unwrap();
    let mut bytes = vec![0; FILE_BYTES];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    fs::write(folder.join("0"), bytes).unwrap();
    for number in 1..FILES {
        fs::hard_link(folder.join("0"), folder.join(number.to_string())).unwrap();
    }
}

/// Starts a relay on the host, and registers it there by the host's name.
fn start_relay(lab: &Lab, host: &str, home: &Path) -> Running {
    let mut child = lab
        .command(host, PROGRAM)
        .args(["relay", "--json", "--no-flush", "--until-stdin-closes"])
        .args(["--capacity", "4G", "--listen"])
        .arg(format!("{}:0", lab.address(host)))
        .arg("--dir")
        .arg(home.join("relay"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let out = child.stdout.take().unwrap();
    let running = Running(child);
    BufReader::new(out).read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    let field = |name: &str| ready[name].as_str().unwrap();
    let profile = format!(
        "[{host}]\nurl = \"{}/\"\nfingerprint = \"{}\"\nsecret_file = \"{}\"\n",
        field("url").replace("https://", "posthaste://"),
        field("fingerprint"),
        field("secret_file")
    );
    let file = home.join(".config/posthaste/profiles.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, profile).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    running
}

/// Runs a command as a user who has never copied anything.
fn posthaste(mut command: Command, home: &Path) -> Command {
    command
        .env("HOME", home)
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_STATE_HOME")
        .stdin(Stdio::null());
    command
}

/// Starts a copy to the relay on the host, with this time limit.
fn start_copy(lab: &Lab, source: &Path, host: &str, home: &Path, time: Duration) -> Running {
    let mut command = posthaste(lab.command("near", PROGRAM), home);
    command
        .args(["cp", "--quiet", "--max-duration"])
        .arg(format!("{}s", time.as_secs()))
        .arg(source)
        .arg(format!("{host}:put"));
    Running(command.spawn().unwrap())
}

/// Returns the choices of a copy and their reasons, for people.
fn explain(home: &Path) -> String {
    let mut command = posthaste(Command::new(PROGRAM), home);
    let output = command.args(["explain", "last"]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the bytes that arrived over this link.
fn arrived(lab: &Lab, link: &str) -> f64 {
    let status = lab.status().unwrap();
    let link = status.links.iter().find(|known| known.name == link);
    link.unwrap().forth.segments.delivered_bytes as f64
}

/// Computes Jain's index: 1 if all have the same, 1/n if one has everything.
fn jain(rates: &[f64]) -> f64 {
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(sum, squares), rate| {
        (sum + rate, squares + rate * rate)
    });
    sum * sum / (rates.len() as f64 * squares)
}

/// Measures the rate of each copy, in bytes a second.
fn measure(lab: &Lab) -> [f64; 2] {
    let links = ["to-one", "to-two"];
    let before = links.map(|link| arrived(lab, link));
    thread::sleep(MEASURED);
    let after = links.map(|link| arrived(lab, link));
    [0, 1].map(|place| (after[place] - before[place]) / MEASURED.as_secs_f64())
}

#[test]
fn two_copies_that_tune_themselves_share_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    make_source(&source);
    let lab = Lab::up(&Topology::parse(TOPOLOGY).unwrap()).unwrap();
    let hosts = ["one", "two"];
    let homes = hosts.map(|host| folder.path().join(host));
    let _relays = [0, 1].map(|place| start_relay(&lab, hosts[place], &homes[place]));
    let copy = |place: usize, time| start_copy(&lab, &source, hosts[place], &homes[place], time);
    let after = SETTLING + MEASURED * MEASURED_MAX + SPARE;
    let first = copy(0, APART + after);
    thread::sleep(APART);
    let mut copies = [first, copy(1, after)];
    thread::sleep(SETTLING);
    let mut told = String::new();
    for _ in 0..MEASURED_MAX {
        let rates = measure(&lab);
        assert_eq!(
            copies.each_mut().map(Running::is_alive),
            [true; 2],
            "a copy was over before it was measured\n{told}"
        );
        let share = (rates[0] + rates[1]) / LINK_BYTES_PER_S;
        let jain = jain(&rates);
        let line = format!("{rates:.0?} bytes/s, {share:.2} of the link, Jain's index {jain:.4}");
        println!("{line}");
        if jain >= JAIN_MIN && share >= SHARE_MIN {
            return;
        }
        writeln!(told, "{line}").unwrap();
    }
    // Why, only they know, once they have ended.
    for (mut copy, home) in copies.into_iter().zip(&homes) {
        copy.0.wait().unwrap();
        writeln!(told, "{}", explain(home)).unwrap();
    }
    panic!("{told}");
}
