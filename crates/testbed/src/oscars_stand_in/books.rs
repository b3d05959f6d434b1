//! Granted connections of the stand-in, and its answer to each question.

use serde_json::{Value, json};

use super::{Books, Connection, Phase};
use crate::stand_in::{Answers, Asked, Told, unix_s};

/// `resv.timeout`, in seconds.
const HOLD_S: i64 = 900;
/// `resv.minimum-duration`, in seconds.
const LEAST_S: i64 = 900;
/// A beginning nearer than this is moved to this, in seconds (`ConnServiceScheduleValidate`).
const BEGIN_AHEAD_S: i64 = 30;
/// A beginning further back than this is rejected, in seconds.
const BEGIN_BEHIND_S: i64 = 300;

impl Books {
    fn now(&self) -> i64 {
        unix_s() + self.ahead_s
    }

    pub(super) fn expire(&mut self) {
        let now = self.now();
        self.connections
            .retain(|_, one| one.phase != Phase::Held || one.expires > now);
        for one in self.connections.values_mut() {
            if one.phase == Phase::Reserved && one.end <= now {
                one.phase = Phase::Archived;
                one.modified = one.end;
            }
        }
    }

    /// Returns the rate free throughout a span, not counting `name`'s own.
    fn free(&self, name: &str, begin: i64, end: i64) -> i64 {
        let others = || {
            self.connections.iter().filter(move |(other, one)| {
                *other != name && one.phase != Phase::Archived && one.begin < end && begin < one.end
            })
        };
        // The use is highest at the start of some connection, or of ours.
        let starts = others().map(|(_, one)| one.begin.max(begin)).chain([begin]);
        let taken = |at: i64| -> i64 {
            let at_once = others().filter(|(_, one)| one.begin <= at && at < one.end);
            at_once.map(|(_, one)| one.mbps).sum()
        };
        self.capacity_mbps - starts.map(taken).max().unwrap_or(0)
    }

    fn refuse(&self, status: u16, path: &str, why: &str) -> Told {
        // An exception handler that returns nothing, or Spring's own page.
        if status != 500 {
            return (status, "application/json", String::new());
        }
        let mut page = json!({"timestamp": self.now(), "status": 500, "error": "Internal Server Error", "path": path});
        if self.talks {
            page["message"] = why.into();
        }
        (500, "application/json", page.to_string())
    }

    fn show(&self, name: &str, one: &Connection) -> Value {
        let now = self.now();
        let schedule = json!({
            "beginning": seconds(one.begin), "ending": seconds(one.end), "connectionId": name,
        });
        let fixture = json!({"ingressBandwidth": one.mbps, "egressBandwidth": one.mbps});
        let cmp = json!({"junctions": [], "fixtures": [fixture], "pipes": []});
        let active = one.phase == Phase::Reserved && one.begin <= now && now < one.end;
        let (phase, spell) = match one.phase {
            Phase::Held => ("HELD", "held"),
            Phase::Reserved => ("RESERVED", "reserved"),
            Phase::Archived => ("ARCHIVED", "archived"),
        };
        let state = match (one.failed, active, one.phase) {
            (true, _, _) => "FAILED",
            (false, true, _) => "ACTIVE",
            (false, false, Phase::Archived) => "FINISHED",
            (false, false, Phase::Held | Phase::Reserved) => "WAITING",
        };
        let mut shown = json!({
            "connectionId": name, "phase": phase, "mode": "AUTOMATIC", "state": state,
            "deploymentState": if active { "DEPLOYED" } else { "UNDEPLOYED" },
            "deploymentIntent": if active { "SHOULD_BE_DEPLOYED" } else { "SHOULD_BE_UNDEPLOYED" },
            "username": "tester", "description": one.description, "tags": [],
            "connection_mtu": 9000, "last_modified": one.modified, "bandwidth": one.mbps,
        });
        shown[spell] = json!({"connectionId": name, "cmp": cmp, "schedule": schedule});
        if one.phase == Phase::Held {
            shown[spell]["expiration"] = seconds(one.expires);
        }
        shown
    }

