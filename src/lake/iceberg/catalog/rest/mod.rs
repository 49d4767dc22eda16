//! The Iceberg REST catalog.
//!
//! `http` sends, `auth` says who we are, `client` reads and may ask again, `commit`
//! asks once, `answer` says what an answer proves, `list` finds what moved, `vend`
//! and `storage` reach a table's files by credentials that the catalog hands out.
//! No credential is ever in a log, an error or a `Debug` text.

pub mod answer;
mod auth;
mod client;
mod commit;
mod config;
mod create;
mod fence;
mod http;
mod list;
mod managed;
mod secret;
mod sigv4;
mod storage;
mod vend;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use hyper::header::{ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH};
use iceberg::io::FileIO;
use iceberg::spec::TableMetadata;
use iceberg::{TableRequirement, TableUpdate};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::OnceCell;

use self::auth::Auth;
use self::client::Client;
use self::config::Config;
use self::http::{Http, Patience};
use self::list::Listing;
use self::storage::Vendor;
use self::vend::{Given, Grants};
use super::{Answer, Catalog, Loaded, metadata_file};
use crate::lake::asserted::Asserted;
use crate::lake::clock::{Chance, Clock};
use crate::lake::iceberg::store;
use crate::lake::iceberg::table::glance::Glance;
use crate::lake::{Control, Error, Glanced, Pointer, Result};
use crate::model::ident::TableName;

/// Longest answer with a table's metadata, unpacked.
const LARGEST_METADATA: usize = 256 << 20;
/// Longest of all other answers.
const LARGEST: usize = 16 << 20;
const DELEGATION: HeaderName = HeaderName::from_static("x-iceberg-access-delegation");
/// The settings' own keys to a store: with them, none are asked of the catalog.
const OWN_KEYS: &[&str] =
    &["s3.access-key-id", "gcs.credentials-json", "gcs.oauth2.token", "adls.account-key", "adls.sas-token", "adls.client-secret"];

/// How to reach a REST catalog.
#[derive(Clone, Default)]
pub struct Options {
    /// The configured name.
    pub name: String,
    /// Its address, without `/v1`.
    pub uri: String,
    /// Which of its warehouses, where it has several.
    pub warehouse: Option<String>,
    /// Its and the stores' properties, by their Iceberg names.
    pub properties: BTreeMap<String, String>,
}

/// A catalog that speaks the Iceberg REST protocol.
pub struct RestCatalog {
    shared: Arc<Shared>,
    listing: Listing,
    /// Why the service may compact its tables by itself.
    managed: Option<String>,
}

/// What a catalog and the stores of its tables have in common.
struct Shared {
    client: Client,
    uri: String,
    warehouse: Option<String>,
    properties: BTreeMap<String, String>,
    config: OnceCell<Config>,
}

/// The answer to a load.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct LoadAnswer<'a> {
    metadata_location: Option<String>,
    #[serde(borrow)]
    metadata: &'a RawValue,
    #[serde(default)]
    config: BTreeMap<String, String>,
    #[serde(default)]
    storage_credentials: Vec<Given>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct CredentialsAnswer {
    #[serde(default)]
    storage_credentials: Vec<Given>,
}

impl RestCatalog {
    /// Prepares access to a catalog, which is not contacted yet.
    ///
    /// # Errors
    /// [`Error::Setup`] for properties that cannot work.
    pub fn open(options: Options, clock: Arc<dyn Clock>, chance: Arc<dyn Chance>) -> Result<Self> {
        let setup = |why: String| Error::Setup(format!("catalog `{}`: {why}", options.name));
        http::request(hyper::Method::GET, &options.uri, Default::default()).map_err(|why| setup(format!("uri: {why}")))?;
        let http = Http::new(Patience::of(&options.properties)).map_err(setup)?;
        let auth = Auth::open(&options.uri, &options.properties, &http, Arc::clone(&clock)).map_err(setup)?;
        let mut headers = client::headers(&options.properties).map_err(setup)?;
        if !OWN_KEYS.iter().any(|key| options.properties.contains_key(*key)) {
            headers.entry(DELEGATION).or_insert(HeaderValue::from_static("vended-credentials"));
        }
        let managed = managed::service(&options.name, &options.uri, &options.properties);
        let client = Client { name: options.name, clock, chance, http, auth, headers };
        let shared =
            Shared { client, uri: options.uri, warehouse: options.warehouse, properties: options.properties, config: OnceCell::new() };
        Ok(Self { shared: Arc::new(shared), listing: Listing::default(), managed })
    }
}

