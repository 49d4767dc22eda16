//! Exit codes.

use std::process::ExitCode;

macro_rules! exits {
    ($($(#[$meta:meta])+ $name:ident = $code:literal: $words:literal),+ $(,)?) => {
        /// How a command ended. When several scopes ended differently, the
        /// largest code is the command's.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Exit { $($(#[$meta])+ $name = $code),+ }

        impl Exit {
            /// All members, by code.
            pub const ALL: &'static [Exit] = &[$(Exit::$name),+];

            /// What it means, for `--help`.
            pub fn words(self) -> &'static str {
                match self { $(Exit::$name => $words),+ }
            }
        }

        /// The section of `--help` that documents the codes.
        pub const HELP: &str = concat!("Exit codes:\n", $("  ", $code, "\t", $words, "\n"),+);
    };
}

exits! {
    /// Done.
    #[default]
    Done = 0: "done; also when there was nothing to do",
    /// Failed.
    Failed = 1: "failed, or was stopped by hand; what failed committed nothing",
    /// A command line that cannot be read.
    Usage = 2: "the command line cannot be read",
    /// A named refusal.
    Refused = 3: "a table or partition was refused by name, or is paused; nothing was changed there",
    /// The table moved.
    Conflict = 4: "the table moved; the work was dropped, the table is as its writers left it",
    /// Unknown outcome.
    Unknown = 5: "a commit may or may not have landed; nothing was deleted, the next `compact` or `serve` finds out",
    /// Nobody answers.
    Unreachable = 6: "a sidecar, catalog or store did not answer",
    /// No such thing.
    NotFound = 7: "there is no such table, partition or job",
    /// Bad settings.
    Settings = 64: "the settings cannot be used; every mistake is listed",
    /// Stopped by SIGINT.
    Interrupted = 130: "stopped by Ctrl-C; what was under way is cancelled and cleaned up, unless a second one came",
    /// Stopped by SIGTERM.
    Terminated = 143: "stopped by SIGTERM, in the same way; `serve` drains and exits with 0",
}

impl Exit {
    /// The code.
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
