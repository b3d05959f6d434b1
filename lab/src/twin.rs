//! The real twin of a simulated scenario: the same file, played by real processes.
//!
//! Each depot becomes a host with a relay, the centre a host with a service, each path a link with
//! the path's rate of data and its latency. Faults strike real things: processes are killed, links
//! are changed. The outcome must match the simulator's, or one of them is wrong.

mod plan;
mod processes;

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{Lab, clock::Clock};
use plan::{CENTRE, Depot, Fault, Kind, Plan, Request, link, rate};
use processes::{Relay, Service, write_noise};

/// Delay before the first submission, so that the depots have answered, as in the simulator.
const FIRST_AFTER: Duration = Duration::from_millis(200);

/// Interval between two status checks of a request. Its times are the service's own.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Interval between two looks at the depots' content.
const HELD_EVERY: Duration = Duration::from_secs(1);

/// Longest time until all depots must have answered for the first time, on any machine.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Files of a request, of equal size.
const FILES: u64 = 10;

/// A scenario that real processes can play.
#[derive(Debug, Clone)]
pub struct Twin {
    plan: Plan,
}

/// Result of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Played {
    /// State at the end, in the service's word.
    pub state: String,
    /// Seconds from submission to safety; none if it never was safe.
    pub safe_after_s: Option<f64>,
}

/// Result of a play.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Results in the order of the scenario.
    pub requests: Vec<Played>,
    /// Bytes of fragments on each depot's disk at the end, in the order of the scenario.
    pub held: Vec<(String, u64)>,
    /// Samples of those bytes, about every second: the time since the beginning, and the bytes of
    /// each depot.
    pub samples: Vec<(Duration, Vec<u64>)>,
    /// Log of the service.
    pub log: String,
    /// Reasons of its decisions, request by request, for a search for causes.
    pub decisions: String,
}

/// Action at a moment of the scenario.
#[derive(Debug, Clone, Copy)]
enum Act<'a> {
    Submit(usize, &'a Request),
    Strike(&'a Fault),
    Heal(&'a Fault),
}

impl Twin {
    /// Reads a scenario from a file.
    ///
    /// # Errors
    /// Fails if it is invalid, or contains what no laboratory can play.
    pub fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("read {shown}"))?;
        let plan = Plan::parse(&text).with_context(|| format!("in {shown}"))?;
        Ok(Self { plan })
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.plan.name
    }

    /// Plays it with this `posthaste`, files below `folder`, which must be empty.
    ///
    /// # Errors
    /// Fails if the laboratory can't be built, a process does not start, or requests are not
    /// settled when the scenario ends.
    pub fn play(&self, program: &Path, folder: &Path) -> Result<Outcome> {
        let lab = Lab::up(&self.plan.topology()?)?;
        let mut stage = Stage::set(&self.plan, &lab, program, folder)?;
        let mut acts = self.acts();
        acts.sort_by_key(|(at, _)| *at);
        for (at, act) in acts {
            stage.wait_until(at)?;
            stage.act(act)?;
        }
        let end = Duration::from_secs_f64(self.plan.horizon_s);
        loop {
            let requests = stage.look()?;
            if requests.iter().all(is_settled) {
                return stage.outcome(requests);
            }
            ensure!(
                stage.clock.now() < end,
                "{}: not settled at its end: {requests:?}\n{}",
                self.plan.name,
                stage.service.log()
            );
            stage.wait_until(stage.clock.now() + LOOK_EVERY)?;
        }
    }

    fn acts(&self) -> Vec<(Duration, Act<'_>)> {
        let moment = Duration::from_secs_f64;
        let requests = self.plan.requests.iter().enumerate();
        let submits = requests.map(|(place, request)| {
            let at = FIRST_AFTER + moment(request.at_s);
            (at, Act::Submit(place, request))
        });
        let faults = self.plan.faults.iter();
        let strikes = faults
            .clone()
            .map(|fault| (moment(fault.at_s), Act::Strike(fault)));
        let heals = faults.filter_map(|fault| {
            let at = moment(fault.at_s + fault.for_s?);
            Some((at, Act::Heal(fault)))
        });
        submits.chain(strikes).chain(heals).collect()
    }
}

