//! Conditions of links and accesses, and the settings of tables and changes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{MTU_BYTES, Rate, Share, Size, Span};

/// Most bytes in flight on one direction of a link: 10 Gbit/s over 200 ms, with as much again.
pub(crate) const WIRE_BYTES_MAX: u64 = 512 << 20;

/// The largest queue, in bytes: the emulator keeps it in memory.
const QUEUE_BYTES_MAX: u64 = 512 << 20;

/// The smallest queue, in bytes: two packets, or nothing that follows another would get through.
const QUEUE_BYTES_MIN: u64 = 2 * MTU_BYTES as u64;

/// The smallest default queue: a hundred packets, so that a burst of one window fits a short link.
const QUEUE_BYTES_USUAL_MIN: u64 = 150_000;

/// Length of an access's default queue in time: home routers hold this and more.
const ACCESS_QUEUE: Duration = Duration::from_millis(50);

/// State of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The link carries packets.
    Up,
    /// The link loses all that enters and its queue.
    Down,
}

/// Conditions of one direction of a link at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Conditions {
    /// Rate.
    pub rate: Rate,
    /// Delay from one end to the other, once sent.
    pub delay: Span,
    /// Most queued bytes; none for the rate times twice the delay.
    pub queue: Option<Size>,
    /// Segments lost, each by itself.
    pub loss: Share,
    /// Segments between two bursts of loss, on average; 0: no bursts.
    pub burst_every: u64,
    /// Segments in a burst, on average.
    pub burst_length: u64,
    /// Segments lost within a burst.
    pub burst_loss: Share,
    /// Jitter of the delay, both ways.
    pub jitter: Span,
    /// True if a packet may overtake another because of jitter.
    pub reorder: bool,
    /// State of the link.
    pub state: State,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            rate: Rate::UNLIMITED,
            delay: Span::default(),
            queue: None,
            loss: Share::NONE,
            burst_every: 0,
            burst_length: 1,
            burst_loss: Share::ALL,
            jitter: Span::default(),
            reorder: false,
            state: State::Up,
        }
    }
}

impl Conditions {
    /// Returns the size of the queue, in bytes.
    #[must_use]
    pub fn queue_bytes(&self) -> u64 {
        let product = self.rate.bytes_in(self.delay.duration() * 2);
        self.queue
            .map_or(product.max(QUEUE_BYTES_USUAL_MIN), Size::bytes)
    }

    /// Checks for conditions that no emulation could keep, in one line.
    ///
    /// # Errors
    /// Fails if the conditions contradict themselves or take too much memory.
    pub fn check(&self) -> Result<(), String> {
        let (delay, jitter) = (self.delay.duration(), self.jitter.duration());
        if jitter > delay {
            return Err(format!(
                "jitter ({jitter:?}) is more than the delay ({delay:?})"
            ));
        }
        let under_way = self.rate.bytes_in(delay + jitter);
        if under_way > WIRE_BYTES_MAX {
            return Err(format!(
                "{under_way} bytes would be under way, {WIRE_BYTES_MAX} at most: lower rate or delay"
            ));
        }
        if self.burst_every > 0 && self.burst_length == 0 {
            return Err("a burst has a burst_length of 1 at least".to_owned());
        }
        check_queue(self.queue_bytes())
    }

    /// Returns these conditions with the settings applied.
    #[must_use]
    pub fn with(self, setting: &Setting) -> Self {
        Self {
            rate: setting.rate.unwrap_or(self.rate),
            delay: setting.delay.unwrap_or(self.delay),
            queue: setting.queue.or(self.queue),
            loss: setting.loss.unwrap_or(self.loss),
            burst_every: setting.burst_every.unwrap_or(self.burst_every),
            burst_length: setting.burst_length.unwrap_or(self.burst_length),
            burst_loss: setting.burst_loss.unwrap_or(self.burst_loss),
            jitter: setting.jitter.unwrap_or(self.jitter),
            reorder: setting.reorder.unwrap_or(self.reorder),
            state: setting.state.unwrap_or(self.state),
        }
    }
}

/// Settings of [`Conditions`]; the rest stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "they are the fields of Conditions")]
pub struct Setting {
    pub rate: Option<Rate>,
    pub delay: Option<Span>,
    pub queue: Option<Size>,
    pub loss: Option<Share>,
    pub burst_every: Option<u64>,
    pub burst_length: Option<u64>,
    pub burst_loss: Option<Share>,
    pub jitter: Option<Span>,
    pub reorder: Option<bool>,
    pub state: Option<State>,
}

/// Access of a host in one direction, shared by all its traffic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Access {
    /// Rate.
    pub rate: Rate,
    /// Queue; none for 50 ms of the rate.
    pub queue: Option<Size>,
}

impl Access {
    /// Returns the size of the queue, in bytes.
    #[must_use]
    pub fn queue_bytes(&self) -> u64 {
        let usual = self.rate.bytes_in(ACCESS_QUEUE).max(QUEUE_BYTES_USUAL_MIN);
        self.queue.map_or(usual, Size::bytes)
    }

    /// Checks for an access that no emulation could keep, in one line.
    ///
    /// # Errors
    /// Fails if the queue takes too much memory, or holds nothing.
    pub fn check(&self) -> Result<(), String> {
        check_queue(self.queue_bytes())
    }
}

fn check_queue(bytes: u64) -> Result<(), String> {
    if (QUEUE_BYTES_MIN..=QUEUE_BYTES_MAX).contains(&bytes) {
        return Ok(());
    }
    Err(format!(
        "a queue of {bytes} bytes; from {QUEUE_BYTES_MIN} to {QUEUE_BYTES_MAX} there can be"
    ))
}

/// Settings of a host's two [`Access`]es.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccessSetting {
    /// The rate on the way out.
    pub up: Option<Rate>,
    /// The rate on the way in.
    pub down: Option<Rate>,
    /// The queue on the way out.
    pub up_queue: Option<Size>,
    /// The queue on the way in.
    pub down_queue: Option<Size>,
}

impl AccessSetting {
    /// Returns both accesses with the settings applied.
    #[must_use]
    pub fn on(&self, up: Access, down: Access) -> (Access, Access) {
        let replaced = |old: Access, rate: Option<Rate>, queue: Option<Size>| Access {
            rate: rate.unwrap_or(old.rate),
            queue: queue.or(old.queue),
        };
        (
            replaced(up, self.up, self.up_queue),
            replaced(down, self.down, self.down_queue),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_follows_rate_and_delay_until_it_is_set() {
        let rate = Rate::try_from("1Gbit/s".to_owned()).unwrap();
        let delay = Span::try_from("30ms".to_owned()).unwrap();
        let long = Conditions {
            rate,
            delay,
            ..Conditions::default()
        };
        assert_eq!(long.queue_bytes(), 7_500_000);
        let short = Conditions {
            rate,
            ..Conditions::default()
        };
        assert_eq!(short.queue_bytes(), QUEUE_BYTES_USUAL_MIN);
        let set = long.with(&Setting {
            queue: Some(Size::from_bytes(5000)),
            ..Setting::default()
        });
        assert_eq!(
            (set.queue_bytes(), set.rate, set.delay),
            (5000, rate, delay)
        );
    }
}
