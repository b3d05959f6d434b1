//! Faults between two healthy ends: streams that stall, stores that ask for a pause, protocols that
//! are gone, rates that change.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use posthaste_testbed::{S3Server, SlowLink, SshServer};

use super::{
    stream::feed,
    world::{World, lines_of, noise},
};

/// Fault that a middleman inflicts on the connections through it.
#[derive(Clone, Copy)]
enum Mischief {
    /// Silence on the first connection after so many bytes of answers.
    Silence { after: usize },
    /// Rate of every connection, in bytes a second; the first one drops to `slow` after this many
    /// bytes of answers.
    Crawl {
        after: usize,
        rate: usize,
        slow: usize,
    },
    /// Answers "503, come back in a second" to the first requests of so many connections.
    Busy { connections: usize },
    /// Wrong byte in long answers.
    Tamper,
}

/// Proxy to a server on this machine that mistreats some connections.
struct Middleman {
    port: u16,
    struck: Arc<AtomicUsize>,
}

impl Middleman {
    fn start(server: u16, mischief: Mischief) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let struck = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&struck);
        thread::spawn(move || {
            for (number, client) in listener.incoming().enumerate() {
                let counter = Arc::clone(&counter);
                thread::spawn(move || pass(client.unwrap(), server, number, mischief, &counter));
            }
        });
        Self { port, struck }
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

fn pass(
    mut client: TcpStream,
    server: u16,
    number: usize,
    mischief: Mischief,
    struck: &AtomicUsize,
) {
    if let Mischief::Busy { connections } = mischief
        && number < connections
    {
        struck.fetch_add(1, SeqCst);
        let mut head = [0; 64 << 10];
        let _ = client.read(&mut head);
        let answer = "HTTP/1.1 503 Slow Down\r\nretry-after: 1\r\ncontent-length: 0\r\n\
                      connection: close\r\n\r\n";
        let _ = client.write_all(answer.as_bytes());
        return;
    }
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", server)) else {
        return;
    };
    let (mut from_client, mut to_server) =
        (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || {
        let _ = std::io::copy(&mut from_client, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Write);
    });
    let mut block = vec![0; 64 << 10];
    let mut passed = 0;
    let is_first = || struck.compare_exchange(0, 1, SeqCst, SeqCst).is_ok();
    let mut is_slow = false;
    while let Ok(len) = server.read(&mut block)
        && len > 0
    {
        if let Mischief::Crawl { after, rate, slow } = mischief {
            is_slow = is_slow || passed >= after && is_first();
            let rate = if is_slow { slow } else { rate };
            thread::sleep(Duration::from_micros((len * 1_000_000 / rate) as u64));
        }
        if let Mischief::Tamper = mischief
            && passed >= 1 << 20
            && struck.fetch_add(1, SeqCst) == 0
        {
            block[0] ^= 1;
        }
        if client.write_all(&block[..len]).is_err() {
            return;
        }
        passed += len;
        if let Mischief::Silence { after } = mischief
            && passed >= after
            && is_first()
        {
            thread::sleep(Duration::from_secs(600));
            return;
        }
    }
    let _ = client.shutdown(Shutdown::Write);
}

#[expect(clippy::disallowed_methods, reason = "a test's clock")]
fn now() -> Instant {
    Instant::now()
}

fn port_of(server: &S3Server) -> u16 {
    let endpoint = server.endpoint();
    endpoint.rsplit_once(':').unwrap().1.parse().unwrap()
}

#[test]
fn a_stream_that_goes_silent_is_given_up_for_another() {
    let server = S3Server::start().unwrap();
    let world = World::new().with_s3(&server);
    fs::write(world.path("file"), noise(1, 50_000_000)).unwrap();
    world.copy(["file", "s3://testbed/file"]);
    let silence = Mischief::Silence { after: 1 << 20 };
    let middleman = Middleman::start(port_of(&server), silence);
    let started = now();
    let output = world
        .cp(["s3://testbed/file", "back", "--json", "--transfers", "4"])
        .env("AWS_ENDPOINT_URL", middleman.endpoint())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", lines_of(&output));
    assert_eq!(middleman.struck.load(SeqCst), 1, "nothing was disturbed");
    let took = started.elapsed();
    assert!(took < Duration::from_secs(300), "{took:?}");
    let figures: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(figures["retries"].as_u64().unwrap() >= 1, "{figures}");
    assert_eq!(
        figures["bytes"], 50_000_000,
        "what was sent again counts once"
    );
    assert!(fs::read(world.path("file")).unwrap() == fs::read(world.path("back")).unwrap());
}

