//! act
