//! Why pages could not be handled.

/// What is wrong with a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The bytes contradict the format, or each other.
    Damaged(String),
    /// Legal, but not to be joined page by page.
    Unfit(String),
}

impl Fault {
    /// Bytes that contradict the format.
    pub fn damaged(what: impl std::fmt::Display) -> Self {
        Self::Damaged(what.to_string())
    }

    /// Pages that are legal and cannot be joined.
    pub fn unfit(what: impl std::fmt::Display) -> Self {
        Self::Unfit(what.to_string())
    }

    /// The fault with the part in which it was found.
    pub fn of(self, part: usize) -> Failure {
        Failure { part: Some(part), fault: self }
    }
}

/// A fault, and in which of the parts to be joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The part's place; `None` when it is of no single one.
    pub part: Option<usize>,
    /// The fault.
    pub fault: Fault,
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self { part: None, fault }
    }
}
