//! Reservations at a gateway of our own, through the provider and from the command line, with a
//! real gateway on a real device: takes root, and the kernel's HTB and u32.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp as Moment};
use posthaste_circuit::{Ask, Change, Id, Provider, State, What, open, parse_circuits};
use posthaste_endpoint::{
    Error, ErrorKind,
    gateway::{Hop, Reserved, connect_reserved},
    relay::read_secret_file,
};
use posthaste_testbed::free_port;
use posthaste_types::{ByteRate, Bytes};
use serde_json::{Value, json};
use tempfile::TempDir;

#[path = "../../../circuit/tests/all/support/asking.rs"]
mod asking;

use asking::{ask_for, granted, in_s, refused, reserve, terms};

/// Reservable rate of a link of 80 Mbit/s, in bytes a second.
const RESERVABLE: u64 = 9_500_000;
/// Longest wait of these tests, on any machine.
const PATIENCE: Duration = Duration::from_secs(300);
/// Looks before a test gives up.
const LOOKS_MAX: u32 = 3000;
/// Longest wait for an answer of the gateway, and the wait if there is none.
const PATIENCE_S: u32 = 60;
const SHORT_PATIENCE_S: u32 = 3;

static WORLDS: AtomicU32 = AtomicU32::new(0);

fn must(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    output
}

/// Folder, a device to reserve on, and a gateway that runs or does not; removed with the test.
struct World {
    folder: TempDir,
    device: String,
    gateway: Option<Child>,
    /// Listening address.
    address: String,
}

impl World {
    fn build() -> Self {
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        let device = format!("phl{}x{number}", std::process::id() % 1_000_000);
        must(Command::new("ip").args(["link", "add", &device, "type", "veth"]));
        must(Command::new("ip").args(["link", "set", &device, "up"]));
        let mut world = Self {
            folder: tempfile::tempdir().unwrap(),
            device,
            gateway: None,
            address: format!("127.0.0.1:{}", free_port().unwrap()),
        };
        world.start(true);
        world
    }

    fn start(&mut self, reserves: bool) {
        let log = fs::File::create(self.folder.path().join("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_posthaste"));
        command.args(["gateway", "--json", "--allow", "127.0.0.1:*"]);
        command.args(["--listen", &self.address, "--dir"]);
        command.arg(self.folder.path());
        if reserves {
            command.args(["--reserve", &format!("{}=80Mbit", self.device)]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.stderr(log).spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        self.gateway = Some(child);
        out.read_line(&mut line).unwrap();
        let log = fs::read_to_string(self.folder.path().join("log"));
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{log:?}"));
        self.address = ready["address"].as_str().unwrap().to_owned();
    }

    /// Sends SIGKILL.
    fn kill(&mut self) {
        if let Some(mut gateway) = self.gateway.take() {
            gateway.kill().unwrap();
            gateway.wait().unwrap();
        }
    }

    /// Writes the circuits file for a gateway at `address`.
    fn circuits(&self, address: &str) -> String {
        self.circuits_with(address, PATIENCE_S)
    }

    fn circuits_with(&self, address: &str, patience_s: u32) -> String {
        format!(
            "[[circuit]]\nname = 'door'\nprovider = 'local'\naddress = 'http://{address}'\n\
             secret_file = 'secret'\nleads_to = ['lab']\nrate_max = '1Gbit'\npatience_s = {patience_s}\n\
             flows = [{{ to = '192.0.2.9:2811' }}]\n"
        )
    }

    fn provider_at(&self, address: &str) -> Box<dyn Provider> {
        self.provider_with(address, PATIENCE_S)
    }

    fn provider_with(&self, address: &str, patience_s: u32) -> Box<dyn Provider> {
        let circuits = self.circuits_with(address, patience_s);
        let circuits = parse_circuits(&circuits, self.folder.path()).unwrap();
        open(&circuits[0]).unwrap()
    }

    fn provider(&self) -> Box<dyn Provider> {
        self.provider_at(&self.address)
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("circuits.toml")
    }

    fn reserve(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_posthaste"));
        command.arg("reserve").args(arguments).arg("--circuits");
        command.arg(self.file()).output().unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.reserve(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(gateway) = &mut self.gateway {
            let _ = gateway.kill();
            let _ = gateway.wait();
        }
        let mut remove = Command::new("ip");
        let _ = remove.args(["link", "del", &self.device]).status();
    }
}

/// Fault between a client and the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    LoseAnswer,
    LoseQuestion,
    Garbage,
    Silence,
}

/// Proxy to the gateway that fails as set, once for each fault.
struct Way {
    address: String,
    troubles: Arc<Mutex<Vec<Trouble>>>,
}

impl Way {
    fn to(gateway: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let way = Self {
            address: listener.local_addr().unwrap().to_string(),
            troubles: Arc::default(),
        };
        let (gateway, troubles) = (gateway.to_owned(), Arc::clone(&way.troubles));
        // It ends with the process.
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let trouble = troubles.lock().unwrap().pop();
                let gateway = gateway.clone();
                // Who breaks the connection has seen it break.
                thread::spawn(move || carry(client, &gateway, trouble));
            }
        });
        way
    }

    fn plan(&self, troubles: &[Trouble]) {
        self.troubles.lock().unwrap().extend(troubles);
    }
}

