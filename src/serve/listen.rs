//! Who may reach us: loopback, or whoever holds the token.

use std::net::SocketAddr;

/// Why an address is not listened on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{addr} can be reached from other machines and {missing}; configure it, listen on 127.0.0.1, or pass --insecure")]
pub struct Refusal {
    /// The address.
    pub addr: SocketAddr,
    /// What is missing.
    pub missing: &'static str,
}

/// Whether an address may be listened on. Beyond loopback it takes TLS and a
/// token, or the user's word that it is meant so.
///
/// # Errors
/// Names what is missing.
pub fn check_listen(addr: SocketAddr, tls: bool, token: bool, insecure: bool) -> Result<(), Refusal> {
    if insecure || addr.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let missing = match (tls, token) {
        (true, true) => return Ok(()),
        (false, true) => "TLS is not configured",
        (true, false) => "no token is configured",
        (false, false) => "neither TLS nor a token is configured",
    };
    Err(Refusal { addr, missing })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(addr: &str, tls: bool, token: bool, insecure: bool) -> Option<&'static str> {
        check_listen(addr.parse().unwrap(), tls, token, insecure).err().map(|r| r.missing)
    }

    #[test]
    fn loopback_needs_nothing() {
        assert_eq!(["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"].map(|a| check(a, false, false, false)), [None; 4]);
    }

    #[test]
    fn another_address_needs_tls_and_a_token_or_the_users_word() {
        for addr in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1"] {
            assert_eq!(check(addr, false, false, false), Some("neither TLS nor a token is configured"));
            assert_eq!(check(addr, true, false, false), Some("no token is configured"));
            assert_eq!(check(addr, false, true, false), Some("TLS is not configured"));
            assert_eq!(check(addr, true, true, false), None);
            assert_eq!(check(addr, false, false, true), None);
        }
    }
}
