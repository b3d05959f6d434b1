//! Plots as SVG, without a library: stacked areas and lines over time, with marks.

use std::fmt::Write;

use super::page::escape;

/// Width of the drawing, and the margins around its plot area, in its own units.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 26.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 28.0;
/// Heights of the symbol rows above the plot area.
const MARK_ROWS: [f64; 3] = [0.0, 14.0, 28.0];
const MARK_WIDTH: f64 = 14.0;
/// Number of colours.
pub(super) const COLORS: usize = 12;

/// Event, shown as a line across the plot with a symbol above.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Mark {
    pub(super) at_s: f64,
    /// CSS class.
    pub(super) class: &'static str,
    pub(super) symbol: &'static str,
    pub(super) title: String,
}

/// Line or area: a name, and a number for each moment; NaN for no number.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) values: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Stacked,
    Lines,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    BytesPerSecond,
    Bytes,
    Seconds,
    Dollars,
}

impl Unit {
    /// Returns the divisor for numbers up to `most`, and its unit.
    fn scale(self, most: f64) -> (f64, &'static str) {
        const BYTES: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
        const RATES: [&str; 6] = ["B/s", "KiB/s", "MiB/s", "GiB/s", "TiB/s", "PiB/s"];
        let binary = |names: [&'static str; 6]| {
            let mut scale = (1.0, names[0]);
            for name in &names[1..] {
                if most >= scale.0 * 1024.0 {
                    scale = (scale.0 * 1024.0, name);
                }
            }
            scale
        };
        match self {
            Self::BytesPerSecond => binary(RATES),
            Self::Bytes => binary(BYTES),
            Self::Seconds if most > 5.0 * 3600.0 => (3600.0, "h"),
            Self::Seconds if most > 900.0 => (60.0, "min"),
            Self::Seconds => (1.0, "s"),
            Self::Dollars => (1.0, "USD"),
        }
    }
}

/// Single plot.
#[derive(Debug)]
pub(super) struct Chart<'a> {
    pub(super) id: &'static str,
    pub(super) label: &'static str,
    pub(super) moments: &'a [f64],
    /// End of the plot: the last moment or later.
    pub(super) end_s: f64,
    pub(super) series: Vec<Series>,
    pub(super) shape: Shape,
    pub(super) unit: Unit,
    pub(super) marks: &'a [Mark],
}

/// Mapping of numbers to positions on the drawing.
struct Ground {
    end_s: f64,
    low: f64,
    high: f64,
}

impl Ground {
    fn x(&self, at_s: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * at_s / self.end_s
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value.clamp(self.low, self.high) - self.low) / (self.high - self.low);
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share
    }
}

