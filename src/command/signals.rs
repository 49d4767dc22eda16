//! SIGINT and SIGTERM while a command works.

use std::sync::{Arc, OnceLock};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::Failure;
use crate::cli::Exit;

/// The first signal asks the command to end; a second one ends the process at once.
#[derive(Clone)]
pub struct Signals {
    asked: CancellationToken,
    first: Arc<OnceLock<Exit>>,
}

impl Signals {
    /// Takes signals from here on. What begins with the first one is said on
    /// standard error, unless it is nothing.
    ///
    /// # Errors
    /// When the system does not let signals be taken.
    pub fn listen(begins: &'static str) -> Result<Self, Failure> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let signals = Self { asked: CancellationToken::new(), first: Arc::default() };
        let told = signals.clone();
        tokio::spawn(async move {
            loop {
                let exit = tokio::select! {
                    _ = interrupt.recv() => Exit::Interrupted,
                    _ = terminate.recv() => Exit::Terminated,
                };
                if told.first.set(exit).is_err() {
                    std::process::exit(exit.code().into());
                }
                if !begins.is_empty() {
                    eprintln!("{begins}; a second signal ends at once");
                }
                told.asked.cancel();
            }
        });
        Ok(signals)
    }

    /// Waits for the first signal: how to exit for it.
    pub async fn asked(&self) -> Exit {
        self.asked.cancelled().await;
        self.exit().unwrap_or(Exit::Interrupted)
    }

    /// How to exit for the signal that came, if one did.
    pub fn exit(&self) -> Option<Exit> {
        self.first.get().copied()
    }
}
