//! orient