    fn hold(&mut self, asked: &Asked) -> Told {
        let Ok(mut wish) = serde_json::from_str::<Value>(&asked.body) else {
            return (400, "application/json", String::new());
        };
        let (now, name) = (
            self.now(),
            wish["connectionId"].as_str().unwrap_or_default().to_owned(),
        );
        let fixtures = wish["fixtures"]
            .as_array()
            .map_or(&[][..], Vec::as_slice)
            .to_vec();
        let mbps = fixtures
            .iter()
            .filter_map(|one| one["mbps"].as_i64())
            .max()
            .unwrap_or(0);
        let (mut begin, end) = (
            wish["begin"].as_i64().unwrap_or(0),
            wish["end"].as_i64().unwrap_or(0),
        );
        let named = (4..=12).contains(&name.len())
            && name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        let begins_behind = begin < now - BEGIN_BEHIND_S;
        begin = begin.max(now + BEGIN_AHEAD_S);
        let wrong = if !named {
            Some("connection id invalid format")
        } else if !(1500..=9000).contains(&wish["connection_mtu"].as_i64().unwrap_or(0)) {
            Some("MTU must be between 1500 and 9000 (inclusive)")
        } else if !wish["description"].is_string() {
            Some("null description")
        } else if begins_behind {
            Some("begin time is more than 5 minutes in the past")
        } else if end < begin + LEAST_S {
            Some("duration is too short (less than 15 min)")
        } else if fixtures.len() < 2 || wish["junctions"].as_array().is_none_or(Vec::is_empty) {
            Some("not enough fixtures or junctions")
        } else if mbps > self.free(&name, begin, end) {
            Some("fixture invalid: requested bandwidth is above available")
        } else {
            None
        };
        if let Some(why) = wrong {
            return self.refuse(500, &asked.path, why);
        }
        self.holds += 1;
        let held = Connection {
            phase: Phase::Held,
            begin,
            end,
            mbps,
            expires: now + HOLD_S,
            description: wish["description"].as_str().unwrap_or_default().to_owned(),
            modified: now,
            failed: false,
        };
        wish["begin"] = begin.into();
        wish["heldUntil"] = held.expires.into();
        wish["username"] = "tester".into();
        wish["validity"] = json!({"valid": true, "message": ""});
        self.connections.insert(name, held);
        ok(&wish)
    }

    fn commit(&mut self, asked: &Asked) -> Told {
        let now = self.now();
        let Some(one) = self.connections.get_mut(&asked.body) else {
            return self.refuse(404, &asked.path, "");
        };
        if one.phase != Phase::Held {
            return self.refuse(500, &asked.path, "Connection not in HELD phase");
        }
        one.phase = Phase::Reserved;
        one.modified = now;
        ok(&json!({"what": "COMMITTED", "phase": "RESERVED", "when": seconds(now)}))
    }

    fn release(&mut self, asked: &Asked) -> Told {
        let now = self.now();
        let Some(one) = self.connections.get_mut(&asked.body) else {
            return self.refuse(404, &asked.path, "");
        };
        let what = match one.phase {
            Phase::Archived => return self.refuse(400, &asked.path, ""),
            Phase::Reserved if one.begin <= now => {
                one.phase = Phase::Archived;
                one.modified = now;
                "ARCHIVED"
            }
            Phase::Held | Phase::Reserved => {
                self.connections.remove(&asked.body);
                "DELETED"
            }
        };
        ok(&json!({"what": what, "phase": null, "when": seconds(now)}))
    }

    fn valid_bandwidth(&self, wish: &Value) -> Told {
        let name = wish["connectionId"].as_str().unwrap_or_default();
        let one = self
            .connections
            .get(name)
            .filter(|one| one.phase == Phase::Reserved);
        let ceiling = one.map_or(0, |one| self.free(name, one.begin, one.end));
        let why = if one.is_some() {
            String::new()
        } else {
            format!("connection {name} not in RESERVED phase")
        };
        ok(&json!({
            "connectionId": name, "allowed": one.is_some(), "explanation": why, "floor": 0, "ceiling": ceiling,
        }))
    }

