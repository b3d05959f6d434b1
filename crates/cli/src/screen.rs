//! Screen of running work: styled lines, redrawn in place.

use std::io::{IsTerminal, Write};

use crate::config;

/// Style of a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Unstyled.
    Plain,
    /// Titles.
    Bold,
    /// Less important.
    Dim,
    /// All is well.
    Good,
    /// Worth a look.
    Warning,
    /// Wrong.
    Bad,
}

/// Line of styled pieces of text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line(pub Vec<(String, Style)>);

impl Line {
    /// Builds a line with one piece.
    pub fn new(text: impl Into<String>, style: Style) -> Self {
        Self(vec![(text.into(), style)])
    }

    /// Adds a piece.
    #[must_use]
    pub fn and(mut self, text: impl Into<String>, style: Style) -> Self {
        self.0.push((text.into(), style));
        self
    }
}

/// Terminal that shows one frame after another in the same place. Without a terminal it shows
/// nothing.
#[derive(Debug)]
pub struct Screen {
    live: bool,
    colors: bool,
    shown: usize,
    width: usize,
}

impl Screen {
    /// Draws on standard error if that is a terminal and `wanted`.
    pub fn new(wanted: bool) -> Self {
        let width = rustix::termios::tcgetwinsize(std::io::stderr())
            .map_or(0, |size| usize::from(size.ws_col));
        Self {
            live: wanted && std::io::stderr().is_terminal(),
            colors: !config::no_color(),
            shown: 0,
            width: if width == 0 { 100 } else { width },
        }
    }

    /// Returns whether frames are visible to anybody.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Replaces the shown frame.
    pub fn draw(&mut self, frame: &[Line]) {
        if !self.live {
            return;
        }
        let mut text = String::new();
        if self.shown > 0 {
            text.push_str(&format!("\x1b[{}A", self.shown));
        }
        for line in frame {
            text.push_str("\r\x1b[2K");
            write_styled(line, self.width, self.colors, &mut text);
            text.push('\n');
        }
        text.push_str("\x1b[0J");
        self.shown = frame.len();
        // A terminal that went away is no reason to stop the work.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}

/// Writes as much of a line as fits, without characters that would move the cursor.
pub fn write_styled(line: &Line, columns: usize, colors: bool, text: &mut String) {
    let mut room = columns;
    for (piece, style) in &line.0 {
        let fitting = piece.chars().take(room);
        let fitting: String = fitting
            .map(|letter| {
                if posthaste_types::is_obeyed(letter) {
                    '\u{fffd}'
                } else {
                    letter
                }
            })
            .collect();
        room -= fitting.chars().count();
        let code = match style {
            Style::Plain => "0",
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Good => "32",
            Style::Warning => "33",
            Style::Bad => "31",
        };
        if colors && *style != Style::Plain {
            text.push_str(&format!("\x1b[{code}m{fitting}\x1b[0m"));
        } else {
            text.push_str(&fitting);
        }
    }
}

/// Renders a frame as an SVG picture, for the README.
pub fn to_svg(frame: &[Line]) -> String {
    const LINE_HEIGHT: usize = 20;
    const MARGIN: usize = 16;
    const CHARACTER_WIDTH: f64 = 8.43;
    let columns = frame
        .iter()
        .map(|line| {
            line.0
                .iter()
                .map(|(text, _)| text.chars().count())
                .sum::<usize>()
        })
        .max()
        .unwrap_or(0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a picture's size in pixels"
    )]
    let width = (columns as f64 * CHARACTER_WIDTH) as usize + 2 * MARGIN;
    let height = frame.len() * LINE_HEIGHT + 2 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#10151c\"/>\n\
         <g font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, monospace\" font-size=\"14\" xml:space=\"preserve\">\n"
    );
    for (row, line) in frame.iter().enumerate() {
        let y = MARGIN + row * LINE_HEIGHT + 14;
        svg.push_str(&format!("<text x=\"{MARGIN}\" y=\"{y}\" fill=\"#d6dde6\">"));
        for (text, style) in &line.0 {
            let fill = match style {
                Style::Plain => "#d6dde6",
                Style::Bold => "#ffffff",
                Style::Dim => "#7d8a99",
                Style::Good => "#6fcf80",
                Style::Warning => "#e8c15a",
                Style::Bad => "#f0706a",
            };
            let text = text
                .replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('>', "&gt;");
            svg.push_str(&format!("<tspan fill=\"{fill}\">{text}</tspan>"));
        }
        svg.push_str("</text>\n");
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_escapes_what_xml_would_misread() {
        let svg = to_svg(&[Line::new("a<b & c", Style::Bad).and("!", Style::Plain)]);
        assert!(svg.contains("a&lt;b &amp; c"), "{svg}");
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    }
}
