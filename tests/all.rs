//! One integration-test binary: linking is slow.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod hazards {
    mod h100_shared_puffin;
    mod h112_silent_writers;
    mod h24_old_pointer;
    mod h91_lost_events;
    mod h96_awkward_partitions;
}

mod orient;
