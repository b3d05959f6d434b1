//! Whole terminal window: redrawn repeatedly, closed by keys, and restored at the end.

use std::{
    io::{IsTerminal, Write},
    os::fd::AsFd,
};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

use crate::{
    config,
    screen::{Line, write_styled},
};

/// Sequence that switches to the terminal's other page, hides the cursor, and cuts long lines.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
/// Sequence that returns to the previous page.
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// Default size of a window: columns, rows.
const SIZE: (usize, usize) = (100, 30);
/// Keys read at once.
const KEYS: usize = 64;

/// Window, until it is dropped.
pub struct Terminal {
    /// Terminal settings before keys were read; `None` if they are not read.
    before: Option<Termios>,
    colors: bool,
}

impl Terminal {
    /// Opens the window; `None` if standard output is no terminal.
    pub fn take() -> Option<Self> {
        let out = std::io::stdout();
        if !out.is_terminal() {
            return None;
        }
        let input = std::io::stdin();
        let before = tcgetattr(input.as_fd()).ok();
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.local_modes
                .remove(LocalModes::ICANON | LocalModes::ECHO);
            // A read waits for no key.
            raw.special_codes[SpecialCodeIndex::VMIN] = 0;
            raw.special_codes[SpecialCodeIndex::VTIME] = 0;
            // Stopped, it could not give the window back.
            raw.special_codes[SpecialCodeIndex::VSUSP] = 0;
            let _ = tcsetattr(input.as_fd(), OptionalActions::Now, &raw);
        }
        say(ENTER);
        Some(Self {
            before,
            colors: !config::no_color(),
        })
    }

    /// Returns the current columns and rows.
    pub fn size(&self) -> (usize, usize) {
        let size = tcgetwinsize(std::io::stdout()).ok();
        let size = size.map(|size| (usize::from(size.ws_col), usize::from(size.ws_row)));
        size.filter(|(columns, rows)| *columns > 0 && *rows > 0)
            .unwrap_or(SIZE)
    }

    /// Returns whether a key that ends the view was pressed.
    pub fn is_quit(&self) -> bool {
        let mut keys = [0; KEYS];
        let read = self.before.is_some().then(|| {
            let input = std::io::stdin();
            rustix::io::read(input.as_fd(), &mut keys[..])
        });
        let read = read.and_then(Result::ok).unwrap_or(0);
        keys[..read].iter().any(|key| matches!(key, b'q' | b'Q'))
    }

    /// Replaces the content. Text beyond the window is not shown.
    pub fn draw(&self, frame: &[Line]) {
        let (columns, rows) = self.size();
        let mut text = String::from("\x1b[H");
        for (row, line) in frame.iter().take(rows).enumerate() {
            if row > 0 {
                text.push_str("\r\n");
            }
            write_styled(line, columns, self.colors, &mut text);
            text.push_str("\x1b[K");
        }
        text.push_str("\x1b[J");
        say(&text);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        say(LEAVE);
        if let Some(before) = &self.before {
            let input = std::io::stdin();
            let _ = tcsetattr(input.as_fd(), OptionalActions::Now, before);
        }
    }
}

/// Writes to the terminal. One that went away is no reason to fail: a signal reports its end.
fn say(text: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