#[test]
fn a_stream_far_slower_than_its_like_is_given_up_for_another() {
    let server = S3Server::start().unwrap();
    let world = World::new().with_s3(&server);
    fs::write(world.path("file"), noise(5, 120_000_000)).unwrap();
    world.copy(["file", "s3://testbed/file"]);
    // At this rate a segment of 8 MiB would take more than half an hour.
    let crawl = Mischief::Crawl {
        after: 64 << 10,
        rate: 2_000_000,
        slow: 4_000,
    };
    let middleman = Middleman::start(port_of(&server), crawl);
    let started = now();
    let output = world
        .cp(["s3://testbed/file", "back", "--json", "--transfers", "4"])
        .env("AWS_ENDPOINT_URL", middleman.endpoint())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", lines_of(&output));
    assert_eq!(middleman.struck.load(SeqCst), 1, "nothing was slow");
    let took = started.elapsed();
    assert!(took < Duration::from_secs(600), "{took:?}");
    let figures: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(figures["retries"].as_u64().unwrap() >= 1, "{figures}");
    assert!(fs::read(world.path("file")).unwrap() == fs::read(world.path("back")).unwrap());
}

#[test]
fn a_store_that_asks_for_a_pause_gets_it() {
    let server = S3Server::start().unwrap();
    let world = World::new().with_s3(&server);
    fs::write(world.path("file"), "x").unwrap();
    let busy = Mischief::Busy { connections: 2 };
    let middleman = Middleman::start(port_of(&server), busy);
    let started = now();
    let output = world
        .cp(["file", "s3://testbed/file"])
        .env("AWS_ENDPOINT_URL", middleman.endpoint())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", lines_of(&output));
    assert_eq!(middleman.struck.load(SeqCst), 2);
    // What a name may mean is asked at once, and so both pauses pass together.
    let took = started.elapsed();
    assert!(took >= Duration::from_secs(1), "{took:?}");
}

#[test]
fn another_protocol_stands_in_for_one_that_is_gone() {
    let server = SshServer::start().unwrap();
    let world = World::new().with_ssh(&server);
    fs::write(world.path("file"), noise(2, 100_000)).unwrap();
    let folder = world.path("home/.config/posthaste");
    fs::create_dir_all(&folder).unwrap();
    let there = server.address(&world.path("far").display().to_string());
    // Port 9 of this machine: nobody listens there.
    let profile = format!(
        "[store]\nurl = \"s3://testbed\"\nendpoint = \"http://127.0.0.1:9\"\n\
         access_key_id = \"a\"\nsecret_access_key = \"b\"\nfallback = \"{there}\"\n"
    );
    let path = folder.join("profiles.toml");
    fs::write(&path, profile).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let output = world.cp(["file", "store:below/file"]).output().unwrap();
    let lines = lines_of(&output);
    assert!(output.status.success(), "{lines}");
    assert!(lines.contains("fallback of store:below/file"), "{lines}");
    assert!(
        fs::read(world.path("far/below/file")).unwrap() == fs::read(world.path("file")).unwrap()
    );
}