/// Forwards one call and its answer.
fn carry(mut client: TcpStream, gateway: &str, trouble: Option<Trouble>) -> std::io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    if trouble == Some(Trouble::LoseQuestion) {
        return Ok(());
    }
    if trouble == Some(Trouble::Silence) {
        // Until the client has had enough.
        return client.read_to_end(&mut Vec::new()).map(|_| ());
    }
    let mut end = TcpStream::connect(gateway)?;
    end.set_read_timeout(Some(PATIENCE))?;
    let (mut from, mut to) = (client.try_clone()?, end.try_clone()?);
    let asking = thread::spawn(move || std::io::copy(&mut from, &mut to));
    let mut answer = Vec::new();
    end.read_to_end(&mut answer)?;
    match trouble {
        Some(Trouble::LoseAnswer) => {}
        Some(Trouble::Garbage) => {
            client.write_all(
                b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\n<}{\"",
            )?;
        }
        Some(Trouble::LoseQuestion | Trouble::Silence) | None => client.write_all(&answer)?,
    }
    client.shutdown(Shutdown::Both)?;
    // It has ended with the connection.
    drop(asking.join());
    Ok(())
}

fn now() -> Moment {
    Moment::now()
}

fn ask(key: &str, rate: u64, from_s: i64, until_s: i64) -> Ask {
    ask_for(key, terms(rate, from_s, until_s))
}

