//! Named places at which a crash is simulated: each has a test that kills the
//! process there and checks what a restart makes of it.

use std::fmt;
use std::str::FromStr;

macro_rules! kill_points {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal),+ $(,)?) => {
        /// A step of an attempt between two durable effects.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum KillPoint { $($(#[doc = $doc])+ $name),+ }

        impl KillPoint {
            /// All members, in the order in which an attempt passes them.
            pub const ALL: &'static [KillPoint] = &[$(KillPoint::$name),+];

            /// The name used in the environment variable and in tests.
            pub fn code(self) -> &'static str {
                match self { $(KillPoint::$name => $code),+ }
            }
        }

        impl FromStr for KillPoint {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                match text { $($code => Ok(KillPoint::$name),)+ _ => Err(format!("no kill point is called `{text}`")) }
            }
        }
    };
}

kill_points! {
    /// The job is journaled as requested.
    Requested = "requested",
    /// The attempt is journaled as in flight, nothing is written.
    Inflight = "inflight",
    /// An output's path is journaled, the file is not begun.
    OutputNamed = "output-named",
    /// An output file is begun, not ended.
    OutputBegun = "output-begun",
    /// All outputs are written.
    Written = "written",
    /// The proof holds, nothing is committed.
    Verified = "verified",
    /// Deletes that came since the plan are written anew as deletes of the outputs;
    /// no manifest is. Passed only where there are some.
    DeletesCarried = "deletes-carried",
    /// New manifests are written, the metadata file is not.
    ManifestsWritten = "manifests-written",
    /// The commit is journaled as begun, and the metadata file is written where that
    /// is ours to do; the catalog has not been asked.
    MetadataWritten = "metadata-written",
    /// The catalog answered, the journal does not know.
    CatalogAnswered = "catalog-answered",
    /// The journal knows the outcome, clean-up has not begun.
    OutcomeJournaled = "outcome-journaled",
    /// Some files of a failed attempt are removed, not all.
    CleanupBegun = "cleanup-begun",
}

impl fmt::Display for KillPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}
