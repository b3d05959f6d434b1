//! Real pool: HTCondor 23.9 of Debian 13, with the plug-in set up as docs/operating/htcondor.md
//! says.

use std::{
    fs::{self, OpenOptions, Permissions},
    io::Write as _,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
};

use posthaste_testbed::{CondorPool, S3Server, SshServer, again_in_debian_13, is_in_debian_13};

use crate::{condor::profiles, support::processes::noise};

const MIB: usize = 1 << 20;

/// Pool with the plug-in, and servers that hold its jobs' inputs.
struct Site {
    pool: CondorPool,
    s3: S3Server,
    ssh: SshServer,
}

impl Site {
    fn start() -> Self {
        let mut pool = CondorPool::set_up().unwrap();
        install(&pool);
        let ssh = SshServer::start().unwrap();
        ssh.lend_key(pool.submitter()).unwrap();
        let site = Self {
            s3: S3Server::start().unwrap(),
            ssh,
            pool: {
                pool.start().unwrap();
                pool
            },
        };
        site.write_profiles(S3Server::SECRET_KEY);
        site
    }

    fn write_profiles(&self, secret: &str) {
        let text = profiles(&self.ssh, &self.s3.endpoint(), secret, "1G");
        let folder = self.pool.home().join(".config/posthaste");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("profiles.toml");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        chown(&path, Some(self.pool.submitter()), None).unwrap();
    }

    /// Submits a job that runs these lines, with these lines of its description.
    fn submit(&self, script: &str, description: &str) -> u32 {
        let path = self.pool.folder().join("job.sh");
        fs::write(&path, format!("#!/bin/sh\n{script}")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        let description = format!(
            "executable = {}\nshould_transfer_files = yes\n{description}\nqueue\n",
            path.display()
        );
        self.pool.submit(&description).unwrap()
    }

    fn tape(&self, path: &str) -> String {
        format!("tape+{}", self.ssh.address(path))
    }
}

/// Installs the plug-in as an operator does.
fn install(pool: &CondorPool) {
    let plugins = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/condor");
    let plugin = fs::read_to_string(plugins.join("posthaste-condor-plugin")).unwrap();
    let program = format!("PROGRAM={}", env!("CARGO_BIN_EXE_posthaste"));
    let plugin = plugin.replace("PROGRAM=posthaste", &program);
    let path = pool.folder().join("posthaste-condor-plugin");
    fs::write(&path, plugin).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    let mut config = OpenOptions::new().append(true).open(pool.config()).unwrap();
    let lines = format!(
        "FILETRANSFER_PLUGINS = $(FILETRANSFER_PLUGINS), {}\nSIGN_S3_URLS = false\n",
        path.display()
    );
    config.write_all(lines.as_bytes()).unwrap();
}

#[test]
fn jobs_of_a_pool_have_their_data_moved() {
    if !is_in_debian_13() {
        let this = "condor::pool::jobs_of_a_pool_have_their_data_moved";
        return again_in_debian_13(this).unwrap();
    }
    let site = Site::start();
    let (one, two) = (noise(1, 3 * MIB), noise(2, 80_000));
    let run = site.s3.bucket_folder().join("run");
    fs::create_dir(&run).unwrap();
    fs::write(run.join("one"), &one).unwrap();
    let far = site.pool.folder().join("far");
    fs::create_dir(&far).unwrap();
    fs::write(far.join("two"), &two).unwrap();
    let far = far.to_str().unwrap();
    comes_and_leaves(&site, far, &[one, two].concat());
    is_held_with_the_reason(&site);
}

/// Checks that inputs of two servers arrive, and outputs leave for them.
fn comes_and_leaves(site: &Site, far: &str, wanted: &[u8]) {
    let script = "[ $(id -u) = 1000 ] && cat one two > both && cp two three\n";
    let inputs = format!(
        "transfer_input_files = archive+s3://testbed/run/one, {}",
        site.tape(&format!("{far}/two"))
    );
    let outputs =
        "transfer_output_files = both, three\noutput_destination = archive+s3://testbed/results/";
    let job = site.submit(script, &format!("{inputs}\n{outputs}"));
    site.pool.wait_until_done(job).unwrap();
    let results = site.s3.bucket_folder().join("results");
    assert!(fs::read(results.join("both")).unwrap() == wanted);
    assert!(results.join("three").exists());
    let counted = "TransferInputStats.S3FilesCountTotal TransferInputStats.SftpFilesCountTotal \
                   TransferOutputStats.S3FilesCountTotal TransferOutputStats.S3SizeBytesTotal";
    let counted: Vec<&str> = counted.split(' ').filter(|name| !name.is_empty()).collect();
    let counted = site.pool.about(job, &counted).unwrap();
    assert_eq!(counted, format!("1 1 2 {}", wanted.len() + 80_000));

    let outputs = format!(
        "transfer_output_files = both\noutput_destination = {}/",
        site.tape(far)
    );
    let job = site.submit("echo x > both\n", &outputs);
    site.pool.wait_until_done(job).unwrap();
    assert_eq!(fs::read_to_string(format!("{far}/both")).unwrap(), "x\n");
}

/// Checks that a failed transfer in or out holds its job, and that HTCondor repeats posthaste's
/// reason.
fn is_held_with_the_reason(site: &Site) {
    let held = |description: &str| {
        let job = site.submit("echo x > out\n", description);
        site.pool.wait_until_held(job).unwrap()
    };
    // HTCondor goes by what it is told of last, which is not to be of an input that was not waited
    // for, wherever that stands.
    for inputs in [["one", "absent"], ["absent", "one"]] {
        let inputs = inputs.map(|name| format!("archive+s3://testbed/run/{name}"));
        let said = held(&format!("transfer_input_files = {}", inputs.join(", ")));
        assert!(
            said.contains("Details: can't read s3://testbed/run/absent: no such file"),
            "{said}"
        );
    }
    let lost = "transfer_output_files = out\noutput_destination = archive+s3://absent/results/";
    let said = held(lost);
    assert!(
        said.contains("Details: can't list s3://absent: NoSuchBucket"),
        "{said}"
    );
    site.write_profiles("not-the-secret");
    let said = held("transfer_input_files = archive+s3://testbed/run/one");
    assert!(
        said.contains("can't list s3://testbed: SignatureDoesNotMatch"),
        "{said}"
    );
    assert!(!said.contains("not-the-secret"), "{said}");
}
