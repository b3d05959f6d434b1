//! Progress of a long listing, on a terminal that does not show the listing itself.

use std::{
    io::{self, IsTerminal, Write},
    sync::{
        Arc,
        mpsc::{RecvTimeoutError, sync_channel},
    },
    time::Duration,
};

use posthaste_engine::scan::Tally;

/// Time after which a listing shows its progress.
pub const QUIET_FOR: Duration = Duration::from_secs(2);

/// Interval between two looks.
pub const LOOKED_EVERY: Duration = Duration::from_millis(500);

/// Waits for `work` while showing the tally.
pub(super) async fn showing<T>(tally: &Arc<Tally>, work: impl Future<Output = T>) -> T {
    let is_shown = io::stderr().is_terminal() && !io::stdout().is_terminal();
    if !is_shown {
        return work.await;
    }
    let mut is_drawn = false;
    let drawing = async {
        tokio::time::sleep(QUIET_FOR).await;
        let mut tick = tokio::time::interval(LOOKED_EVERY);
        let mut before = tally.entries();
        loop {
            tick.tick().await;
            let entries = tally.entries();
            let rate = (entries - before) * 2;
            before = entries;
            is_drawn = true;
            draw(&format!(
                "{} entries, {} of them directories, {} a second",
                grouped(entries),
                grouped(tally.directories()),
                grouped(rate)
            ));
        }
    };
    let done = tokio::select! {
        done = work => Some(done),
        () = drawing => None,
    };
    if is_drawn {
        draw("");
    }
    match done {
        Some(done) => done,
        None => std::future::pending().await,
    }
}

/// Runs `work` while showing its progress, as `told` formats it, on a terminal.
pub fn telling<T>(told: impl Fn() -> String + Send, work: impl FnOnce() -> T) -> T {
    if !io::stderr().is_terminal() {
        return work();
    }
    let (ended, is_over) = sync_channel::<()>(1);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut wait = QUIET_FOR;
            let mut is_drawn = false;
            while is_over.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                wait = LOOKED_EVERY;
                is_drawn = true;
                draw(&told());
            }
            if is_drawn {
                draw("");
            }
        });
        let done = work();
        drop(ended);
        done
    })
}

/// Replaces the line on standard error.
pub fn draw(text: &str) {
    // A terminal that went away is no reason to stop.
    let _ = io::stderr().write_all(format!("\r\x1b[2K{text}").as_bytes());
}

/// Groups digits by thousands: `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_told_apart() {
        let shown = [0, 999, 1_000, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
    }
}
