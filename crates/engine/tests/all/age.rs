//! Compatibility with the `age` command, in both directions.

use std::{
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process::{Command, Output, Stdio},
};

use posthaste_engine::envelope::age::{Identity, Recipient, read_identities, unwrap, wrap};
use posthaste_testbed::install;

const SECRET: &[u8] = b"5f0c: the key of a dataset\n";

fn run(program: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

fn keep(path: &Path, identity: &Identity) {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .unwrap();
    writeln!(file, "{}", *identity.to_secret_text()).unwrap();
}

#[test]
fn the_age_command_opens_what_is_wrapped_here() {
    let age = install::find_debian_program(install::AGE).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let identities: Vec<Identity> = (0..3).map(|_| Identity::random().unwrap()).collect();
    let recipients: Vec<Recipient> = identities[..2].iter().map(Identity::recipient).collect();
    let wrapped = wrap(&recipients, SECRET).unwrap();
    for (n, identity) in identities.iter().enumerate() {
        let path = folder.path().join(n.to_string());
        keep(&path, identity);
        let output = run(&age, &["--decrypt", "-i", path.to_str().unwrap()], &wrapped);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if n < 2 {
            assert!(output.status.success(), "{said}");
            assert_eq!(output.stdout, SECRET);
        } else {
            assert!(
                !output.status.success() && output.stdout.is_empty(),
                "{said}"
            );
            assert!(said.contains("no identity matched"), "{said}");
        }
    }
}

#[test]
fn what_the_age_command_wraps_opens_here() {
    let age = install::find_debian_program(install::AGE).unwrap();
    let made = run(&age.with_file_name("age-keygen"), &[], b"");
    let file = String::from_utf8(made.stdout).unwrap();
    let identities = read_identities(&file).unwrap();
    let said = String::from_utf8(made.stderr).unwrap();
    let recipient = identities[0].recipient().to_string();
    assert!(said.contains(&recipient), "{said}: not {recipient}");
    let other = Identity::random().unwrap();
    let ours = other.recipient().to_string();
    let wrapped = run(&age, &["-r", &recipient, "-r", &ours], SECRET);
    let said = String::from_utf8_lossy(&wrapped.stderr).into_owned();
    assert!(wrapped.status.success(), "{said}");
    assert_eq!(*unwrap(&wrapped.stdout, &identities).unwrap(), SECRET);
    assert_eq!(*unwrap(&wrapped.stdout, &[other]).unwrap(), SECRET);
}
