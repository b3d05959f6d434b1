//! Circuits that the operator configured: offered to the mind, and reserved at its command.
//!
//! A provider knows a reservation by a key made of this centre's name and the reservation's number.
//! So a service that loses an answer, or is killed, asks again and gets the same reservation. A
//! [`Keeper`](keeper::Keeper) attends a reservation from the command until its end. The
//! [sweep](sweep_all) releases reservations that a provider keeps under our keys and the mind does
//! not know, so nothing stays reserved in vain.

mod keeper;
mod offer;
mod sweep;

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::Arc,
};

use posthaste_circuit::{Approach, Circuit, Provider, Terms};
use posthaste_core::{
    Mind,
    contract::{CircuitTerms, Command, Input, News, Obstacle},
};
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_types::{
    ByteRate, ChunkIndex, CircuitId, DepotId, RequestId, ReservationId, Timestamp,
};
use tokio::{
    sync::{Mutex, mpsc, watch},
    task::JoinSet,
};

use crate::{clock::Clock, driver::Arrival, secrets};
use keeper::{Keeper, Wish};
pub(crate) use offer::offer;
pub(crate) use sweep::sweep_all;

/// Bytes of this centre's name: enough that centres sharing a provider never draw the same.
const NAME_BYTES: usize = 8;

/// Circuit with the connection to its provider.
#[derive(Debug)]
pub(crate) struct Seller {
    pub(crate) circuit: Circuit,
    pub(crate) provider: Box<dyn Provider>,
}

/// All circuits that could be opened.
#[derive(Debug)]
pub(crate) struct Circuits {
    sellers: BTreeMap<CircuitId, Arc<Seller>>,
    /// Prefix of our keys; empty if there are no circuits.
    centre: String,
    /// Terms last offered to the mind.
    told: Mutex<BTreeMap<CircuitId, CircuitTerms>>,
    clock: Clock,
}

impl Circuits {
    /// Opens each circuit. A circuit that can't be opened is left out and logged. Circuits that the
    /// mind knows by name keep their numbers.
    ///
    /// # Errors
    /// Errors of the file with this centre's name, in the directory `state`.
    pub(crate) fn open(circuits: &[Circuit], state: &Path, mind: &Mind) -> Result<Self> {
        let told: BTreeMap<CircuitId, CircuitTerms> = mind.circuits().into_iter().collect();
        let mut numbers: BTreeMap<String, CircuitId> = BTreeMap::new();
        let reserved = mind.reservations().into_iter();
        numbers.extend(reserved.map(|held| (held.name, held.circuit)));
        numbers.extend(told.iter().map(|(id, terms)| (terms.name.clone(), *id)));
        let last = numbers.values().max().map_or(0, |id| id.get());
        let mut fresh = (last.saturating_add(1)..).map(CircuitId::new);
        let mut sellers = BTreeMap::new();
        for circuit in circuits {
            let provider = match posthaste_circuit::open(circuit) {
                Ok(provider) => provider,
                Err(error) => {
                    tracing::warn!(
                        circuit = circuit.name,
                        "circuit {} is left out: {error}",
                        circuit.name
                    );
                    continue;
                }
            };
            let known = numbers.get(&circuit.name).copied();
            if let Some(id) = known.or_else(|| fresh.next()) {
                let circuit = circuit.clone();
                sellers.insert(id, Arc::new(Seller { circuit, provider }));
            }
        }
        Ok(Self {
            centre: match circuits.is_empty() {
                true => String::new(),
                false => centre_name(&state.join("centre"))?,
            },
            sellers,
            told: Mutex::new(told),
            clock: Clock::default(),
        })
    }

    /// Returns the key by which providers know a reservation of ours.
    pub(crate) fn key(&self, reservation: ReservationId) -> String {
        format!("{}-{reservation}", self.centre)
    }

    /// Returns the name that streams of a fragment give to gateways on their way: the key of the
    /// reservation that the mind sends it under, if a gateway provides it.
    pub(crate) fn name_for(
        &self,
        mind: &Mind,
        (request, depot, chunk): (RequestId, DepotId, ChunkIndex),
    ) -> Option<String> {
        let is_named = |circuit: CircuitId| {
            let seller = self.sellers.get(&circuit);
            seller.is_some_and(|seller| seller.is_named())
        };
        let reservation = mind.reservation_for(request, depot, chunk, is_named)?;
        Some(self.key(reservation))
    }

