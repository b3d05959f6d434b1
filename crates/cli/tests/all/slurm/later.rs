//! The plug-in as later Slurms call it than the installed one: Lua itself calls it with their
//! arguments, as their stand-in. The service, its sources and the data are real.

use std::{fs, path::PathBuf, process::Output, thread, time::Duration};

use posthaste_testbed::install;

use crate::{
    slurm::centre::{Centre, USER, contents},
    support::processes::{PATIENCE, now, text},
};

/// Program that calls a function of the plug-in as Slurm does, and prints the returned code and
/// text.
const CALL: &str = r#"
slurm = { SUCCESS = 0, ERROR = -1 }
function slurm.log_error(form, ...) io.stderr:write(string.format(form, ...), "\n") end
slurm.log_info, slurm.log_debug = slurm.log_error, slurm.log_error
if arg[2] == "24.05" then slurm.SLURM_BB_BUSY = "BUSY" end
dofile(arg[1])
local given = {}
for place = 4, #arg do given[#given + 1] = arg[place] end
if arg[2] ~= "22.05" then
    given[#given + 1] = { job_id = 1, user_name = "nobody", nodes = "c1", work_dir = "/" }
end
local code, said = _G[arg[3]](unpack(given))
io.write(tostring(code), "\n", said or "")
"#;

/// Slurm of some version that calls the plug-in for a job.
struct Later<'c> {
    centre: &'c Centre,
    version: &'static str,
    caller: PathBuf,
    script: String,
    job: String,
}

impl<'c> Later<'c> {
    fn new(centre: &'c Centre, version: &'static str, script: &str) -> Self {
        let caller = centre.scratch().join("call.lua");
        fs::write(&caller, CALL).unwrap();
        // It is asked of a real Slurm how a job ended.
        let ran = centre.script("ran.sh", "#!/bin/sh\ntrue\n");
        let job = centre.slurm.submit(&ran).unwrap();
        centre.wait_for(job, |state, _| state == "COMPLETED");
        let script = centre.script(&format!("{version}.sh"), script);
        Self {
            centre,
            version,
            caller,
            script: script.to_str().unwrap().into(),
            job: job.to_string(),
        }
    }

    fn output(&self, function: &str, arguments: &[&str]) -> Output {
        let lua = install::find_debian_program(install::LUA).unwrap();
        let plugin = self.centre.slurm.folder().join("burst_buffer.lua");
        let mut call = self.centre.slurm.command(lua.to_str().unwrap());
        call.arg(&self.caller).arg(plugin);
        call.args([self.version, function]).args(arguments);
        call.output().unwrap()
    }

    /// Returns the answer of the function: whether it succeeded, and its text.
    fn call(&self, function: &str, arguments: &[&str]) -> (bool, String) {
        let output = self.output(function, arguments);
        let said = text(&output.stdout);
        let (code, said) = said.split_once('\n').unwrap_or_else(|| {
            panic!("{function}: {}", text(&output.stderr));
        });
        (code == "0", said.to_owned())
    }

    /// Returns the text of a call that must succeed.
    fn well(&self, function: &str, arguments: &[&str]) -> String {
        let (good, said) = self.call(function, arguments);
        assert!(good, "{} {function}: {said}", self.version);
        said
    }

    /// Returns the words of a call about the job, followed by its user and group.
    fn of_job<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let (user, group) = ("65534", "65534");
        let mut words = vec![self.job.as_str(), self.script.as_str()];
        words.extend(more);
        words.extend([user, group]);
        words
    }

    /// Calls it until it is no longer busy, as Slurm polls; returns whether it was busy before.
    fn poll(&self, function: &str) -> bool {
        let (start, mut was_busy) = (now(), false);
        while self.well(function, &self.of_job(&[])) == "BUSY" {
            was_busy = true;
            assert!(start.elapsed() < PATIENCE, "{function} is busy for ever");
            thread::sleep(Duration::from_millis(200));
        }
        was_busy
    }
}

#[test]
fn later_slurms_call_the_same_plug_in_with_more_and_poll_where_they_can() {
    let centre = Centre::start("1500K", 600);
    let scratch = centre.scratch();
    for version in ["23.02", "24.05"] {
        assert_eq!(USER, 65534);
        let wrong = Later::new(
            &centre,
            version,
            "#!/bin/sh\n#POSTHASTE stage_inn source=a\n",
        );
        let (good, said) = wrong.call("slurm_bb_job_process", &[&wrong.script, "65534", "65534"]);
        assert!(!good && said.contains("stage_in"), "{said}");

        let (to, out) = (format!("in-{version}"), format!("out-{version}"));
        let text = format!(
            "#!/bin/sh\n\
             #POSTHASTE stage_in source=archive:run destination=SCRATCH/{to}\n\
             #POSTHASTE stage_out source=SCRATCH/{out} destination=home via=a,b code=1+1\n"
        );
        let slurm = Later::new(&centre, version, &text);
        slurm.well("slurm_bb_job_process", &[&slurm.script, "65534", "65534"]);
        // It does not wait for long, and Slurm asks again.
        let start = now();
        while !slurm
            .call("slurm_bb_pools", &[])
            .1
            .contains("\"granularity\"")
        {
            assert!(start.elapsed() < PATIENCE, "nobody says what room there is");
        }
        let setup = [&slurm.job, "65534", "65534", "scratch", "0", &slurm.script];
        slurm.well("slurm_bb_setup", &setup);
        if version == "24.05" {
            // It begins there, and nothing waits for it in the process of a plug-in.
            let first = slurm.well("slurm_bb_data_in", &slurm.of_job(&[]));
            assert_eq!(first, "BUSY");
            assert!(slurm.poll("slurm_bb_test_data_in"), "it takes some seconds");
        } else {
            assert_eq!(slurm.well("slurm_bb_data_in", &slurm.of_job(&[])), "");
        }
        let wanted = contents(&centre.s3.bucket_folder().join("run"));
        assert_eq!(contents(&scratch.join(&to)), wanted);
        slurm.well("slurm_bb_real_size", &[&slurm.job, "65534", "65534"]);
        let paths = scratch.join(format!("paths-{version}"));
        slurm.well("slurm_bb_paths", &slurm.of_job(&[paths.to_str().unwrap()]));
        let said = fs::read_to_string(&paths).unwrap();
        assert!(said.contains(&format!(
            "POSTHASTE_STAGE_IN_1={}",
            scratch.join(&to).display()
        )));
        slurm.well("slurm_bb_pre_run", &slurm.of_job(&[]));

        fs::create_dir(scratch.join(&out)).unwrap();
        fs::write(scratch.join(&out).join("result.h5"), "x".repeat(1 << 20)).unwrap();
        std::os::unix::fs::chown(scratch.join(&out), Some(USER), Some(USER)).unwrap();
        slurm.well("slurm_bb_post_run", &slurm.of_job(&[]));
        match version {
            "24.05" => {
                slurm.well("slurm_bb_data_out", &slurm.of_job(&[]));
                slurm.poll("slurm_bb_test_data_out");
            }
            _ => {
                slurm.well("slurm_bb_data_out", &slurm.of_job(&[]));
            }
        }
        let left = centre.leaving(&out);
        assert_eq!(left["state"], "safe", "{left}");
        // The user and the group of who asks come first.
        let status = ["65534", "65534", "job", &slurm.job];
        assert!(
            slurm
                .well("slurm_bb_get_status", &status)
                .contains("archive:run")
        );
        slurm.well("slurm_bb_job_teardown", &slurm.of_job(&["false"]));
    }
}
