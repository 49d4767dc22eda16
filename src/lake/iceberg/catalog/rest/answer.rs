//! What an answer to a commit proves: a status and an error's type, nothing else.
//!
//! A refusal is believed only where the catalog itself gives it: its body is the
//! protocol's error model with a type that a refusal has. A gateway, a mesh or a
//! filter may answer in the catalog's place after the commit was applied, and may
//! use any status. Whatever is not listed here is unknown.

use serde::Deserialize;

/// What an answer proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The commit was accepted: the body tells whether it landed.
    Accepted,
    /// Not applied: a requirement does not hold, or the table is gone.
    Moved(String),
    /// Not applied, and a retry would not help.
    Refused(String),
    /// The credentials were refused before the request was looked at. `told`: by
    /// the catalog itself, which proves that it was not applied.
    Unauthorized {
        /// The answer.
        why: String,
        /// Whether the body is the catalog's own.
        told: bool,
    },
    /// It may have been applied, or still be.
    Unknown(String),
}

/// The protocol's error model.
#[derive(Debug, Default, Deserialize)]
struct Model {
    #[serde(default)]
    error: Detail,
}

#[derive(Debug, Default, Deserialize)]
struct Detail {
    #[serde(default)]
    message: Option<String>,
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    code: Option<u16>,
}

/// Longest text of a server that is shown.
const LONGEST: usize = 500;

/// An error body as one line; empty when there is nothing to tell.
pub fn explain(body: &[u8]) -> String {
    let detail = detail(body);
    let text = match (detail.kind, detail.message) {
        (Some(kind), Some(message)) => format!("{kind}: {message}"),
        (Some(text), None) | (None, Some(text)) => text,
        (None, None) => String::new(),
    };
    one_line(&text)
}

/// A server's text, short and without line breaks.
fn one_line(text: &str) -> String {
    let line: String = text.chars().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }).collect();
    line.trim().to_owned()
}

fn detail(body: &[u8]) -> Detail {
    serde_json::from_slice::<Model>(body).map(|model| model.error).unwrap_or_default()
}

/// What the answer to a commit proves.
pub fn classify(status: u16, body: &[u8]) -> Verdict {
    let detail = detail(body);
    let told = format!("{status} {}", explain(body)).trim_end().to_owned();
    // a body that names another status than its head was not made for this answer
    let kind = detail.kind.filter(|_| detail.code.is_none_or(|code| code == status));
    match (status, kind.as_deref().unwrap_or_default()) {
        (200, _) => Verdict::Accepted,
        (_, "CommitStateUnknownException") => Verdict::Unknown(told),
        (401 | 419, kind) => {
            let own = ["NotAuthorizedException", "UnauthorizedException", "AuthenticationTimeoutException"].contains(&kind);
            Verdict::Unauthorized { why: told, told: own }
        }
        (409, "CommitFailedException" | "RequirementFailedException" | "ConcurrentModificationException") => Verdict::Moved(told),
        (404, "NoSuchTableException" | "NoSuchNamespaceException" | "NoSuchIcebergTableException" | "NotFoundException") => {
            Verdict::Moved(told)
        }
        // another branch took the sequence number: older servers do not call that a conflict
        (400, "ValidationException") if told.contains("sequence number") => Verdict::Moved(told),
        (400, "BadRequestException" | "ValidationException" | "IllegalArgumentException" | "MalformedRequestException") => {
            Verdict::Refused(told)
        }
        (403, "ForbiddenException" | "NotAuthorizedException" | "AccessDeniedException") => Verdict::Refused(told),
        (406, "UnsupportedOperationException") | (422, "UnprocessableEntityException") => Verdict::Refused(told),
        // given by the HTTP layer before a handler runs
        (405 | 411 | 413 | 414 | 415 | 431, _) => Verdict::Refused(told),
        _ => Verdict::Unknown(told),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(status: u16, kind: &str) -> &'static str {
        let body = format!(r#"{{"error":{{"message":"m","type":"{kind}","code":{status}}}}}"#);
        name(&classify(status, body.as_bytes()))
    }

    fn name(verdict: &Verdict) -> &'static str {
        match verdict {
            Verdict::Accepted => "accepted",
            Verdict::Moved(_) => "moved",
            Verdict::Refused(_) => "refused",
            Verdict::Unauthorized { told: true, .. } => "unauthorized",
            Verdict::Unauthorized { told: false, .. } => "unauthorized, by whom?",
            Verdict::Unknown(_) => "unknown",
        }
    }

    #[test]
    fn h55_each_status_and_type_has_its_arm() {
        for (status, kind, expected) in [
            (200, "", "accepted"),
            (201, "", "unknown"),
            (204, "", "unknown"),
            (301, "", "unknown"),
            (307, "", "unknown"),
            (400, "BadRequestException", "refused"),
            (400, "ValidationException", "refused"),
            (400, "CommitStateUnknownException", "unknown"),
            (400, "SomethingElse", "unknown"),
            (401, "NotAuthorizedException", "unauthorized"),
            (401, "", "unauthorized, by whom?"),
            (419, "<html>", "unauthorized, by whom?"),
            (403, "ForbiddenException", "refused"),
            (403, "", "unknown"),
            (404, "NoSuchTableException", "moved"),
            (404, "", "unknown"),
            (406, "UnsupportedOperationException", "refused"),
            (408, "", "unknown"),
            (409, "CommitFailedException", "moved"),
            (409, "CommitStateUnknownException", "unknown"),
            (409, "", "unknown"),
            (413, "", "refused"),
            (419, "AuthenticationTimeoutException", "unauthorized"),
            (422, "UnprocessableEntityException", "refused"),
            (422, "", "unknown"),
            (429, "TooManyRequestsException", "unknown"),
            (429, "", "unknown"),
            (500, "CommitFailedException", "unknown"),
            (500, "CommitStateUnknownException", "unknown"),
            (501, "", "unknown"),
            (502, "", "unknown"),
            (503, "ServiceUnavailableException", "unknown"),
            (504, "", "unknown"),
            (599, "", "unknown"),
        ] {
            assert_eq!(arm(status, kind), expected, "{status} {kind}");
        }
    }

    #[test]
    fn a_sequence_number_taken_by_another_branch_is_a_conflict() {
        let body = br#"{"error":{"message":"Cannot add snapshot with sequence number 4 older than last sequence number 4","type":"ValidationException","code":400}}"#;
        assert_eq!(name(&classify(400, body)), "moved");
    }

    #[test]
    fn a_refusal_whose_body_names_another_status_is_not_believed() {
        let body = br#"{"error":{"message":"m","type":"CommitFailedException","code":500}}"#;
        assert_eq!(name(&classify(409, body)), "unknown");
    }

    #[test]
    fn what_is_told_is_short_and_one_line() {
        let long = format!(r#"{{"error":{{"message":"a\nb{}","type":"T","code":500}}}}"#, "x".repeat(5000));
        let told = explain(long.as_bytes());
        assert!(told.starts_with("T: a bxxx") && told.chars().count() == LONGEST, "{told}");
        assert_eq!(explain(b"<html>secret</html>"), "");
    }

    proptest::proptest! {
        #[test]
        fn no_body_panics_or_is_taken_for_a_proof(status in 300u16..600, body in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let verdict = name(&classify(status, &body));
            let by_status = [405, 411, 413, 414, 415, 431].contains(&status);
            proptest::prop_assert!(by_status || verdict == "unknown" || verdict == "unauthorized, by whom?");
        }
    }
}