    /// Returns the reservation of ours with this key.
    fn reservation_of(&self, key: &str) -> Option<ReservationId> {
        let number = key.strip_prefix(&self.centre)?.strip_prefix('-')?;
        number.parse().ok().filter(|id| self.key(*id) == key)
    }
}

impl Seller {
    /// Returns whether it is a gateway that carries streams by the name of their reservation, which
    /// is its key.
    fn is_named(&self) -> bool {
        match &self.circuit.approach {
            Approach::Local(_) => true,
            Approach::Oscars(_) | Approach::Nsi(_) => false,
        }
    }

    /// Returns whether it carries only streams that name their reservation.
    fn is_by_name_only(&self) -> bool {
        match &self.circuit.approach {
            Approach::Local(local) => local.flows.is_empty(),
            Approach::Oscars(_) | Approach::Nsi(_) => false,
        }
    }
}

/// Returns the name that this centre drew at its first start with circuits.
fn centre_name(path: &Path) -> Result<String> {
    if path.exists() {
        let name = secrets::read_private(path)?;
        let is_name = name.len() == 2 * NAME_BYTES && name.chars().all(|c| c.is_ascii_hexdigit());
        return match is_name {
            true => Ok(name),
            false => Err(
                Error::new(ErrorKind::Corrupt, "read", path.display().to_string())
                    .cause("it does not hold the name of a centre"),
            ),
        };
    }
    let mut bytes = [0; NAME_BYTES];
    getrandom::fill(&mut bytes).map_err(|cause| {
        Error::new(ErrorKind::Other, "make", path.display().to_string()).cause(cause.to_string())
    })?;
    let name = secrets::to_hex(&bytes);
    secrets::write_private(path, &format!("{name}\n"))?;
    Ok(name)
}

/// Reservations that the hands keep.
pub(crate) struct Reservations {
    circuits: Arc<Circuits>,
    inputs: mpsc::Sender<Arrival>,
    /// Channels that tell each keeper what is wished of it.
    wishes: HashMap<ReservationId, watch::Sender<Wish>>,
}

impl Reservations {
    pub(crate) fn new(circuits: Arc<Circuits>, inputs: mpsc::Sender<Arrival>) -> Self {
        Self {
            circuits,
            inputs,
            wishes: HashMap::new(),
        }
    }