impl Shared {
    /// What the catalog told at the first use.
    async fn config(&self) -> Result<&Config> {
        self.config.get_or_try_init(|| self.ask_config()).await
    }

    async fn ask_config(&self) -> Result<Config> {
        let address = wire::config(&self.uri, self.warehouse.as_deref());
        let answer = match self.client.call(hyper::Method::GET, &address, Default::default(), Default::default(), LARGEST).await? {
            client::Went::Answered(answered) => self.client.parse(&address, &answered.body)?,
            client::Went::Missing(why) => return Err(self.client.setup(&address, why)),
        };
        let config = Config::merge(&self.uri, &self.properties, answer);
        if let Some(elsewhere) = &config.elsewhere {
            let catalog = &self.client.name;
            tracing::warn!(catalog, elsewhere, "the catalog sends its clients elsewhere, which is not followed: credentials stay with uri");
        }
        Ok(config)
    }

    /// A table's answer, read.
    fn read(self: &Arc<Self>, config: &Config, name: &TableName, address: &str, body: &[u8]) -> Result<Loaded> {
        let answer: LoadAnswer<'_> = self.parse(address, body)?;
        let location = self.location(&answer, address)?.to_owned();
        let metadata = metadata_file::decode(answer.metadata.get().as_bytes(), &location)?;
        let io = self.files(config, name, address, &answer, metadata.uuid())?;
        Ok(Loaded { name: name.clone(), metadata_location: location, metadata: Arc::new(metadata), io, fence: None })
    }

    fn parse<'a>(&self, address: &str, body: &'a [u8]) -> Result<LoadAnswer<'a>> {
        serde_json::from_slice(body).map_err(|e| self.client.unreachable(address, format!("the answer cannot be read: {e}")))
    }

    fn location<'a>(&self, answer: &'a LoadAnswer<'_>, address: &str) -> Result<&'a str> {
        let location = answer.metadata_location.as_deref();
        location.ok_or_else(|| self.client.unreachable(address, "the answer names no metadata location".into()))
    }

    /// Access to the files of a table, as its answer gives it.
    fn files(
        self: &Arc<Self>,
        config: &Config,
        name: &TableName,
        address: &str,
        answer: &LoadAnswer<'_>,
        uuid: uuid::Uuid,
    ) -> Result<FileIO> {
        let grants =
            Grants::of(&config.properties, &answer.config, &answer.storage_credentials).map_err(|why| self.client.setup(address, why))?;
        Ok(match grants {
            Some(grants) => self.vended(grants, name, uuid),
            None => store::file_io(&vend::stores(&config.properties, &answer.config)),
        })
    }

    fn vended(self: &Arc<Self>, grants: Grants, name: &TableName, uuid: uuid::Uuid) -> FileIO {
        let vendor = TableVendor { shared: Arc::clone(self), name: name.clone(), uuid };
        storage::file_io(grants, Arc::new(vendor), Arc::clone(&self.client.clock))
    }
}

/// Asks for the credentials of one table again.
struct TableVendor {
    shared: Arc<Shared>,
    name: TableName,
    uuid: uuid::Uuid,
}

#[async_trait]
impl Vendor for TableVendor {
    async fn grants(&self) -> Result<Grants> {
        let (shared, name) = (&self.shared, &self.name);
        let config = shared.config().await?;
        let nothing = || Error::Setup(format!("catalog `{}`: no credentials for {name} any more", shared.client.name));
        if config.has_credentials() {
            let address = config.paths.credentials(name);
            let answer: CredentialsAnswer = shared.client.get(&address, LARGEST).await?.ok_or_else(nothing)?;
            let grants = Grants::of(&config.properties, &BTreeMap::new(), &answer.storage_credentials);
            if let Some(grants) = grants.map_err(|why| shared.client.setup(&address, why))? {
                return Ok(grants);
            }
        }
        let address = config.paths.table(name);
        let went = shared.client.call(hyper::Method::GET, &address, Default::default(), Default::default(), LARGEST_METADATA).await?;
        let client::Went::Answered(answered) = went else { return Err(nothing()) };
        let answer: LoadAnswer<'_> = serde_json::from_slice(&answered.body)
            .map_err(|e| shared.client.unreachable(&address, format!("the answer cannot be read: {e}")))?;
        let metadata = metadata_file::decode(answer.metadata.get().as_bytes(), &address)?;
        if metadata.uuid() != self.uuid {
            return Err(Error::Setup(format!("{name} is another table now")));
        }
        let grants = Grants::of(&config.properties, &answer.config, &answer.storage_credentials);
        grants.map_err(|why| shared.client.setup(&address, why))?.ok_or_else(nothing)
    }
}

