//! A reserved stream beside competitors: the rate that it keeps, and the time until they have it
//! back.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, ensure};
use posthaste_testbed::{Hosts, install};

use super::super::{site::output, stage, streams::Running};

/// Rate of the link, and the reserved share of it, in Mbit/s.
pub const LINK_MBIT: u32 = 200;
pub const RESERVED_MBIT: u32 = 80;
/// A full frame as the kernel counts reserved bytes, and its data, in bytes.
pub const FRAME_BYTES: u32 = 1514;
pub const DATA_BYTES: u32 = 1448;
/// Streams beside the reserved one.
pub const COMPETITORS: u32 = 8;
/// Longest time for a sender to report that it can't begin.
const BEGINS_WITHIN: Duration = Duration::from_secs(2);

/// Script that receives at ports 6001 (the reserved stream) and 7000 (everybody else) and counts by
/// tenths of a second. It prints three results. First the rate of the reserved stream from two
/// seconds after all had come until its end. Then the rates of the others meanwhile and in the last
/// seconds of all (bytes a second). Last the time after its end at which they first had 95 % of
/// that for half a second (seconds).
const SINK: &str = "
import selectors, socket, sys, time
competitors, after = int(sys.argv[1]), 6.0
selector, bins, came, begun, ended = selectors.DefaultSelector(), {6001: {}, 7000: {}}, 0, None, None
for port in bins:
    server = socket.create_server(('10.78.0.2', port), backlog=64)
    server.setblocking(False)
    selector.register(server, selectors.EVENT_READ, (port, True))
print('ready', flush=True)
until = time.monotonic() + 120
while time.monotonic() < until:
    for key, _ in selector.select(0.05):
        port, is_server = key.data
        if is_server:
            stream, _ = key.fileobj.accept()
            stream.setblocking(False)
            selector.register(stream, selectors.EVENT_READ, (port, False))
            came += 1
            if came == competitors + 1:
                begun = time.monotonic()
            continue
        got = len(key.fileobj.recv(1 << 18))
        now = time.monotonic()
        if not got:
            selector.unregister(key.fileobj)
            if port == 6001:
                ended, until = now, now + after
        elif begun:
            place = int((now - begun) * 10)
            bins[port][place] = bins[port].get(place, 0) + got
end = int((ended - begun) * 10)
def mean(port, first, last):
    return sum(bins[port].get(place, 0) for place in range(first, last)) * 10 / max(1, last - first)
last = int((ended - begun + after) * 10)
free = mean(7000, last - 30, last)
back = next((place for place in range(end, last - 5) if mean(7000, place, place + 5) >= 0.95 * free), last)
print(mean(6001, 20, end), mean(7000, 20, end), free, max(0.0, back / 10 - (ended - begun)), flush=True)
";

/// Script that reserves at the gateway, waits until that is in force, and sends all it can for so
/// long: so many streams to everybody's port, and one through the gateway under the reservation.
const SENDER: &str = "
import datetime, json, socket, sys, threading, time, urllib.request
address, token, rate, competitors, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
def ask(method, path, body=None):
    body = body and json.dumps(body).encode()
    request = urllib.request.Request(f'http://{address}/v1/reservations{path}', body, {'Authorization': 'Bearer ' + token}, method=method)
    return json.loads(urllib.request.urlopen(request, timeout=30).read() or b'null')
end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
ask('POST', '', {'id': 'bench', 'flows': [], 'hold_s': 60, 'fixed': {'rate_bytes_per_s': rate, 'end': end.strftime('%Y-%m-%dT%H:%M:%SZ')}})
ask('POST', '/bench/commit')
while not ask('GET', '/bench')['in_force']:
    time.sleep(0.1)
def send(stream, until):
    try:
        while time.monotonic() < until:
            stream.sendall(bytes(1 << 18))
    except OSError:
        pass
    stream.close()
