use posthaste_types::record;

record! {
    /// Limits on the work for a plan. They are counted, never timed: the same problem and effort
    /// give the same schedule on any machine. The simplex method has no useful bound of its own, so
    /// the number and the size of programs are bounded; `docs/benchmarks/plan.md` says how long
    /// sizes take.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Effort {
        /// Most linear programs to solve.
        pub programs: u32,
        /// Most variables of one program. Larger problems are planned one demand after the other; a
        /// demand that is too large alone keeps its greedy plan.
        pub columns: usize,
    }
}

impl Default for Effort {
    /// Returns 24 programs of 6 000 variables: each takes a second at most, and mostly one is
    /// enough.
    fn default() -> Self {
        Self {
            programs: 24,
            columns: 6_000,
        }
    }
}