/// Returns whether a request is finished: it is safe, or never will be.
fn is_settled(request: &Played) -> bool {
    let is_over = ["refused", "cancelled", "failed"].contains(&request.state.as_str());
    request.safe_after_s.is_some() || is_over
}

/// The processes of a twin in play.
struct Stage<'a> {
    plan: &'a Plan,
    lab: &'a Lab,
    program: &'a Path,
    folder: PathBuf,
    relays: Vec<Relay>,
    service: Service,
    /// The names the service gave to requests.
    ids: Vec<Option<String>>,
    clock: Clock,
    samples: Vec<(Duration, Vec<u64>)>,
}

impl<'a> Stage<'a> {
    /// Starts everything and waits until the service has heard of all depots: then the scenario
    /// begins.
    fn set(plan: &'a Plan, lab: &'a Lab, program: &'a Path, folder: &Path) -> Result<Self> {
        for (place, request) in plan.requests.iter().enumerate() {
            make_source(&source(folder, place), request, place)?;
        }
        let mut relays = Vec::new();
        for depot in &plan.depots {
            let capacity = format!("{}MiB", depot.capacity_mib);
            relays.push(Relay::start(lab, program, folder, &depot.name, &capacity)?);
        }
        let service = Service::start(lab, program, folder)?;
        let mut stage = Self {
            plan,
            lab,
            program,
            folder: folder.to_owned(),
            relays,
            service,
            ids: vec![None; plan.requests.len()],
            clock: Clock::start(),
            samples: Vec::new(),
        };
        stage.introduce()?;
        stage.clock = Clock::start();
        Ok(stage)
    }