/// Waits until a reservation is in the kernel.
async fn until_up(provider: &dyn Provider, id: &Id) {
    for _ in 0..LOOKS_MAX {
        if provider.status(id).await.unwrap().state == State::Up {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{:?}", provider.list().await);
}

#[tokio::test]
async fn a_reservation_lives_as_the_gateway_says() {
    let world = World::build();
    let provider = world.provider();
    let wish = ask("r7-1", 3_000_000, 600, 4200);
    let held = granted(provider.hold(&wish).await.unwrap());
    assert_eq!(What::Fixed(held.granted), wish.what);
    let left = held.expires.unwrap().since(in_s(0));
    assert!((60..=121).contains(&left.as_secs()), "{left:?}");
    let status = provider.status(&held.id).await.unwrap();
    assert!(
        matches!(status.state, State::Held { expires: Some(_) }),
        "{status:?}"
    );
    assert_eq!(status.key.as_deref(), Some("r7-1"));
    assert_eq!(provider.list().await.unwrap().len(), 1, "holds are listed");
    for _ in 0..2 {
        granted(provider.commit(&held.id).await.unwrap());
    }
    let status = provider.status(&held.id).await.unwrap();
    assert_eq!(status.state, State::Reserved);
    assert_eq!(status.terms.map(What::Fixed), Some(wish.what));
    assert_eq!(granted(provider.hold(&wish).await.unwrap()).expires, None);

    // It can begin earlier, and end later, all at once or not at all.
    let change = Change {
        rate: Some(ByteRate::new(4_000_000)),
        from: Some(in_s(0)),
        until: Some(in_s(3000)),
    };
    let changed = granted(provider.modify(&held.id, &change).await.unwrap());
    assert_eq!(changed.rate.get(), 4_000_000);
    assert_eq!(Some(changed.until), change.until);
    until_up(&*provider, &held.id).await;
    let too_much = Change {
        rate: Some(ByteRate::new(RESERVABLE + 1)),
        until: Some(in_s(2000)),
        ..Change::default()
    };
    let no = refused(provider.modify(&held.id, &too_much).await.unwrap());
    assert_eq!(no.fits, Some(ByteRate::new(RESERVABLE)));
    let status = provider.status(&held.id).await.unwrap();
    assert_eq!(
        status.terms.map(|terms| (terms.rate, terms.until)),
        Some((changed.rate, changed.until))
    );
    for _ in 0..2 {
        provider.release(&held.id).await.unwrap();
    }
    let error = provider.status(&held.id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let error = provider.modify(&held.id, &change).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(provider.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_full_calendar_says_no_and_what_would_fit() {
    let world = World::build();
    let provider = world.provider();
    reserve(&*provider, &ask("first", 7_000_000, 600, 4200)).await;
    let wish = ask("second", 4_000_000, 600, 4200);
    let no = refused(provider.hold(&wish).await.unwrap());
    assert_eq!(no.fits, Some(ByteRate::new(RESERVABLE - 7_000_000)));
    assert!(
        no.why.contains("it is from") && !no.why.contains('\n'),
        "{no:?}"
    );
    // It is free before and behind, and what fits is taken.
    reserve(&*provider, &ask("behind", RESERVABLE, 4300, 8000)).await;
    reserve(&*provider, &ask("second", 2_500_000, 600, 4200)).await;
    // Beyond the circuit nobody is asked.
    let no = refused(
        provider
            .hold(&ask("third", 1 << 40, 9000, 9900))
            .await
            .unwrap(),
    );
    assert_eq!(no.fits, Some(ByteRate::new(125_000_000)));
    // The past is no refusal.
    let error = provider.hold(&ask("past", 1, -100, -50)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[tokio::test]
async fn a_volume_goes_where_the_calendar_has_room() {
    let world = World::build();
    let provider = world.provider();
    // All is taken for ten minutes.
    let free = in_s(599);
    reserve(&*provider, &ask("first", RESERVABLE, 0, 600)).await;
    let volume = |key: &str, rate_max: u64, deadline_s| Ask {
        key: key.to_owned(),
        what: What::Volume {
            bytes: Bytes::new(900_000_000),
            earliest: in_s(0),
            deadline: in_s(deadline_s),
            rate_max: ByteRate::new(rate_max),
        },
    };
    let wish = volume("v", 3_000_000, 1000);
    let held = granted(provider.hold(&wish).await.unwrap());
    assert_eq!(held.granted.rate.get(), 3_000_000);
    assert!(held.granted.from >= free, "{held:?}");
    assert!(held.granted.volume() >= Bytes::new(900_000_000));
    // Asked a little later, its "now" is another one: it is the same all the same.
    let later = volume("v", 3_000_000, 999);
    assert_eq!(granted(provider.hold(&later).await.unwrap()), held);
    let no = refused(provider.hold(&volume("w", 3_000_000, 700)).await.unwrap());
    assert_eq!(no.fits, None);
    assert!(
        no.why.contains("B would; all of them would by 20"),
        "{no:?}"
    );
    assert_eq!(provider.list().await.unwrap().len(), 2);
}

#[tokio::test]
async fn whoever_loses_an_answer_asks_again_and_has_one_reservation() {
    use Trouble::{Garbage, LoseAnswer, LoseQuestion, Silence};
    let world = World::build();
    let way = Way::to(&world.address);
    let provider = world.provider_at(&way.address);
    let impatient = world.provider_with(&way.address, SHORT_PATIENCE_S);
    // A question whose connection breaks is put twice by itself.
    for (number, (troubles, kind)) in [
        (&[LoseAnswer, LoseAnswer][..], ErrorKind::Unreachable),
        (&[LoseQuestion, LoseQuestion], ErrorKind::Unreachable),
        (&[Garbage], ErrorKind::Other),
        (&[Silence], ErrorKind::TimedOut),
    ]
    .into_iter()
    .enumerate()
    {
        let wish = ask(&format!("lost-{number}"), 4_000_000, 600, 4200);
        let troubled = if kind == ErrorKind::TimedOut {
            &impatient
        } else {
            &provider
        };
        way.plan(troubles);
        let error = troubled.hold(&wish).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let id = granted(provider.hold(&wish).await.unwrap()).id;
        way.plan(troubles);
        troubled.commit(&id).await.unwrap_err();
        granted(provider.commit(&id).await.unwrap());
        let change = Change {
            until: Some(in_s(3000)),
            ..Change::default()
        };
        way.plan(troubles);
        troubled.modify(&id, &change).await.unwrap_err();
        let now = granted(provider.modify(&id, &change).await.unwrap());
        assert_eq!(Some(now.until), change.until);
        assert_eq!(provider.list().await.unwrap().len(), 1);
        way.plan(troubles);
        troubled.release(&id).await.unwrap_err();
        provider.release(&id).await.unwrap();
        assert!(provider.list().await.unwrap().is_empty());
    }
    // One lost answer nobody notices.
    way.plan(&[LoseAnswer]);
    granted(provider.hold(&ask("lost", 1, 600, 4200)).await.unwrap());
    assert_eq!(provider.list().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_gateway_that_is_killed_keeps_what_it_granted() {
    let mut world = World::build();
    let provider = world.provider();
    let running = reserve(&*provider, &ask("running", 2_000_000, 0, 3600)).await;
    until_up(&*provider, &running).await;
    let held = ask("held", 2_000_000, 600, 3600);
    let held = granted(provider.hold(&held).await.unwrap()).id;
    let slow = ask("slow", 2_000_000, 600, 3600);
    let expired = granted(provider.hold(&slow).await.unwrap()).id;
    world.kill();
    let error = provider.commit(&held).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(error.is_temporary());
    expire(&world.folder.path().join("reservations.json"), "slow");
    world.start(true);

    granted(provider.commit(&held).await.unwrap());
    until_up(&*provider, &running).await;
    let no = refused(provider.commit(&expired).await.unwrap());
    assert!(no.why.contains("expired"), "{no:?}");
    provider.release(&expired).await.unwrap();
    reserve(&*provider, &slow).await;
    assert_eq!(provider.list().await.unwrap().len(), 3);

    // Without --reserve nothing is given back, and nobody is told so.
    world.kill();
    world.start(false);
    let error = provider.release(&running).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    world.kill();
    world.start(true);
    for id in [running, held, expired] {
        provider.release(&id).await.unwrap();
    }
    assert!(provider.list().await.unwrap().is_empty());
}

/// Expires a hold in a gateway's file, which nobody has open.
fn expire(file: &Path, id: &str) {
    let mut kept: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let all = kept["reservations"].as_array_mut().unwrap();
    let one = all.iter_mut().find(|one| one["asked"]["id"] == id).unwrap();
    one["held_until"] = json!((now() - SignedDuration::from_secs(1)).to_string());
    fs::write(file, kept.to_string()).unwrap();
}

#[tokio::test]
async fn a_wrong_secret_is_no_refusal_and_is_shown_to_nobody() {
    let world = World::build();
    let wrong = "5a18".repeat(16);
    let file = world.folder.path().join("secret");
    fs::write(&file, &wrong).unwrap();
    let provider = world.provider();
    let error = provider.hold(&ask("mine", 1, 600, 4200)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert!(!error.is_temporary());
    let texts = [error.to_string(), format!("{error:?} {provider:?}")];
    assert!(texts.iter().all(|text| !text.contains(&wrong)), "{texts:?}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let circuits = parse_circuits(&world.circuits(&world.address), world.folder.path()).unwrap();
    let error = open(&circuits[0]).unwrap_err();
    assert!(error.to_string().contains("chmod 600"), "{error}");
    for name in ["", "../status", "a/commit", "a\r\nb"] {
        let error = provider.status(&Id::new(name)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{name}");
    }
}

#[test]
fn bandwidth_of_a_gateway_is_reserved_from_the_command_line() {
    let mut world = World::build();
    fs::write(world.file(), world.circuits(&world.address)).unwrap();
    let new = ["new", "--to", "lab", "--key", "night-7", "--rate", "24Mbit"];
    let new = [&new[..], &["--until", "1h"]].concat();
    let one = world.json(&new);
    assert_eq!(
        (&one["circuit"], &one["id"]),
        (&json!("door"), &json!("night-7"))
    );
    assert_eq!(one["rate_bytes_per_s"], 3_000_000);
    assert_eq!(
        world.json(&new)["until"],
        one["until"],
        "the same name is the same reservation"
    );
    let there = ["--provider", "door", "night-7"];
    let changed = world.json(&[&["modify", "--rate", "16Mbit"][..], &there].concat());
    assert_eq!(changed["rate_bytes_per_s"], 2_000_000);
    assert_eq!(world.json(&["list"])[0]["rate_bytes_per_s"], 2_000_000);
    let output = world.reserve(&["new", "--to", "lab", "--rate", "64Mbit", "--until", "30m"]);
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(11), "{line}");
    assert!(line.contains("60 Mbit/s would fit"), "{line}");
    assert_eq!(world.json(&["list"]).as_array().unwrap().len(), 1);
    for _ in 0..2 {
        let output = world.reserve(&[&["release"][..], &there].concat());
        assert!(output.status.success(), "{output:?}");
    }
    let output = world.reserve(&[&["show"][..], &there].concat());
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    world.kill();
    let output = world.reserve(&["list"]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
}

#[tokio::test]
async fn a_stream_that_may_go_without_its_reservation_does_and_another_does_not() {
    let world = World::build();
    let provider = world.provider();
    reserve(&*provider, &ask("known", 2_000_000, 0, 3600)).await;
    let hop = Hop {
        address: world.address.parse().unwrap(),
        secret: read_secret_file(&world.folder.path().join("secret")).unwrap(),
    };
    let there = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = there.local_addr().unwrap().to_string().parse().unwrap();
    let open = async |reserved: Result<Reserved, Error>| {
        let reserved = reserved.unwrap();
        let stream = connect_reserved(std::slice::from_ref(&hop), &target, Some(&reserved)).await;
        stream.map(drop).map_err(|error| error.kind())
    };
    assert_eq!(open(Reserved::required("known")).await, Ok(()));
    assert_eq!(open(Reserved::optional("known")).await, Ok(()));
    assert_eq!(open(Reserved::optional("nobody")).await, Ok(()));
    let denied = Err(ErrorKind::PermissionDenied);
    assert_eq!(open(Reserved::required("nobody")).await, denied);
}
