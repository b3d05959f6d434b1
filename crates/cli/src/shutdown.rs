//! Shutdown of a server on a signal.

use tokio::{
    io::AsyncReadExt,
    signal::unix::{Signal, SignalKind, signal},
};

use crate::failure::Failure;

/// The ways a server is told to end, watched from the moment this is made.
#[derive(Debug)]
pub struct Shutdown {
    terminate: Signal,
    interrupt: Signal,
    until_stdin_closes: bool,
}

impl Shutdown {
    /// Watches SIGTERM and SIGINT, and the end of standard input when `until_stdin_closes`: then
    /// the server ends with whoever started it, however that one ended.
    ///
    /// # Errors
    /// The operating system's.
    pub fn watch(until_stdin_closes: bool) -> Result<Self, Failure> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(anyhow::Error::from)?,
            interrupt: signal(SignalKind::interrupt()).map_err(anyhow::Error::from)?,
            until_stdin_closes,
        })
    }

    /// Waits until told.
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