    fn valid_schedule(&self, wish: &Value) -> Told {
        let now = self.now();
        let name = wish["connectionId"].as_str().unwrap_or_default();
        let one = self
            .connections
            .get(name)
            .filter(|one| one.phase == Phase::Reserved);
        let ceiling = now + 5 * 365 * 86_400;
        let (allowed, why) = match (one, wish["type"].as_str()) {
            (None, _) => (false, "not in RESERVED phase"),
            (Some(_), Some("BEGIN")) => (false, "changing start time currently unsupported"),
            (Some(one), _) if self.free(name, one.begin, ceiling) < one.mbps => {
                (false, "not available for so long")
            }
            (Some(_), _) => (true, ""),
        };
        let floor = one.filter(|_| allowed).map_or(now, |one| one.begin + 300);
        ok(&json!({
            "connectionId": name, "type": wish["type"], "allowed": allowed, "explanation": why,
            "floor": seconds(floor), "ceiling": seconds(ceiling),
        }))
    }

    fn modify_bandwidth(&mut self, wish: &Value) -> Told {
        let now = self.now();
        let name = wish["connectionId"].as_str().unwrap_or_default().to_owned();
        let mbps = wish["bandwidth"].as_i64().unwrap_or(i64::MAX);
        let Some(one) = self
            .connections
            .get(&name)
            .filter(|one| one.phase == Phase::Reserved)
        else {
            return modified(false, "not in RESERVED phase");
        };
        if mbps > self.free(&name, one.begin, one.end) {
            return modified(false, "Modification failedNew bandwidth above available");
        }
        if let Some(one) = self.connections.get_mut(&name) {
            (one.mbps, one.modified) = (mbps, now);
        }
        modified(true, "Modification successful")
    }

    /// Ignores a change that does not fit and reports success, like the original.
    fn modify_schedule(&mut self, wish: &Value) -> Told {
        let now = self.now();
        if wish["type"] == "BEGIN" {
            return modified(false, "modifying start time is not allowed at this point");
        }
        let name = wish["connectionId"].as_str().unwrap_or_default().to_owned();
        let end = wish["timestamp"].as_i64().unwrap_or(0).max(now + 60);
        let Some(one) = self
            .connections
            .get(&name)
            .filter(|one| one.phase == Phase::Reserved)
        else {
            return modified(
                false,
                "Schedule modification failed: May only change schedule when RESERVED",
            );
        };
        let fits = self.free(&name, one.begin, end) >= one.mbps && end >= one.begin + LEAST_S;
        if let Some(one) = self.connections.get_mut(&name).filter(|_| fits) {
            (one.end, one.modified) = (end, now);
        }
        modified(true, "Modification successful")
    }

    fn paths(&self, wish: &Value) -> Told {
        let interval = &wish["interval"];
        let (begin, end) = (interval["beginning"].as_i64(), interval["ending"].as_i64());
        let (Some(begin), Some(end)) = (begin, end) else {
            return (400, "application/json", String::new());
        };
        let free = self.free("", begin, end);
        let way = json!({
            "cost": 1, "azEro": [], "zaEro": [], "azAvailable": free, "zaAvailable": free,
            "azBaseline": self.capacity_mbps, "zaBaseline": self.capacity_mbps,
        });
        let fits = (wish["azBw"].as_i64().unwrap_or(0) <= free).then(|| way.clone());
        ok(&json!({
            "shortest": way, "leastHops": way, "fits": fits, "widestSum": way, "widestAZ": way, "widestZA": way,
        }))
    }

