use posthaste_types::record;

record! {
    /// How much may be spent on a plan. Counted, never timed: the same problem and effort give the same
    /// schedule on any machine. The simplex method has no useful bound of its own, so what is bounded is
    /// how many programs are solved and how large one may be; `docs/benchmarks/plan.md` says how long
    /// sizes take.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Effort {
        /// Most linear programs that are solved.
        pub programs: u32,
        /// Most variables of one. What is larger is planned one demand after the other; a demand that is
        /// too large alone keeps its greedy plan.
        pub columns: usize,
    }
}

impl Default for Effort {
    /// 24 programs of 6 000 variables: each takes a second at most, and mostly one is enough.
    fn default() -> Self {
        Self {
            programs: 24,
            columns: 6_000,
        }
    }
}