    fn introduce(&self) -> Result<()> {
        for (relay, depot) in self.relays.iter().zip(&self.plan.depots) {
            let mut words = relay.introduction()?;
            if depot.advertises {
                let rate = format!("{}MiB/s", depot.rate_mib_per_s);
                words.extend(["--rate".to_owned(), rate]);
            }
            self.service.run(self.lab, &words)?;
        }
        loop {
            let depots = self.service.json(self.lab, &["depot", "list", "--json"])?;
            let is_up = |depot: &Value| depot["state"] == "up";
            if depots.as_array().is_some_and(|all| all.iter().all(is_up)) {
                return Ok(());
            }
            ensure!(
                self.clock.now() < READY_WITHIN,
                "depots do not answer: {depots}"
            );
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits, and records the depots' content meanwhile.
    fn wait_until(&mut self, at: Duration) -> Result<()> {
        loop {
            let now = self.clock.now();
            let last = self.samples.last();
            if last.is_none_or(|(last, _)| now.saturating_sub(*last) >= HELD_EVERY) {
                let held = self.relays.iter().map(Relay::held);
                self.samples.push((now, held.collect::<Result<_>>()?));
            }
            let left = at.saturating_sub(self.clock.now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(HELD_EVERY));
        }
    }

    fn act(&mut self, act: Act<'_>) -> Result<()> {
        match act {
            Act::Submit(place, request) => self.submit(place, request),
            Act::Strike(fault) => self.strike(fault),
            Act::Heal(fault) => self.heal(fault),
        }
    }

    fn submit(&mut self, place: usize, request: &Request) -> Result<()> {
        let via = self.plan.via(request).join(",");
        let source = source(&self.folder, place).display().to_string();
        let deadline = format!("{}s", request.deadline_s);
        let to = request.destination.as_deref().unwrap_or("elsewhere");
        let mut words = vec!["offload", &source, "--json", "--to", to];
        words.extend([
            "--deadline",
            &deadline,
            "--via",
            &via,
            "--code",
            &request.code,
        ]);
        if request.release {
            words.extend(["--release", "when-safe"]);
        }
        if request.best_effort {
            words.push("--best-effort");
        }
        let taken = self.service.json(self.lab, &words)?;
        let id = taken["id"].as_str().context("a request has an id")?;
        let chunks = taken["chunks"].as_u64().unwrap_or(0);
        let chunk_mib = request.size_mib.div_ceil(chunks.max(1));
        ensure!(
            (chunk_mib as f64 - request.chunk_mib).abs() < 0.5,
            "the service cuts {} MiB into {chunks} chunks, which is not what the scenario says",
            request.size_mib
        );
        self.ids[place] = Some(id.to_owned());
        Ok(())
    }

    fn strike(&mut self, fault: &Fault) -> Result<()> {
        match fault.kind {
            Kind::Dies => self.relay(&fault.depot)?.kill(),
            Kind::DriverCrash => self.service.kill(),
            Kind::Vanishes => self.lab.change(&link(&fault.depot), &["state=down"])?,
            Kind::Slows => {
                let slow = rate(fault.rate_mib_per_s.unwrap_or(0.0));
                self.change_rate(&fault.depot, &slow)?;
            }
        }
        Ok(())
    }

    fn heal(&mut self, fault: &Fault) -> Result<()> {
        let (lab, program) = (self.lab, self.program);
        match fault.kind {
            Kind::Dies => self.relay(&fault.depot)?.restart(lab, program),
            Kind::DriverCrash => self.service.restart(lab),
            Kind::Vanishes => lab.change(&link(&fault.depot), &["state=up"]),
            Kind::Slows => {
                let depot: Option<&Depot> = self.plan.depot(&fault.depot);
                let usual = rate(depot.map_or(0.0, |depot| depot.rate_mib_per_s));
                self.change_rate(&fault.depot, &usual)
            }
        }
    }

    /// Changes the rate of the path to the depot from now on; the way back stays.
    fn change_rate(&self, depot: &str, rate: &str) -> Result<()> {
        let rate = format!("rate={rate}");
        self.lab.change(&link(depot), &["direction=forth", &rate])
    }

    fn relay(&mut self, name: &str) -> Result<&mut Relay> {
        let found = self.relays.iter_mut().find(|relay| relay.name() == name);
        found.with_context(|| format!("no depot is called {name}"))
    }

    /// Returns the current state of all requests.
    fn look(&self) -> Result<Vec<Played>> {
        let ids = self.ids.iter().flatten();
        let looks = ids.map(|id| {
            let request = self.service.json(self.lab, &["status", id, "--json"])?;
            let Some(state) = request["state"].as_str() else {
                bail!("{CENTRE}: {request} has no state");
            };
            Ok(Played {
                state: state.to_owned(),
                safe_after_s: request["safe_after_s"].as_f64(),
            })
        });
        looks.collect()
    }

    fn outcome(self, requests: Vec<Played>) -> Result<Outcome> {
        let mut decisions = String::new();
        for id in self.ids.iter().flatten() {
            let words = ["explain", id].map(str::to_owned);
            decisions.push_str(&self.service.run(self.lab, &words)?);
        }
        let held = self.relays.iter().map(|relay| {
            let held = relay.held()?;
            Ok((relay.name().to_owned(), held))
        });
        Ok(Outcome {
            requests,
            held: held.collect::<Result<_>>()?,
            samples: self.samples,
            log: self.service.log(),
            decisions,
        })
    }
}

/// Returns the path of a request's source.
fn source(folder: &Path, place: usize) -> PathBuf {
    folder.join(format!("source-{}", place + 1))
}

fn make_source(folder: &Path, request: &Request, place: usize) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    let files = FILES.min(request.size_mib);
    for number in 0..files {
        let size = request.size_mib / files + u64::from(number < request.size_mib % files);
        let seed = number + 1 + FILES * place as u64;
        write_noise(&folder.join(format!("{number}.dat")), size, seed)?;
    }
    Ok(())
}
