//! Goals of posthaste, and the rows that meet them.

use std::fmt::Write;

use super::{
    super::{figures::Spread, measure::Sample},
    Row,
    load::{Load, Scale},
    report::{peak_mib, title},
    tool::Role,
};

/// Share of the best rival's wall time, if the client's CPU is the limit: it is to be first.
const WALL_TO_RIVAL_MAX: f64 = 1.0;

/// Share of the best rival's CPU seconds.
const CPU_TO_RIVAL_MAX: f64 = 0.6;

/// Share of the bare limit's wall time, for large files.
const WALL_TO_LIMIT_MAX: f64 = 1.25;

/// Most memory for any load: 200 MB.
const PEAK_MIB_MAX: u64 = 200_000_000 >> 20;

/// Busy share of a core from which on the client's CPU is the limit.
const CPU_BOUND: f64 = 0.8;

/// Comparison of posthaste with the others.
#[derive(Debug, Clone, Copy)]
pub struct Standing {
    /// Its median wall time divided by the best rival's, if there is one.
    pub wall_to_rival: Option<f64>,
    /// Its CPU seconds divided by the best rival's.
    pub cpu_to_rival: Option<f64>,
    /// Its median wall time divided by that of the bare limit.
    pub wall_to_limit: Option<f64>,
    /// CPU seconds a second.
    cores: f64,
    peak_mib: u64,
}

impl Standing {
    /// Returns the standing of the first of these rows, if it was measured.
    pub fn of(rows: &[&Row]) -> Option<Self> {
        let (ours, others) = rows.split_first()?;
        let ours = ours.samples.as_ref().ok()?;
        let wall = Spread::of(ours, |sample| sample.wall_s).median;
        let cpu = Spread::of(ours, |sample| sample.cpu_s).median;
        let best = |is_wanted: fn(Role) -> bool, figure: fn(&Sample) -> f64| {
            let wanted = others.iter().filter(|row| is_wanted(row.role));
            let measured = wanted.filter_map(|row| row.samples.as_ref().ok());
            let medians = measured.map(|samples| Spread::of(samples, figure).median);
            medians.min_by(f64::total_cmp)
        };
        let rival_wall = best(Role::is_rival, |sample| sample.wall_s);
        let rival_cpu = best(Role::is_rival, |sample| sample.cpu_s);
        let limit_wall = best(Role::is_limit, |sample| sample.wall_s);
        Some(Self {
            wall_to_rival: rival_wall.map(|best| wall / best),
            cpu_to_rival: rival_cpu.map(|best| cpu / best),
            wall_to_limit: limit_wall.map(|best| wall / best),
            cores: cpu / wall,
            peak_mib: peak_mib(ours),
        })
    }

    /// Returns the cells of the table of goals, one for each.
    fn cells(&self, load: Load) -> [String; 4] {
        let first = if self.cores < CPU_BOUND {
            self.wall_to_rival
                .map_or_else(|| "no rival".to_owned(), |ratio| format!("({ratio:.2})"))
        } else {
            judged(self.wall_to_rival, WALL_TO_RIVAL_MAX)
        };
        let limit = match load {
            Load::Large => judged(self.wall_to_limit, WALL_TO_LIMIT_MAX),
            Load::Small | Load::Few | Load::Mixed => String::new(),
        };
        let memory = match self.peak_mib {
            0..=PEAK_MIB_MAX => "met".to_owned(),
            peak => format!("**missed: {peak} MiB**"),
        };
        [
            first,
            judged(self.cpu_to_rival, CPU_TO_RIVAL_MAX),
            limit,
            memory,
        ]
    }
}

fn judged(ratio: Option<f64>, most: f64) -> String {
    match ratio {
        None => "no rival".to_owned(),
        Some(ratio) if ratio <= most => format!("met: {ratio:.2}"),
        Some(ratio) => format!("**missed: {ratio:.2}**"),
    }
}

/// Returns the goals met, a line for each row.
pub fn table(groups: &[Vec<&Row>], scale: Scale) -> String {
    let mut text = format!(
        "\n## Goals\n\nFirst in wall time where the client's CPU is the limit, which is where it keeps \
         {CPU_BOUND} of a core busy or more (elsewhere the ratio stands in parentheses); at most \
         {CPU_TO_RIVAL_MAX} of the best rival's CPU seconds; a large file in at most {WALL_TO_LIMIT_MAX} \
         of the bare limit's time; 200 MB of memory whatever is copied.\n\n\
         | where | what | cores busy | first | CPU | bare limit | memory |\n|---|---|---|---|---|---|---|\n"
    );
    for rows in groups {
        let place = rows[0].place.title();
        let what = title(rows[0], scale);
        let _ = match Standing::of(rows) {
            Some(standing) => writeln!(
                text,
                "| {place} | {what} | {:.2} | {} |",
                standing.cores,
                standing.cells(rows[0].load).join(" | ")
            ),
            None => writeln!(text, "| {place} | {what} | **nothing measured** | | | | |"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{
        super::{place::Place, tool::Way},
        *,
    };

    fn row(tool: &'static str, role: Role, figures: Option<(f64, f64, u64)>) -> Row {
        let sample = |(wall_s, cpu_s, peak_mib)| Sample {
            wall_s,
            cpu_s,
            peak_mib,
        };
        Row {
            load: Load::Large,
            place: Place::S3,
            way: Way::To,
            tool,
            role,
            samples: figures
                .map(|figures| vec![sample(figures)])
                .ok_or_else(|| "failed".to_owned()),
        }
    }

    fn judge(ours: Option<(f64, f64, u64)>) -> String {
        let rows = [
            row("ours", Role::Ours, ours),
            row("a", Role::Rival, Some((2.0, 4.0, 90))),
            row("b", Role::Rival, Some((3.0, 2.0, 900))),
            row("c", Role::Rival, None),
            row("bare", Role::Limit, Some((1.0, 0.5, 5))),
        ];
        table(&[rows.iter().collect()], Scale::Whole)
    }

    #[test]
    fn goals_are_judged_against_the_best_of_each() {
        let busy = judge(Some((1.2, 1.1, 100)));
        assert!(
            busy.contains("| 0.92 | met: 0.60 | met: 0.55 | met: 1.20 | met |"),
            "{busy}"
        );
        let slow = judge(Some((2.2, 2.0, 191)));
        assert!(
            slow.contains(
                "**missed: 1.10** | **missed: 1.00** | **missed: 2.20** | **missed: 191 MiB**"
            ),
            "{slow}"
        );
    }

    #[test]
    fn an_idle_client_needs_not_be_first_and_a_failure_is_told() {
        let idle = judge(Some((2.2, 0.2, 10)));
        assert!(idle.contains("| 0.09 | (1.10) | met: 0.10 |"), "{idle}");
        assert!(judge(None).contains("**nothing measured**"));
    }
}