#[async_trait]
impl Catalog for RestCatalog {
    fn name(&self) -> &str {
        &self.shared.client.name
    }

    fn may_compact(&self) -> Option<&str> {
        self.managed.as_deref()
    }

    async fn fence(&self, name: &TableName, asserted: &str) -> Result<bool> {
        let Some(head) = Asserted::parse(asserted).head else { return Ok(false) };
        let Some(table) = self.load(name).await? else { return Ok(false) };
        fence::fence(&self.shared.client, self.shared.config().await?, &table, &head).await
    }

    async fn list(&self) -> Result<Vec<Pointer>> {
        self.listing.run(&self.shared.client, self.shared.config().await?).await
    }

    async fn load(&self, name: &TableName) -> Result<Option<Loaded>> {
        let config = self.shared.config().await?;
        let address = config.paths.table(name);
        let client = &self.shared.client;
        match client.call(hyper::Method::GET, &address, Default::default(), Default::default(), LARGEST_METADATA).await? {
            client::Went::Answered(answered) => self.shared.read(config, name, &address, &answered.body).map(Some),
            client::Went::Missing(_) => Ok(None),
        }
    }

    /// A table that still stands at `known` is not sent again by a catalog that gives
    /// tags, and not decoded where it is sent.
    async fn glance_since(&self, name: &TableName, reference: &str, known: Option<&str>) -> Result<Glanced<Glance>> {
        let config = self.shared.config().await?;
        let address = config.paths.table(name);
        let client = &self.shared.client;
        let mut extra = HeaderMap::new();
        if let Some(tag) = known.and_then(|known| self.listing.tag(name, known)) {
            extra.insert(IF_NONE_MATCH, tag);
        }
        let asked = !extra.is_empty();
        let answered = match client.call(hyper::Method::GET, &address, Default::default(), extra, LARGEST_METADATA).await? {
            client::Went::Answered(answered) => answered,
            client::Went::Missing(_) => return Ok(Glanced::Gone),
        };
        if answered.status == 304 {
            let unasked = || client.unreachable(&address, "304 without having been asked for changes".into());
            return if asked { Ok(Glanced::Same) } else { Err(unasked()) };
        }
        let answer = self.shared.parse(&address, &answered.body)?;
        let location = self.shared.location(&answer, &address)?;
        self.listing.learn(name, location, answered.headers.get(ETAG).cloned(), client.clock.now_ms());
        if known == Some(location) {
            return Ok(Glanced::Same);
        }
        let slim = metadata_file::decode_slim(answer.metadata.get().as_bytes(), location)?;
        let io = self.shared.files(config, name, &address, &answer, slim.uuid())?;
        Ok(Glanced::At(Glance::of_slim(slim, &io, name, location, reference).under(self.may_compact())))
    }

    async fn commit(
        &self,
        base: &Loaded,
        requirements: Vec<TableRequirement>,
        updates: Vec<TableUpdate>,
        control: &dyn Control,
    ) -> Result<Answer> {
        let config = self.shared.config().await?;
        commit::commit(&self.shared.client, config, base, &requirements, &updates, control).await
    }

    async fn create(&self, name: &TableName, metadata: TableMetadata) -> Result<Loaded> {
        let config = self.shared.config().await?;
        if self.load(name).await?.is_some() {
            return Err(Error::Setup(format!("create {name}: the table exists")));
        }
        create::create(&self.shared.client, config, name, &metadata).await?;
        self.load(name).await?.ok_or_else(|| Error::Setup(format!("create {name}: the table was dropped at once")))
    }
}