impl Chart<'_> {
    /// Returns the plot as an SVG element.
    pub(super) fn to_svg(&self) -> String {
        let (low, high) = self.range();
        let ground = Ground {
            end_s: self.end_s.max(1.0),
            low,
            high,
        };
        let mut svg = format!(
            "<svg id=\"{}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
            self.id, self.label
        );
        self.draw_axes(&ground, &mut svg);
        match self.shape {
            Shape::Stacked => self.draw_areas(&ground, &mut svg),
            Shape::Lines => self.draw_lines(&ground, &mut svg),
        }
        draw_marks(self.marks, &ground, &mut svg);
        svg.push_str("<line class=\"cursor\" visibility=\"hidden\"/>\n</svg>\n");
        svg
    }

    /// Returns the script's data for the pointer: moments, and each series in the plot's unit.
    pub(super) fn to_json(&self) -> serde_json::Value {
        let (low, high) = self.range();
        let (divisor, unit) = self.unit.scale(high.max(-low));
        let series = self.series.iter().map(|series| {
            let values: Vec<Option<f64>> = series
                .values
                .iter()
                .map(|value| value.is_finite().then(|| round(value / divisor)))
                .collect();
            serde_json::json!({"name": series.name, "values": values})
        });
        let moments: Vec<f64> = self.moments.iter().map(|at_s| round(*at_s)).collect();
        serde_json::json!({
            "id": self.id, "unit": unit, "left": LEFT, "right": WIDTH - RIGHT, "width": WIDTH,
            "end": self.end_s.max(1.0), "top": TOP, "bottom": HEIGHT - BOTTOM, "moments": moments,
            "series": series.collect::<Vec<_>>(),
        })
    }

    /// Returns the lowest and the highest number shown. For lines the outermost hundredths are cut
    /// off, because a forecast before the first measurement is unreliable.
    fn range(&self) -> (f64, f64) {
        let (low, high) = match self.shape {
            Shape::Stacked => {
                let sum = |place| self.series.iter().map(|it| it.values[place]).sum::<f64>();
                (0.0, (0..self.moments.len()).map(sum).fold(0.0, f64::max))
            }
            Shape::Lines => {
                let all = self.series.iter().flat_map(|series| &series.values);
                let mut all: Vec<f64> = all.copied().filter(|it| it.is_finite()).collect();
                all.sort_by(f64::total_cmp);
                let cut = all.len() / 100;
                let first = all.get(cut).copied().unwrap_or(0.0);
                let last = all.iter().rev().nth(cut).copied().unwrap_or(0.0).max(0.0);
                // Negative slack is visible, however short it lasted.
                let is_below = all.first().is_some_and(|least| *least < 0.0);
                (first.min(if is_below { -last / 8.0 } else { 0.0 }), last)
            }
        };
        let room = if high > low { (high - low) * 0.05 } else { 1.0 };
        (if low < 0.0 { low - room } else { low }, high + room)
    }

    fn draw_axes(&self, ground: &Ground, svg: &mut String) {
        let (right, floor) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        if ground.low < 0.0 {
            let zero = ground.y(0.0);
            let _ = writeln!(
                svg,
                "<rect class=\"below\" x=\"{LEFT}\" y=\"{zero:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                right - LEFT,
                floor - zero
            );
        }
        let (divisor, unit) = self.unit.scale(ground.high.max(-ground.low));
        for tick in ticks(ground.low / divisor, ground.high / divisor, 5) {
            let y = ground.y(tick * divisor);
            let class = if tick == 0.0 { "zero" } else { "grid" };
            let _ = writeln!(
                svg,
                "<line class=\"{class}\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                y + 4.0,
                number(tick)
            );
        }
        let _ = writeln!(
            svg,
            "<text class=\"unit\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{unit}</text>",
            LEFT - 8.0,
            TOP - 8.0
        );
        let (divisor, unit) = Unit::Seconds.scale(ground.end_s);
        for tick in ticks(0.0, ground.end_s / divisor, 9) {
            let x = ground.x(tick * divisor);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{floor}\" y2=\"{:.1}\"/>\
                 <text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{} {unit}</text>",
                floor + 5.0,
                floor + 20.0,
                number(tick)
            );
        }
    }

    fn draw_areas(&self, ground: &Ground, svg: &mut String) {
        let mut below = vec![0.0; self.moments.len()];
        for (place, series) in self.series.iter().enumerate() {
            let above: Vec<f64> = below
                .iter()
                .zip(&series.values)
                .map(|(below, value)| below + value)
                .collect();
            let mut path = String::new();
            let forth = self.moments.iter().zip(&above);
            for (letter, (at_s, value)) in std::iter::once('M')
                .chain(std::iter::repeat('L'))
                .zip(forth)
            {
                let _ = write!(
                    path,
                    "{letter}{:.1} {:.1}",
                    ground.x(*at_s),
                    ground.y(*value)
                );
            }
            for (at_s, value) in self.moments.iter().zip(&below).rev() {
                let _ = write!(path, "L{:.1} {:.1}", ground.x(*at_s), ground.y(*value));
            }
            let _ = writeln!(
                svg,
                "<path class=\"area c{}\" d=\"{path}Z\"><title>{}</title></path>",
                place % COLORS,
                escape(&series.name)
            );
            below = above;
        }
    }

    fn draw_lines(&self, ground: &Ground, svg: &mut String) {
        for (place, series) in self.series.iter().enumerate() {
            let mut path = String::new();
            let mut letter = 'M';
            for (at_s, value) in self.moments.iter().zip(&series.values) {
                if value.is_finite() {
                    let _ = write!(
                        path,
                        "{letter}{:.1} {:.1}",
                        ground.x(*at_s),
                        ground.y(*value)
                    );
                    letter = 'L';
                } else {
                    letter = 'M';
                }
            }
            if !path.is_empty() {
                let _ = writeln!(
                    svg,
                    "<path class=\"line c{}\" d=\"{path}\"><title>{}</title></path>",
                    place % COLORS,
                    escape(&series.name)
                );
            }
        }
    }
}