#[test]
fn a_rate_in_a_file_may_change_while_a_copy_runs() {
    let server = S3Server::start().unwrap();
    let world = World::new().with_s3(&server);
    fs::write(world.path("file"), noise(3, 30_000_000)).unwrap();
    fs::write(world.path("limit"), "100K\n").unwrap();
    let mut copying = world
        .cp(["file", "s3://testbed/file", "--bwlimit", "@limit"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_millis(1500));
    assert!(
        copying.try_wait().unwrap().is_none(),
        "the rate did not hold"
    );
    let changed = now();
    fs::write(world.path("limit"), "off\n").unwrap();
    assert!(copying.wait().unwrap().success());
    let took = changed.elapsed();
    // Five minutes at the first rate.
    assert!(took < Duration::from_secs(180), "{took:?}");
    let refused = world.cp(["file", "back", "--bwlimit", "fast"]).output();
    let refused = refused.unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(lines_of(&refused).contains("08:00,10M 18:00,off"));
}

#[test]
fn what_was_copied_is_read_back_when_asked() {
    let server = S3Server::start().unwrap();
    let world = World::new().with_s3(&server);
    fs::create_dir_all(world.path("source")).unwrap();
    fs::write(world.path("source/large"), noise(4, 20_000_000)).unwrap();
    fs::write(world.path("source/small"), "x").unwrap();
    world.copy(["source/", "s3://testbed/run", "--verify"]);
    assert!(server.bucket_folder().join("run/large").exists());
}

/// Longest time that a copy continues after its time limit, on the busiest machine.
const ENDED_WITHIN: Duration = Duration::from_secs(240);

/// Copies `source` to the store over a slow link for so long, and returns the link's address.
fn copy_for(
    world: &World,
    server: &S3Server,
    source: &str,
    bytes_per_s: u32,
    time: &str,
) -> String {
    let link = SlowLink::start(([127, 0, 0, 1], port_of(server)).into(), bytes_per_s).unwrap();
    let address = format!("http://127.0.0.1:{}", link.port());
    let started = now();
    let output = world
        .cp([source, "s3://testbed/late", "--max-duration", time])
        .args(["--transfers", "4"])
        .env("AWS_ENDPOINT_URL", &address)
        .output()
        .unwrap();
    let took = started.elapsed();
    assert_eq!(output.status.code(), Some(10), "{}", lines_of(&output));
    assert!(took < ENDED_WITHIN, "{took:?}");
    address
}

#[test]
fn a_copy_whose_time_is_over_ends_soon_and_is_continued() {
    let server = S3Server::start().unwrap();
    let world = World::new().with_s3(&server);
    fs::write(world.path("small"), noise(1, 7_000_000)).unwrap();
    // It goes in one request, which would take more than ten minutes.
    copy_for(&world, &server, "small", 10_000, "1s");
    fs::write(world.path("large"), noise(2, 250_000_000)).unwrap();
    // A segment takes some four seconds, all of them more than thirty.
    let address = copy_for(&world, &server, "large", 2_000_000, "20s");
    // Another address would be another store.
    let continued = world
        .cp(["large", "s3://testbed/late", "--json"])
        .env("AWS_ENDPOINT_URL", address)
        .output()
        .unwrap();
    assert!(continued.status.success(), "{}", lines_of(&continued));
    let figures: serde_json::Value = serde_json::from_slice(&continued.stdout).unwrap();
    assert!(figures["resumedBytes"].as_u64().unwrap() > 0, "{figures}");
    world.copy(["s3://testbed/late", "back"]);
    assert!(fs::read(world.path("large")).unwrap() == fs::read(world.path("back")).unwrap());
}

#[test]
fn a_stream_that_reads_back_differently_is_told() {
    let server = S3Server::start().unwrap();
    let world = World::new().with_s3(&server);
    let middleman = Middleman::start(port_of(&server), Mischief::Tamper);
    let pour = |options: &[&str]| {
        let mut command = world.cp(["-", "s3://testbed/out"]);
        command.args(options);
        command.env("AWS_ENDPOINT_URL", middleman.endpoint());
        feed(command, noise(1, 20_000_000))
            .wait_with_output()
            .unwrap()
    };
    let output = pour(&[]);
    assert!(output.status.success(), "{}", lines_of(&output));
    assert_eq!(middleman.struck.load(SeqCst), 0, "it was read back unasked");
    let output = pour(&["--verify"]);
    let lines = lines_of(&output);
    assert_eq!(output.status.code(), Some(1), "{lines}");
    assert!(
        lines.contains("what was read back is not what was written"),
        "{lines}"
    );
    let output = pour(&["--verify"]);
    assert!(output.status.success(), "{}", lines_of(&output));
}
