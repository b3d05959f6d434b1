//! Plots of the page: series from the samples, and marks.

use std::fmt::Write;

use posthaste_core::contract::Happening;
use posthaste_types::RequestId;
use serde_json::Value;

use super::{
    super::{
        Recording, Report, Sample, What,
        plot::{COLORS, Chart, Mark, Series, Shape, Unit},
        recording::seconds,
    },
    escape,
};

/// Most points of a plot. A screen can't show more than two for each of its finer dots.
const MOMENTS_MAX: usize = 480;
/// Most marks of a plot. More would look like hatching.
const MARKS_MAX: usize = 150;
/// Most requests with a marked deadline.
const DEADLINES_MAX: usize = 6;
/// Most requests with a drawn slack.
const LINES_MAX: usize = COLORS;

/// Symbols of marks: class, symbol and meaning.
pub(super) const SYMBOLS: [(&str, &str, &str); 8] = [
    ("added", "+", "depot added"),
    ("rerouted", "\u{21bb}", "rerouted"),
    ("lost", "\u{00d7}", "depot lost"),
    ("risk", "!", "at risk"),
    ("missed", "\u{2020}", "deadline missed"),
    ("safe", "\u{2713}", "safe"),
    ("world", "\u{2022}", "the world"),
    ("deadline", "\u{25bc}", "deadline"),
];

/// Returns an event's class of mark, if it has one.
pub(super) fn class(what: &What) -> Option<&'static str> {
    match what {
        What::World(_) => Some("world"),
        What::Driver(_) | What::User(_) => None,
        What::Said { happening, .. } => match happening {
            Happening::DepotActivated => Some("added"),
            Happening::Rerouted => Some("rerouted"),
            Happening::DepotDown => Some("lost"),
            Happening::AtRisk { .. } | Happening::DeliveryAtRisk { .. } => Some("risk"),
            Happening::Missed | Happening::DeliveryMissed => Some("missed"),
            Happening::Safe { .. } | Happening::Arrived { .. } => Some("safe"),
            Happening::Admitted
            | Happening::Crowded
            | Happening::Unpinned
            | Happening::Paused
            | Happening::Resumed
            | Happening::DeliveryOnTime { .. }
            | Happening::CodeChosen { .. }
            | Happening::LeftOut { .. }
            | Happening::Fetching
            | Happening::Prestaging
            | Happening::SourceLeft { .. }
            | Happening::SourceBack { .. }
            | Happening::Thinned { .. }
            | Happening::Reservation { .. }
            | Happening::Purged
            | Happening::Refused
            | Happening::OnTime { .. }
            | Happening::DepotRetired
            | Happening::DepotUp
            | Happening::DepotDraining
            | Happening::DepotEmptied
            | Happening::DepotUndrained
            | Happening::WayTried { .. }
            | Happening::WayTaken { .. }
            | Happening::ForecastMoved
            | Happening::Repairing { .. }
            | Happening::Unsafe { .. }
            | Happening::Released
            | Happening::ReleaseFailed
            | Happening::Pushing
            | Happening::Pushed
            | Happening::Delivering
            | Happening::Delivered
            | Happening::Cancelled
            | Happening::Failed => None,
        },
    }
}

pub(super) fn symbol(class: &str) -> &'static str {
    let found = SYMBOLS.iter().find(|(known, ..)| *known == class);
    found.map_or("", |(_, symbol, _)| symbol)
}

/// Returns the marks of all plots, in the order of time.
pub(super) fn marks(report: &Report, recording: &Recording) -> Vec<Mark> {
    let events = report.timeline.iter().filter_map(|entry| {
        let (at_s, class) = (entry.at.as_secs_f64(), class(&entry.what)?);
        Some(Mark {
            at_s,
            class,
            symbol: symbol(class),
            title: format!("{at_s:.1} s  {}", report.line(entry)),
        })
    });
    let mut marks: Vec<Mark> = events.take(MARKS_MAX).collect();
    if recording.requests.len() <= DEADLINES_MAX {
        marks.extend(recording.requests.iter().map(|view| {
            let at_s = view.spec.deadline.since(report.start).as_secs_f64();
            Mark {
                at_s,
                class: "deadline",
                symbol: symbol("deadline"),
                title: format!("{at_s:.1} s  the deadline of {}", view.request),
            }
        }));
    }
    marks.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
    marks
}

/// Returns all plots as HTML, and their numbers for the script.
pub(super) fn figures(report: &Report, recording: &Recording, marks: &[Mark]) -> (String, Value) {
    let thin = Thinned::new(&recording.samples);
    let end_s = end(&thin.moments, marks);
    let rates = |sample: &Sample| sample.rates.clone();
    let used = |sample: &Sample| sample.used.clone();
    let chart = |id, label, series, shape, unit| Chart {
        id,
        label,
        moments: &thin.moments,
        end_s,
        series,
        shape,
        unit,
        marks,
    };
    let followed = recording.slacks();
    let slacks = followed.keys().take(LINES_MAX);
    let slacks: Vec<Series> = slacks.map(|request| thin.slack(*request)).collect();
    let mut drawn = vec![
        (
            chart(
                "rates",
                "Rate per path",
                thin.by_depot(report, rates, true),
                Shape::Stacked,
                Unit::BytesPerSecond,
            ),
            "What flows from the centre to each depot, one on the other: Figure 6 of the Timely Offloading paper, for this run.",
        ),
        (
            chart("slack", "Slack", slacks, Shape::Lines, Unit::Seconds),
            "Deadline less p90 finish of each request that moves. Below zero it is forecast to be late.",
        ),
        (
            chart(
                "used",
                "Storage used",
                thin.by_depot(report, used, false),
                Shape::Stacked,
                Unit::Bytes,
            ),
            "What each depot holds.",
        ),
    ];
    if recording.is_priced {
        let cost = chart(
            "cost",
            "Cost",
            vec![thin.cost()],
            Shape::Lines,
            Unit::Dollars,
        );
        drawn.push((
            cost,
            "What was spent so far, at the prices of the scenario.",
        ));
    }
    let numbers = drawn.iter().map(|(chart, _)| chart.to_json()).collect();
    let figures = drawn.iter().map(|(chart, about)| figure(chart, about));
    let mut html: String = figures.collect();
    html.push_str(&legend(marks));
    (html, numbers)
}