    /// Carries out commands about reservations, and ignores others.
    pub(crate) fn execute(&mut self, running: &mut JoinSet<()>, command: &Command) {
        self.wishes.retain(|_, wishes| !wishes.is_closed());
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "the hands give it no other command"
        )]
        match *command {
            Command::Reserve {
                reservation,
                circuit,
                rate,
                from,
                until,
                ..
            } => self.reserve(running, reservation, circuit, Terms { rate, from, until }),
            Command::Rearrange {
                reservation,
                rate,
                until,
                ..
            } => self.rearrange(running, reservation, rate, until),
            Command::GiveBack { reservation, .. } => self.give_back(running, reservation),
            _ => {}
        }
    }

    fn reserve(
        &mut self,
        running: &mut JoinSet<()>,
        reservation: ReservationId,
        circuit: CircuitId,
        terms: Terms,
    ) {
        if self.wishes.contains_key(&reservation) {
            return;
        }
        let Some(seller) = self.circuits.sellers.get(&circuit) else {
            tracing::warn!(%reservation, "its circuit is not open here any more");
            let why = Obstacle::NotOpen;
            return self.tell(running, reservation, News::Unobtainable { why });
        };
        let seller = Arc::clone(seller);
        let keeper = self.keeper(reservation, vec![seller], terms, Wish::default());
        running.spawn(keeper.keep());
    }

    fn rearrange(
        &mut self,
        running: &mut JoinSet<()>,
        reservation: ReservationId,
        rate: ByteRate,
        until: Timestamp,
    ) {
        match self.wishes.get(&reservation) {
            Some(wishes) => wishes.send_modify(|wish| wish.change(rate, until)),
            None => self.tell(running, reservation, News::Unchanged),
        }
    }

    /// Releases a reservation without a keeper. Its circuit is unknown, so all are searched.
    fn give_back(&mut self, running: &mut JoinSet<()>, reservation: ReservationId) {
        if let Some(wishes) = self.wishes.get(&reservation) {
            return wishes.send_modify(Wish::give_back);
        }
        let sellers = self.circuits.sellers.values().cloned().collect();
        let terms = Terms {
            rate: ByteRate::ZERO,
            from: Timestamp::default(),
            until: Timestamp::default(),
        };
        let mut wish = Wish::default();
        wish.give_back();
        let keeper = self.keeper(reservation, sellers, terms, wish);
        running.spawn(keeper.keep());
    }

    fn keeper(
        &mut self,
        reservation: ReservationId,
        sellers: Vec<Arc<Seller>>,
        terms: Terms,
        wish: Wish,
    ) -> Keeper {
        let (sender, wishes) = watch::channel(wish);
        self.wishes.insert(reservation, sender);
        Keeper {
            reservation,
            circuits: Arc::clone(&self.circuits),
            sellers,
            terms,
            wishes,
            inputs: self.inputs.clone(),
        }
    }

    fn tell(&self, running: &mut JoinSet<()>, reservation: ReservationId, news: News) {
        let inputs = self.inputs.clone();
        running.spawn(async move {
            let input = Input::ReservationTold { reservation, news };
            // The driver is gone only when the service ends, and then nobody waits for this.
            let _ = inputs.send(Arrival::bare(input)).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::Settings;

    fn open(text: &str, state: &Path, mind: &Mind) -> Circuits {
        let circuits = posthaste_circuit::parse_circuits(text, state).unwrap();
        Circuits::open(&circuits, state, mind).unwrap()
    }

    fn circuit(name: &str) -> String {
        format!(
            "[[circuit]]\nname = '{name}'\nprovider = 'oscars'\naddress = 'http://127.0.0.1:9'\nrate_max = '1Gbit'\n\
             ends = [{{ junction = 'a', port = 'a:1', vlan = 7 }}, {{ junction = 'b', port = 'b:1', vlan = 7 }}]\n"
        )
    }

    fn names(circuits: &Circuits) -> Vec<(u32, String)> {
        let all = circuits.sellers.iter();
        all.map(|(id, seller)| (id.get(), seller.circuit.name.clone()))
            .collect()
    }

    #[test]
    fn a_circuit_keeps_its_number_wherever_it_stands_in_the_file() {
        let state = tempfile::tempdir().unwrap();
        let mut mind = Mind::new(Settings::default());
        let text = circuit("east") + &circuit("west");
        let first = open(&text, state.path(), &mind);
        assert_eq!(names(&first), [(1, "east".into()), (2, "west".into())]);
        let offered = |(id, seller): (&CircuitId, &Arc<Seller>)| Input::CircuitOffered {
            circuit: *id,
            terms: offer::terms(seller, Vec::new(), Vec::new()),
        };
        let inputs = first.sellers.iter().map(offered).collect::<Vec<_>>();
        mind.step(Timestamp::from_secs(1), inputs, &mut Default::default());
        let text = circuit("south") + &circuit("west");
        let second = open(&text, state.path(), &mind);
        assert_eq!(names(&second), [(2, "west".into()), (3, "south".into())]);
        let one = ReservationId::new(7);
        assert_eq!(first.key(one), second.key(one), "the centre keeps its name");
        assert_eq!(second.reservation_of(&second.key(one)), Some(one));
        for other in ["cli-1", "v7", &format!("{}7", second.centre), "-v7"] {
            assert_eq!(second.reservation_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_circuit_that_can_not_be_opened_is_left_out() {
        let state = tempfile::tempdir().unwrap();
        let missing = circuit("east").replace("http:", "https:");
        let missing = missing.replace("rate_max", "ca_file = 'none.pem'\nrate_max");
        let mind = Mind::new(Settings::default());
        let circuits = open(&(missing + &circuit("west")), state.path(), &mind);
        let names: Vec<String> = names(&circuits).into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["west"]);
    }
}
