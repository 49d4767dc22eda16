//! The clients of one table: which of them may be at a statement that will commit.
//!
//! A statement loads its table, works, and commits. What it does in between does not
//! show, so all of this is an estimate: a client that has loaded the table, and is known
//! to write or not yet known, is taken to be writing until it commits, or until twice
//! the time that it took last.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use hyper::header::{self, HeaderMap};

/// Tells clients apart: by address, credentials and name. Two that share all three are
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientId(u64);

impl ClientId {
    /// Of a request. Nothing of its credentials is kept but this hash.
    pub fn of(peer: IpAddr, headers: &HeaderMap) -> Self {
        let mut hasher = DefaultHasher::new();
        peer.to_canonical().hash(&mut hasher);
        for name in [header::AUTHORIZATION, header::USER_AGENT] {
            headers.get(name).map(header::HeaderValue::as_bytes).hash(&mut hasher);
        }
        Self(hasher.finish())
    }

    /// With a number of its own, where there is no request.
    pub fn numbered(number: u64) -> Self {
        Self(number)
    }
}

/// A client that was never seen to commit is taken to be writing for so long after a load.
const FIRST_MS: i64 = 30_000;
/// One that was is, for twice the time that it took last, within these bounds.
const PATIENCE_MS: (i64, i64) = (10_000, 600_000);
/// One that has just committed may go on to its next statement: it is waited for that long.
const BREATH_MS: i64 = 1_500;
/// After so many times in vain a client that never committed is taken for a reader.
const READER: u32 = 3;
/// And one that has committed is taken for one that only reads by now.
const RESTED: u32 = 20;
/// Clients that are kept of one table.
const MOST: usize = 64;

/// What is known of the clients of one table.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    of: BTreeMap<ClientId, Client>,
    harmed: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Client {
    /// The first load since its last commit, or since it was last waited for in vain.
    since_ms: Option<i64>,
    /// Its last load.
    loaded_ms: i64,
    /// How long it took from load to commit, of late, where that did more than append.
    took_ms: Option<i64>,
    /// Until when it may go on at once after a commit that did more than append.
    breathes_until_ms: Option<i64>,
    /// How often it was waited for in vain since its last commit.
    idle: u32,
    /// A rewrite of ours landed while it may have been writing.
    suspected: bool,
}

impl Client {
    fn patience_ms(&self) -> i64 {
        self.took_ms.map_or(FIRST_MS, |took| took.saturating_mul(2).clamp(PATIENCE_MS.0, PATIENCE_MS.1))
    }

    fn may_write(&self) -> bool {
        self.idle < if self.took_ms.is_some() { RESTED } else { READER }
    }

    /// Until when it may be writing, having loaded the table.
    fn until_ms(&self) -> Option<i64> {
        self.since_ms.filter(|_| self.may_write()).map(|_| self.loaded_ms.saturating_add(self.patience_ms()))
    }

    fn busy_until_ms(&self) -> Option<i64> {
        self.until_ms().max(self.breathes_until_ms)
    }

    /// Ends a wait in vain; whether a rewrite of ours may be why.
    fn settle(&mut self, now_ms: i64) -> bool {
        let over = |since: i64| now_ms.saturating_sub(since) > self.patience_ms();
        let (Some(since), false) = (self.since_ms, over(self.loaded_ms)) else {
            let waited = self.since_ms.take().is_some();
            self.idle = self.idle.saturating_add(u32::from(waited));
            return waited && std::mem::take(&mut self.suspected);
        };
        // one that loads again and again is waited for once
        if over(since) {
            self.idle = self.idle.saturating_add(1);
            self.since_ms = Some(self.loaded_ms);
        }
        false
    }
}

impl Clients {
    /// A client loads the table.
    pub fn loads(&mut self, id: ClientId, now_ms: i64) {
        self.settle(now_ms);
        if self.of.len() >= MOST && !self.of.contains_key(&id) {
            let stalest = self.of.iter().min_by_key(|(_, client)| client.loaded_ms).map(|(id, _)| *id);
            if let Some(id) = stalest {
                self.of.remove(&id);
            }
        }
        let client = self.of.entry(id).or_default();
        client.since_ms.get_or_insert(now_ms);
        client.loaded_ms = client.loaded_ms.max(now_ms);
    }

    /// Its commit to the table landed; one that `appends` says nothing of how long its
    /// other statements take.
    pub fn commits(&mut self, id: ClientId, appends: bool, now_ms: i64) {
        let Some(client) = self.of.get_mut(&id) else { return };
        client.breathes_until_ms = (!appends).then(|| now_ms.saturating_add(BREATH_MS));
        if let Some(since) = client.since_ms.take().filter(|_| !appends) {
            let took = now_ms.saturating_sub(since).max(0);
            // the longest of late, forgotten by a quarter each time
            client.took_ms = Some(client.took_ms.map_or(took, |before| took.max(before / 4 * 3)));
        }
        (client.idle, client.suspected) = (0, false);
    }

    /// Until when any client may be writing; `None` when none may.
    pub fn busy_until_ms(&self, now_ms: i64) -> Option<i64> {
        self.of.values().filter_map(Client::busy_until_ms).max().filter(|until| *until > now_ms)
    }

    /// A rewrite of ours landed: those who may be writing may fail for it. Gives back
    /// whether there is one that is known to write.
    pub fn replaced(&mut self, now_ms: i64) -> bool {
        let mut any = false;
        for client in self.of.values_mut().filter(|c| c.took_ms.is_some() && c.until_ms().is_some_and(|until| until > now_ms)) {
            (client.suspected, any) = (true, true);
        }
        any
    }

