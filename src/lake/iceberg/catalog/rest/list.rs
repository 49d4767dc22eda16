//! Which tables there are, and which of them have moved.
//!
//! The protocol lists names and no pointers. Each table is asked for with the tag
//! of its last answer: the catalog says "not modified", or gives the metadata with
//! the snapshots of references alone, of which only the location is read. A tag is
//! believed for this and nothing else: whatever acts on a table loads it afresh.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::StreamExt;
use hyper::Method;
use hyper::header::{ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use serde::Deserialize;

use super::LARGEST_METADATA;
use super::client::{Client, Went};
use super::config::Config;
use super::wire::Page;
use crate::lake::{Error, Pointer, Result};
use crate::model::ident::TableName;

/// Longest page of names.
const LARGEST_PAGE: usize = 16 << 20;
/// Requests at a time.
const AT_ONCE: usize = 8;
/// After this time no known table is asked for any more, in milliseconds: those
/// that were asked for longest ago come first in the next listing.
const BUDGET_MS: i64 = 20_000;
/// Pages of one list, and levels of namespaces: more is a server that goes in
/// circles.
const MOST_PAGES: usize = 10_000;
const DEEPEST: usize = 32;

/// What the last listings saw.
#[derive(Default)]
pub struct Listing {
    seen: Mutex<HashMap<TableName, Seen>>,
    /// The catalog has no namespaces below others.
    flat: AtomicBool,
}

#[derive(Clone)]
struct Seen {
    location: String,
    /// The tag of an answer with the snapshots of references alone.
    tag: Option<HeaderValue>,
    /// The tag of one with all. To many catalogs it is the same.
    whole: Option<HeaderValue>,
    checked_ms: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Namespaces {
    #[serde(default)]
    namespaces: Vec<Vec<String>>,
    next_page_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Tables {
    #[serde(default)]
    identifiers: Vec<Identifier>,
    next_page_token: Option<String>,
}

#[derive(Deserialize)]
struct Identifier {
    namespace: Vec<String>,
    name: String,
}

/// A table's answer, of which only the pointer counts.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Located {
    metadata_location: Option<String>,
}

/// What asking for one table came to.
enum Checked {
    At(Seen),
    Gone,
    /// It is listed but cannot be loaded; why.
    Failed(Error),
}

impl Listing {
    /// Every table with the pointer that it was last seen at.
    ///
    /// # Errors
    /// When names cannot be listed, or no table at all can be asked for.
    pub async fn run(&self, client: &Client, config: &Config) -> Result<Vec<Pointer>> {
        let begun = client.clock.now_ms();
        let mut names = self.names(client, config).await?;
        {
            let mut seen = self.seen();
            seen.retain(|name, _| names.contains(name));
            names.sort_by_cached_key(|name| (seen.get(name).map(|s| s.checked_ms), name.clone()));
        }
        let check = |name: TableName| async move {
            let known = self.seen().get(&name).cloned();
            let late = client.clock.now_ms().saturating_sub(begun) > BUDGET_MS;
            if late && known.is_some() {
                return Ok(());
            }
            self.check(client, config, &name, known).await
        };
        let wanted = names.len();
        let checked: Vec<Result<()>> = futures::stream::iter(names).map(check).buffer_unordered(AT_ONCE).collect().await;
        let mut failures: Vec<Error> = checked.into_iter().filter_map(Result::err).collect();
        if failures.len() == wanted
            && let Some(error) = failures.pop()
        {
            return Err(error);
        }
        let seen = self.seen();
        let mut pointers: Vec<_> =
            seen.iter().map(|(name, s)| Pointer { name: name.clone(), metadata_location: s.location.clone() }).collect();
        pointers.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(pointers)
    }

    /// With which tag to ask for all of a table that was last seen at this metadata
    /// location.
    pub fn tag(&self, name: &TableName, location: &str) -> Option<HeaderValue> {
        let seen = self.seen();
        let seen = seen.get(name).filter(|seen| seen.location == location)?;
        seen.whole.clone().or_else(|| seen.tag.clone())
    }

    /// Takes in what a look was answered, so that the next listing need not be told of
    /// it again.
    pub fn learn(&self, name: &TableName, location: &str, whole: Option<HeaderValue>, checked_ms: i64) {
        let mut seen = self.seen();
        let tag = seen.get(name).filter(|seen| seen.location == location).and_then(|seen| seen.tag.clone());
        seen.insert(name.clone(), Seen { location: location.to_owned(), tag, whole, checked_ms });
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<TableName, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for one table and remembers where it is. One that cannot be loaded
    /// keeps the pointer that it had.
    async fn check(&self, client: &Client, config: &Config, name: &TableName, known: Option<Seen>) -> Result<()> {
        match locate(client, config, name, known).await {
            Checked::At(seen) => drop(self.seen().insert(name.clone(), seen)),
            Checked::Gone => drop(self.seen().remove(name)),
            Checked::Failed(error) => {
                tracing::warn!(table = %name, %error, "the table is listed but cannot be loaded");
                return Err(error);
            }
        }
        Ok(())
    }

    /// Every table's name.
    async fn names(&self, client: &Client, config: &Config) -> Result<Vec<TableName>> {
        let mut names = Vec::new();
        let mut open = VecDeque::from([Vec::new()]);
        while let Some(parent) = open.pop_front() {
            for namespace in self.below(client, config, &parent).await? {
                names.extend(tables(client, config, &namespace).await?);
                if namespace.len() < DEEPEST && namespace.len() > parent.len() {
                    open.push_back(namespace);
                }
            }
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// The namespaces directly below one. A catalog that says no to the question
    /// has none below others, and is not asked again.
    async fn below(&self, client: &Client, config: &Config, parent: &[String]) -> Result<Vec<Vec<String>>> {
        if !parent.is_empty() && self.flat.load(Ordering::Relaxed) {
            return Ok(Vec::new());
        }
        let mut all = Vec::new();
        let mut token = String::new();
        for _ in 0..MOST_PAGES {
            let address = config.paths.namespaces(parent, &Page { token: &token, size: config.page_size });
            let page: Namespaces = match client.get(&address, LARGEST_PAGE).await {
                Ok(Some(page)) => page,
                Ok(None) => return Ok(all),
                Err(Error::Setup(why)) if !parent.is_empty() => {
                    tracing::debug!(catalog = client.name, why, "namespaces are not nested here");
                    self.flat.store(true, Ordering::Relaxed);
                    return Ok(Vec::new());
                }
                Err(error) => return Err(error),
            };
            all.extend(page.namespaces);
            match next(page.next_page_token, &token) {
                Some(next) => token = next,
                None => return Ok(all),
            }
        }
        Err(client.setup(&config.paths.namespaces(parent, &Page::default()), "the list of namespaces has no end".into()))
    }
}

/// The tables of one namespace; none when it was dropped meanwhile.
async fn tables(client: &Client, config: &Config, namespace: &[String]) -> Result<Vec<TableName>> {
    let mut all = Vec::new();
    let mut token = String::new();
    for _ in 0..MOST_PAGES {
        let address = config.paths.tables(namespace, &Page { token: &token, size: config.page_size });
        let Some(page) = client.get::<Tables>(&address, LARGEST_PAGE).await? else { return Ok(all) };
        let name = |id: Identifier| TableName { catalog: client.name.clone(), namespace: id.namespace, table: id.name };
        all.extend(page.identifiers.into_iter().map(name));
        match next(page.next_page_token, &token) {
            Some(next) => token = next,
            None => return Ok(all),
        }
    }
    Err(client.setup(&config.paths.tables(namespace, &Page::default()), "the list of tables has no end".into()))
}

/// The next page's token; none at the end, and none for a token that repeats.
fn next(token: Option<String>, last: &str) -> Option<String> {
    token.filter(|token| !token.is_empty() && token != last)
}

/// Where a table's metadata is now; `None` when there is no such table.
///
/// # Errors
/// Those of the client.
pub async fn location(client: &Client, config: &Config, name: &TableName) -> Result<Option<String>> {
    match locate(client, config, name, None).await {
        Checked::At(seen) => Ok(Some(seen.location)),
        Checked::Gone => Ok(None),
        Checked::Failed(error) => Err(error),
    }
}

async fn locate(client: &Client, config: &Config, name: &TableName, known: Option<Seen>) -> Checked {
    let mut extra = HeaderMap::new();
    if let Some(tag) = known.as_ref().and_then(|k| k.tag.clone().or_else(|| k.whole.clone())) {
        extra.insert(IF_NONE_MATCH, tag);
    }
    let address = config.paths.table_refs(name);
    let answered = match client.call(Method::GET, &address, Bytes::new(), extra, LARGEST_METADATA).await {
        Ok(Went::Answered(answered)) => answered,
        Ok(Went::Missing(_)) => return Checked::Gone,
        Err(error) => return Checked::Failed(error),
    };
    let checked_ms = client.clock.now_ms();
    if answered.status == 304 {
        return match known {
            Some(known) => Checked::At(Seen { checked_ms, ..known }),
            None => Checked::Failed(client.unreachable(&address, "304 without having been asked for changes".into())),
        };
    }
    match client.parse::<Located>(&address, &answered.body) {
        Ok(Located { metadata_location: Some(location) }) => {
            let whole = known.filter(|known| known.location == location).and_then(|known| known.whole);
            Checked::At(Seen { location, tag: answered.headers.get(ETAG).cloned(), whole, checked_ms })
        }
        Ok(_) => Checked::Failed(client.unreachable(&address, "the answer names no metadata location".into())),
        Err(error) => Checked::Failed(error),
    }
}