/// Draws each mark as a line, with its symbol in the first row above that has room for it.
fn draw_marks(marks: &[Mark], ground: &Ground, svg: &mut String) {
    let mut taken = [f64::NEG_INFINITY; MARK_ROWS.len()];
    for mark in marks.iter().filter(|mark| mark.at_s <= ground.end_s) {
        let x = ground.x(mark.at_s);
        let mut rows = MARK_ROWS.into_iter().zip(&mut taken);
        let row = rows.find(|(_, taken)| x - **taken >= MARK_WIDTH);
        let _ = write!(
            svg,
            "<g class=\"mark {}\"><title>{}</title><line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/>",
            mark.class,
            escape(&mark.title),
            HEIGHT - BOTTOM
        );
        if let Some((lift, taken)) = row {
            *taken = x;
            let y = TOP - 5.0 - lift;
            let _ = write!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>",
                mark.symbol
            );
        }
        svg.push_str("</g>\n");
    }
}

/// Returns round numbers from `low` to `high`, about `count` of them.
fn ticks(low: f64, high: f64, count: u32) -> Vec<f64> {
    let rough = ((high - low) / f64::from(count)).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|step| *step >= rough)
        .unwrap_or(power * 10.0);
    let first = (low / step).ceil();
    (0..100)
        .map(|place| (first + f64::from(place)) * step)
        .take_while(|tick| *tick <= high)
        .collect()
}

/// Formats a number with as few digits as possible.
fn number(value: f64) -> String {
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    String::from(if text == "-0" { "0" } else { text })
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_lie_within() {
        assert_eq!(ticks(0.0, 10.0, 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(-3.0, 3.0, 3), [-2.0, 0.0, 2.0]);
        assert_eq!(ticks(0.0, 0.07, 5).len(), 4);
        assert_eq!(number(0.30000000000000004), "0.3");
        assert_eq!(number(-0.0), "0");
    }

    #[test]
    fn units_fit_the_largest_number() {
        assert_eq!(Unit::BytesPerSecond.scale(3.0 * 1048576.0).1, "MiB/s");
        assert_eq!(Unit::Bytes.scale(1023.0), (1.0, "B"));
        assert_eq!(Unit::Seconds.scale(600.0).1, "s");
        assert_eq!(Unit::Seconds.scale(86_400.0).1, "h");
    }

    #[test]
    fn areas_stand_on_each_other_and_gaps_break_a_line() {
        let series = |name: &str, values: [f64; 3]| Series {
            name: name.into(),
            values: values.into(),
        };
        let chart = |shape, series| Chart {
            id: "a",
            label: "a",
            moments: &[0.0, 1.0, 2.0],
            end_s: 2.0,
            series,
            shape,
            unit: Unit::Bytes,
            marks: &[],
        };
        let two = vec![series("x", [1.0, 2.0, 1.0]), series("y", [3.0, 8.0, 1.0])];
        let stacked = chart(Shape::Stacked, two);
        assert!((stacked.range().1 - 10.5).abs() < 1e-9, "the sum and room");
        assert_eq!(stacked.to_svg().matches("class=\"area").count(), 2);
        let broken = vec![series("<x>", [1.0, f64::NAN, 2.0])];
        let svg = chart(Shape::Lines, broken).to_svg();
        let path = svg
            .split(" d=\"")
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap();
        assert_eq!(path.matches('M').count(), 2, "{path}");
        assert!(svg.contains("&lt;x&gt;"));
    }
}