    /// Ends the waits that were in vain. Gives back how many statements were found that
    /// our rewrites may have made fail.
    pub fn settle(&mut self, now_ms: i64) -> u64 {
        let found = self.of.values_mut().filter_map(|client| client.settle(now_ms).then_some(1)).sum();
        self.harmed = self.harmed.saturating_add(found);
        found
    }

    /// Whether a client is yet to show whether a rewrite of ours made it fail.
    pub fn suspects_any(&self) -> bool {
        self.of.values().any(|client| client.suspected)
    }

    /// Statements that our rewrites may have made fail: an estimate.
    pub fn harmed(&self) -> u64 {
        self.harmed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);

    #[test]
    fn a_client_that_loads_is_waited_for_until_it_commits() {
        let mut clients = Clients::default();
        assert_eq!(clients.busy_until_ms(0), None);
        clients.loads(A, 1_000);
        assert_eq!(clients.busy_until_ms(1_000), Some(31_000));
        clients.loads(A, 9_000);
        clients.commits(A, false, 11_000);
        assert_eq!((clients.busy_until_ms(11_000), clients.busy_until_ms(12_500)), (Some(12_500), None));
        // it took ten seconds from its first load
        clients.loads(A, 20_000);
        assert_eq!(clients.busy_until_ms(20_000), Some(40_000));
        clients.loads(B, 21_000);
        assert_eq!(clients.busy_until_ms(30_000), Some(51_000));
        assert_eq!(clients.busy_until_ms(51_000), None);
    }

    #[test]
    fn an_append_ends_the_waiting_and_teaches_nothing() {
        let mut clients = Clients::default();
        clients.loads(A, 0);
        clients.commits(A, true, 100);
        assert_eq!(clients.busy_until_ms(100), None);
        clients.loads(A, 1_000);
        assert_eq!(clients.busy_until_ms(1_000), Some(31_000));
        assert!(!clients.replaced(2_000));
    }

    #[test]
    fn one_that_never_commits_is_taken_for_a_reader() {
        let mut clients = Clients::default();
        for second in 0..200 {
            clients.loads(A, second * 1_000);
        }
        assert_eq!(clients.busy_until_ms(200_000), None);
        clients.commits(A, false, 200_500);
        clients.loads(A, 300_000);
        assert!(clients.busy_until_ms(300_000).is_some());
    }

    #[test]
    fn one_that_comes_seldom_is_taken_for_a_reader_too() {
        let mut clients = Clients::default();
        let waits: Vec<bool> = (0..5)
            .map(|hour| hour * 3_600_000)
            .map(|at| {
                clients.loads(A, at);
                clients.busy_until_ms(at).is_some()
            })
            .collect();
        assert_eq!(waits, [true, true, true, false, false]);
    }

    #[test]
    fn what_a_client_took_is_forgotten_slowly() {
        let mut clients = Clients::default();
        let mut patience_after = |took: i64, at: i64| {
            clients.loads(A, at);
            clients.commits(A, false, at + took);
            clients.of[&A].patience_ms()
        };
        assert_eq!(patience_after(40_000, 0), 80_000);
        assert_eq!(patience_after(1_000, 100_000), 60_000);
        assert_eq!(patience_after(100, 200_000), 45_000);
        assert_eq!(patience_after(1_000_000, 300_000), 600_000);
        assert_eq!((0..20).map(|n| patience_after(10, 2_000_000 + n * 1_000)).last(), Some(10_000));
    }

    #[test]
    fn a_writer_that_commits_nothing_after_our_rewrite_is_counted() {
        let mut clients = Clients::default();
        clients.loads(A, 0);
        clients.commits(A, false, 10_000);
        // a reader, and a writer that has committed, are no suspects
        clients.loads(B, 11_000);
        assert!(!clients.replaced(12_000));
        clients.loads(A, 20_000);
        assert!(clients.replaced(21_000) && clients.suspects_any());
        clients.commits(A, false, 25_000);
        assert_eq!((clients.settle(200_000), clients.harmed(), clients.suspects_any()), (0, 0, false));

        clients.loads(A, 300_000);
        assert!(clients.replaced(301_000));
        assert_eq!(clients.settle(310_000), 0);
        assert_eq!((clients.settle(330_000), clients.harmed()), (1, 1));
        assert_eq!((clients.settle(400_000), clients.harmed()), (0, 1));
    }

    #[test]
    fn the_stalest_client_makes_room() {
        let mut clients = Clients::default();
        for number in 0..200 {
            clients.loads(ClientId(number), i64::try_from(number).unwrap());
        }
        assert_eq!(clients.of.len(), MOST);
        assert!(clients.of.contains_key(&ClientId(199)) && !clients.of.contains_key(&ClientId(0)));
    }

    #[test]
    fn clients_are_told_apart_by_address_credentials_and_name() {
        let headers = |token: &str, agent: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, token.parse().unwrap());
            headers.insert(header::USER_AGENT, agent.parse().unwrap());
            headers
        };
        let at = |host: u8, token: &str, agent: &str| ClientId::of(IpAddr::from([10, 0, 0, host]), &headers(token, agent));
        let all = [at(1, "a", "x"), at(2, "a", "x"), at(1, "b", "x"), at(1, "a", "y")];
        assert!(all.iter().enumerate().all(|(i, a)| all[i + 1..].iter().all(|b| a != b)));
        assert_eq!(at(1, "a", "x"), at(1, "a", "x"));
    }
}