/// Returns the end of the plots: the last moment, or a deadline shortly after it.
fn end(moments: &[f64], marks: &[Mark]) -> f64 {
    let last = moments.last().copied().unwrap_or(0.0);
    let deadlines = marks.iter().filter(|mark| mark.class == "deadline");
    let near = deadlines
        .map(|mark| mark.at_s)
        .filter(|at_s| *at_s < last * 1.4);
    near.fold(last, f64::max)
}

fn figure(chart: &Chart<'_>, about: &str) -> String {
    let mut html = format!(
        "<h2>{}</h2>\n<p class=\"soft\">{about}</p>\n<figure>\n{}<figcaption>",
        chart.label,
        chart.to_svg()
    );
    for (place, series) in chart.series.iter().enumerate() {
        let name = escape(&series.name);
        let _ = write!(
            html,
            "<span class=\"c{}\"><i></i>{name}</span>",
            place % COLORS
        );
    }
    html.push_str("</figcaption>\n</figure>\n");
    html
}

/// Returns the legend of the marks that occur.
fn legend(marks: &[Mark]) -> String {
    let there = SYMBOLS
        .iter()
        .filter(|(class, ..)| marks.iter().any(|mark| mark.class == *class));
    let keys = there
        .map(|(class, symbol, what)| format!("<span class=\"key {class}\">{symbol}</span> {what}"));
    let keys: Vec<String> = keys.collect();
    format!("<p class=\"soft\">{}</p>\n", keys.join(" &#160; "))
}

/// Samples in groups, few enough for a plot.
struct Thinned<'a> {
    groups: Vec<&'a [Sample]>,
    moments: Vec<f64>,
}

impl<'a> Thinned<'a> {
    fn new(samples: &'a [Sample]) -> Self {
        let size = samples.len().div_ceil(MOMENTS_MAX).max(1);
        let groups: Vec<&[Sample]> = samples.chunks(size).collect();
        let moments = groups.iter().filter_map(|group| group.last());
        Self {
            moments: moments.map(|sample| sample.at.as_secs_f64()).collect(),
            groups,
        }
    }

    /// Returns a series for each depot that ever had anything. With many depots, the largest have
    /// their own series and the others share one. Values are group averages, or each group's last
    /// number.
    fn by_depot(
        &self,
        report: &Report,
        numbers: impl Fn(&Sample) -> Vec<u64>,
        is_average: bool,
    ) -> Vec<Series> {
        let depots = report.depots.len();
        let mut values = vec![Vec::with_capacity(self.groups.len()); depots];
        for group in &self.groups {
            let seen = if is_average {
                group
            } else {
                &group[group.len() - 1..]
            };
            let mut sums = vec![0.0; depots];
            for sample in seen {
                for (sum, number) in sums.iter_mut().zip(numbers(sample)) {
                    *sum += float(number);
                }
            }
            let count = float(seen.len() as u64);
            values
                .iter_mut()
                .zip(sums)
                .for_each(|(values, sum)| values.push(sum / count));
        }
        let total = |place: &usize| values[*place].iter().sum::<f64>();
        let mut places: Vec<usize> = (0..depots).filter(|place| total(place) > 0.0).collect();
        places.sort_by(|one, other| total(other).total_cmp(&total(one)));
        let others = places.split_off(places.len().min(COLORS - 1));
        places.sort_unstable();
        let mut series: Vec<Series> = places
            .into_iter()
            .map(|place| Series {
                name: report.depots[place].clone(),
                values: values[place].clone(),
            })
            .collect();
        if !others.is_empty() {
            let sum = |moment: usize| others.iter().map(|place| values[*place][moment]).sum();
            series.push(Series {
                name: format!("{} others", others.len()),
                values: (0..self.groups.len()).map(sum).collect(),
            });
        }
        series
    }

    fn slack(&self, request: RequestId) -> Series {
        let of = |group: &&[Sample]| {
            let mut slacks = group.last()?.slacks.iter();
            slacks.find(|(other, _)| *other == request)?.1.map(seconds)
        };
        let values = self
            .groups
            .iter()
            .map(|group| of(group).unwrap_or(f64::NAN));
        Series {
            name: request.to_string(),
            values: values.collect(),
        }
    }

    fn cost(&self) -> Series {
        let last = self.groups.iter().filter_map(|group| group.last());
        Series {
            name: String::from("spent"),
            values: last.map(|sample| float(sample.micro_usd) / 1e6).collect(),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a plot needs no more than 52 bits"
)]
fn float(number: u64) -> f64 {
    number as f64
}
