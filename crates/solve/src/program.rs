//! The linear program: flows and stocks in real numbers.

mod cost;
mod rows;
mod strand;

use good_lp::{
    Constraint, Expression, ProblemVariables, Solution, SolverModel, Variable,
    solvers::microlp::microlp, variable,
};
use posthaste_plan::horizon::{Flow, Problem};
use posthaste_types::Bytes;

use crate::residual::Residual;
use strand::Strand;

/// Size of the largest demand after scaling: the solver's tolerances are made for numbers near one.
const LARGEST: f64 = 1000.0;
/// Noise of the solver, in bytes: a value this much below one byte still counts as one.
const NOISE_BYTES: f64 = 0.01;

/// Returns the most variables that a program of these demands has.
pub(crate) fn columns(problem: &Problem, picks: &[usize]) -> usize {
    let size = |&pick: &usize| strand::columns(problem, &problem.demands[pick]);
    picks.iter().map(size).sum()
}

/// A program for some demands, on the capacity that the others leave.
pub(crate) struct Program<'a> {
    problem: &'a Problem,
    residual: &'a Residual,
    picks: &'a [usize],
    /// Bytes per unit of a variable.
    unit: f64,
    variables: ProblemVariables,
    rows: Vec<Constraint>,
    objective: Expression,
    strands: Vec<Strand>,
}

#[expect(clippy::cast_precision_loss, reason = "flows are real numbers in here")]
pub(crate) const fn real(bytes: u64) -> f64 {
    bytes as f64
}

impl<'a> Program<'a> {
    /// Returns the program of `picks`; bytes of the `favoured` ones count far more than others.
    pub(crate) fn new(
        problem: &'a Problem,
        residual: &'a Residual,
        picks: &'a [usize],
        favoured: &[usize],
    ) -> Self {
        let sizes = picks.iter().map(|&pick| problem.demands[pick].bytes.get());
        let mut program = Self {
            problem,
            residual,
            picks,
            unit: (real(sizes.max().unwrap_or(0)) / LARGEST).max(1.0),
            variables: ProblemVariables::new(),
            rows: Vec::new(),
            objective: Expression::from(0.0),
            strands: Vec::new(),
        };
        for &pick in picks {
            let strand = Strand::new(&mut program, pick);
            program.strands.push(strand);
        }
        program.add_rows();
        program.add_costs(favoured);
        program
    }

    /// Adds a variable from zero to `most`.
    fn add(&mut self, most: f64) -> Variable {
        self.variables.add(variable().min(0.0).max(most.max(0.0)))
    }

    fn scaled(&self, bytes: u64) -> f64 {
        real(bytes) / self.unit
    }

    /// Solves it and returns flows as wishes, once rounded to the nearest byte and once up. None if
    /// the solver finds no answer; with soft deadlines there is one except for numerical trouble.
    pub(crate) fn solve(self) -> Option<[Vec<Flow>; 2]> {
        let mut model = self.variables.minimise(self.objective).using(microlp);
        for row in self.rows {
            model.add_constraint(row);
        }
        let solution = model.solve().ok()?;
        let unit = self.unit;
        let flows: Vec<(Flow, f64)> = self
            .strands
            .iter()
            .flat_map(|strand| strand.flows.iter().map(move |flow| (strand.demand, flow)))
            .map(|(demand, flow)| {
                let wish = Flow {
                    demand,
                    slot: flow.slot,
                    link: flow.link,
                    bytes: Bytes::ZERO,
                };
                (wish, solution.value(flow.variable) * unit)
            })
            .filter(|(_, bytes)| *bytes > NOISE_BYTES)
            .collect();
        Some([rounded(&flows, f64::round), rounded(&flows, f64::ceil)])
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "flows are positive, and what is too large is cut afterwards"
)]
fn rounded(flows: &[(Flow, f64)], round: fn(f64) -> f64) -> Vec<Flow> {
    let wish = |(flow, bytes): &(Flow, f64)| Flow {
        bytes: Bytes::new(round(*bytes) as u64),
        ..*flow
    };
    flows.iter().map(wish).collect()
}
