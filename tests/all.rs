//! One integration-test binary: linking is slow.