    fn list(&self, wish: &Value) -> Told {
        let text = wish["description"]
            .as_str()
            .unwrap_or_default()
            .to_lowercase();
        let hits = self.connections.iter().filter(|(_, one)| {
            let phase = match one.phase {
                Phase::Held => return false,
                Phase::Reserved => "RESERVED",
                Phase::Archived => "ARCHIVED",
            };
            wish["phase"]
                .as_str()
                .is_none_or(|wanted| wanted == "ANY" || wanted == phase)
                && one.description.to_lowercase().contains(&text)
        });
        let hits: Vec<Value> = hits.map(|(name, one)| self.show(name, one)).collect();
        let page = usize::try_from(wish["page"].as_i64().unwrap_or(1).max(1)).unwrap_or(1);
        let size =
            usize::try_from(wish["sizePerPage"].as_i64().unwrap_or(-1)).unwrap_or(usize::MAX);
        let first = (page - 1).saturating_mul(size).min(hits.len());
        let last = first.saturating_add(size).min(hits.len());
        ok(&json!({
            "page": page, "sizePerPage": wish["sizePerPage"], "totalSize": hits.len(),
            "connections": hits.get(first..last),
        }))
    }
}

impl Answers for Books {
    fn answer(&mut self, asked: &Asked) -> Told {
        self.expire();
        if asked.path.starts_with("/protected/")
            && self.token.is_some()
            && asked.bearer != self.token
        {
            return (401, "text/plain", String::new());
        }
        let wish: Value = serde_json::from_str(&asked.body).unwrap_or(Value::Null);
        let (front, name) = asked.path.rsplit_once('/').unwrap_or_default();
        match (asked.method.as_str(), &*asked.path) {
            ("GET", "/protected/conn/generateId") => {
                (200, "text/plain", format!("C{:03}", self.holds))
            }
            ("POST", "/protected/hold" | "/protected/pcehold") => self.hold(asked),
            ("POST", "/protected/conn/commit") => self.commit(asked),
            ("POST", "/protected/conn/release") => self.release(asked),
            ("POST", "/protected/modify/bandwidth") => self.modify_bandwidth(&wish),
            ("POST", "/protected/modify/schedule") => self.modify_schedule(&wish),
            ("POST", "/api/valid/bandwidth") => self.valid_bandwidth(&wish),
            ("POST", "/api/valid/schedule") => self.valid_schedule(&wish),
            ("POST", "/api/pce/paths") => self.paths(&wish),
            ("POST", "/api/conn/list") => self.list(&wish),
            ("GET", "/protected/held/current") => {
                let held = self
                    .connections
                    .iter()
                    .filter(|(_, one)| one.phase == Phase::Held);
                let held =
                    held.map(|(name, _)| json!({"connectionId": name, "username": "tester"}));
                ok(&held.collect())
            }
            ("GET", _) if front == "/api/conn/info" => match self.connections.get(name) {
                Some(one) => ok(&self.show(name, one)),
                None => self.refuse(404, &asked.path, ""),
            },
            ("GET", _) if front == "/protected/extend_hold" => {
                let until = self.now() + HOLD_S;
                match self
                    .connections
                    .get_mut(name)
                    .filter(|one| one.phase == Phase::Held)
                {
                    Some(one) => {
                        one.expires = until;
                        ok(&seconds(until))
                    }
                    None => self.refuse(404, &asked.path, ""),
                }
            }
            ("GET", _) if front == "/protected/held/clear" => {
                self.connections
                    .retain(|other, one| other != name || one.phase != Phase::Held);
                (200, "application/json", String::new())
            }
            _ => (404, "application/json", String::new()),
        }
    }
}

fn ok(body: &Value) -> Told {
    (200, "application/json", body.to_string())
}

/// Returns a moment as Jackson writes it: seconds with nine decimals.
fn seconds(at: i64) -> Value {
    serde_json::from_str(&format!("{at}.000000000")).unwrap_or(Value::Null)
}

fn modified(success: bool, explanation: &str) -> Told {
    ok(&json!({"success": success, "explanation": explanation, "connection": null}))
}