for _ in range(competitors):
    stream = socket.create_connection(('10.78.0.2', 7000))
    threading.Thread(target=send, args=[stream, time.monotonic() + 600], daemon=True).start()
host, port = address.rsplit(':', 1)
stream = socket.create_connection((host, int(port)))
stream.sendall(f'CONNECT 10.78.0.2:6001 HTTP/1.1\\r\\nProxy-Authorization: Bearer {token}\\r\\nPosthaste-Reservation: bench\\r\\n\\r\\n'.encode())
assert b' 200 ' in stream.recv(4096)
send(stream, time.monotonic() + seconds)
ask('DELETE', '/bench')
time.sleep(60)
";

/// Result of one run.
#[derive(Debug, Clone, Copy)]
pub struct Kept {
    /// Data of the reserved stream alone, without its headers.
    pub data: f64,
    /// Rates of the others meanwhile and afterwards, in Mbit/s.
    pub others: f64,
    pub others_after: f64,
    /// Time until the others had 95 % of their rate without it.
    pub back_s: f64,
}

impl Kept {
    /// Returns the share that it kept of the reserved rate, which includes its headers.
    pub fn share(&self) -> f64 {
        self.data * f64::from(FRAME_BYTES) / f64::from(DATA_BYTES)
    }
}

/// Gives a stream a reserved rate beside competitors for so many seconds, and ends it.
pub fn measure(posthaste: &Path, seconds: u64) -> anyhow::Result<Kept> {
    let python = install::ensure_python()?;
    let hosts = Hosts::new("bench", &["gw", "far"])?;
    hosts.join([
        ("gw", "out", &["10.78.0.1/24"]),
        ("far", "in", &["10.78.0.2/24"]),
    ])?;
    let folder = stage::target_folder()?.join("bench-relay/reserved");
    let _ = std::fs::remove_dir_all(&folder);
    let mut gateway = hosts.command("gw", posthaste);
    gateway.args(["gateway", "--json", "--listen", "127.0.0.1:7423"]);
    gateway.args(["--allow", "10.78.0.2:*"]);
    gateway.args(["--reserve", &format!("out={LINK_MBIT}Mbit"), "--dir"]);
    let mut gateway = Running(gateway.arg(&folder).stdout(Stdio::piped()).spawn()?);
    gateway.first_line().context("the gateway")?;
    let address = "127.0.0.1:7423";
    let mut through = Command::new(posthaste);
    through.args(["through", address, "--token", "8h", "--secret-file"]);
    let token = output(through.arg(folder.join("secret")))?;
    let mut sink = hosts.command("far", &python);
    sink.args(["-c", SINK, &COMPETITORS.to_string()]);
    let mut sink = Running(sink.stdout(Stdio::piped()).spawn()?);
    let mut said = BufReader::new(sink.0.stdout.take().context("its output is kept")?);
    let mut line = String::new();
    said.read_line(&mut line)?;
    let rate = u64::from(RESERVED_MBIT) * 1_000_000 / 8;
    let mut sender = hosts.command("gw", &python);
    sender.args(["-c", SENDER, address, token.trim()]);
    sender.args([
        rate.to_string(),
        COMPETITORS.to_string(),
        seconds.to_string(),
    ]);
    let mut sender = Running(sender.spawn()?);
    // A sender that can't begin would leave the sink waiting.
    thread::sleep(BEGINS_WITHIN);
    ensure!(sender.0.try_wait()?.is_none(), "the sender ended");
    line.clear();
    said.read_line(&mut line)?;
    let figures: Vec<f64> = line
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()
        .with_context(|| format!("the sink said {line:?}"))?;
    let [reserved, others, others_after, back_s] = figures[..] else {
        anyhow::bail!("the sink said {line:?}");
    };
    let mbit = |bytes_per_s: f64| bytes_per_s * 8.0 / 1e6;
    Ok(Kept {
        data: mbit(reserved) / f64::from(RESERVED_MBIT),
        others: mbit(others),
        others_after: mbit(others_after),
        back_s,
    })
}
