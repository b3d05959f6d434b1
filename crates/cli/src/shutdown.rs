//! Shutdown of a server on a signal.

use tokio::{
    io::AsyncReadExt,
    signal::unix::{Signal, SignalKind, signal},
};

use crate::failure::Failure;

/// Signals that end a server, watched from the creation of this value.
#[derive(Debug)]
pub struct Shutdown {
    terminate: Signal,
    interrupt: Signal,
    until_stdin_closes: bool,
}

impl Shutdown {
    /// Watches SIGTERM and SIGINT, and the end of standard input with `until_stdin_closes`: the
    /// server then ends with the process that started it, however that one ended.
    ///
    /// # Errors
    /// Returns the operating system's errors.
    pub fn watch(until_stdin_closes: bool) -> Result<Self, Failure> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(anyhow::Error::from)?,
            interrupt: signal(SignalKind::interrupt()).map_err(anyhow::Error::from)?,
            until_stdin_closes,
        })
    }

    /// Waits for a signal to end.
    pub async fn told(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            () = stdin_closes(), if self.until_stdin_closes => {}
        }
    }
}

async fn stdin_closes() {
    let mut stdin = tokio::io::stdin();
    let mut ignored = [0; 64];
    while stdin
        .read(&mut ignored)
        .await
        .is_ok_and(|length| length > 0)
    {}
}
