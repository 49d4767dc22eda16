//! Loading and listing: pages, tags, retries, credentials, bounds.

use std::sync::Arc;
use std::time::Duration;

use afterwrite::lake::iceberg::catalog::Catalog;
use afterwrite::lake::iceberg::catalog::memory::MemoryCatalog;
use afterwrite::lake::iceberg::store::file_io;
use afterwrite::lake::{Error, Glanced, Table as _};
use afterwrite::model::ident::TableName;
use afterwrite::model::refusal::Refusal;
use serde_json::json;

use super::{World, client};
use crate::catalog::metadata;
use crate::fixture::rest::{Asked, Reply, RestServer, Work};
use crate::fixture::{Spec, Table, row};

fn is_load(asked: &Asked) -> bool {
    asked.method == "GET" && asked.target.contains("/tables/")
}

fn name(namespace: &[&str], table: &str) -> TableName {
    TableName { catalog: "lake".into(), namespace: namespace.iter().map(|s| (*s).into()).collect(), table: table.into() }
}

/// Tables in namespaces on several levels, and a server of them.
async fn many() -> (MemoryCatalog, RestServer) {
    let catalog = MemoryCatalog::new("lake", file_io(&Default::default()));
    for (namespace, table) in [
        (&["a"][..], "t1"),
        (&["a"], "t2"),
        (&["a"], "t3"),
        (&["a", "b"], "t"),
        (&["a", "b", "c d"], "x y"),
        (&["e"], "100%"),
        (&["f"], "ü+/?#"),
    ] {
        let location = format!("memory://w/{}", table.len() + namespace.len() * 100);
        catalog.create(&name(namespace, table), metadata(&location, &[])).await.unwrap();
    }
    let server = RestServer::start(Arc::new(catalog.clone())).await;
    (catalog, server)
}

#[tokio::test]
async fn h101_every_table_is_listed_and_loaded_whatever_its_name() {
    let (catalog, server) = many().await;
    let rest = client(&server.url, &[]);
    assert_eq!(rest.list().await.unwrap(), catalog.list().await.unwrap());
    for pointer in catalog.list().await.unwrap() {
        let loaded = rest.load(&pointer.name).await.unwrap().unwrap();
        assert_eq!((loaded.name, loaded.metadata_location), (pointer.name, pointer.metadata_location));
    }
    assert!(rest.load(&name(&["a"], "none")).await.unwrap().is_none());
}

#[tokio::test]
async fn a_listing_asks_for_changes_only_and_sees_moves_new_tables_and_drops() {
    let (catalog, server) = many().await;
    let rest = client(&server.url, &[]);
    rest.list().await.unwrap();
    server.forget();
    assert_eq!(rest.list().await.unwrap(), catalog.list().await.unwrap());
    let loads: Vec<_> = server.asked().into_iter().filter(is_load).collect();
    assert_eq!(loads.len(), 7);
    assert!(loads.iter().all(|a| a.headers.contains_key("if-none-match") && a.target.ends_with("?snapshots=refs")));

    let moved = name(&["a"], "t2");
    let base = catalog.load(&moved).await.unwrap().unwrap();
    let _ = catalog.commit(&base, vec![], crate::catalog::set("k", "v"), &crate::catalog::Recorder::default()).await.unwrap();
    catalog.drop_table(&name(&["a"], "t1"));
    catalog.create(&name(&["new"], "t"), metadata("memory://w/new", &[])).await.unwrap();
    let listed = rest.list().await.unwrap();
    assert_eq!(listed, catalog.list().await.unwrap());
    assert!(listed.iter().any(|p| p.name == moved && p.metadata_location != base.metadata_location));
}

#[tokio::test]
async fn a_table_that_cannot_be_loaded_does_not_hide_the_others() {
    let (catalog, server) = many().await;
    let rest = client(&server.url, &[]);
    let is_t2: fn(&Asked) -> bool = |asked| asked.target.contains("/tables/t2");
    server.fail(is_t2, Work::NotDone, Reply::error(403, "ForbiddenException"));
    assert_eq!(rest.list().await.unwrap().len(), 6);
    assert_eq!(rest.list().await.unwrap(), catalog.list().await.unwrap());
    // once seen it keeps its pointer
    server.fail(is_t2, Work::NotDone, Reply::error(403, "ForbiddenException"));
    assert_eq!(rest.list().await.unwrap(), catalog.list().await.unwrap());
}

#[tokio::test]
async fn a_catalog_without_nested_namespaces_is_asked_about_them_once() {
    let catalog = MemoryCatalog::new("lake", file_io(&Default::default()));
    for namespace in ["a", "b", "c"] {
        catalog.create(&name(&[namespace], "t"), metadata(&format!("memory://w/{namespace}"), &[])).await.unwrap();
    }
    let server = RestServer::start(Arc::new(catalog.clone())).await;
    let rest = client(&server.url, &[]);
    let nested: fn(&Asked) -> bool = |asked| asked.target.contains("parent=");
    for _ in 0..2 {
        server.fail(nested, Work::NotDone, Reply::error(400, "BadRequestException"));
        assert_eq!(rest.list().await.unwrap().len(), 3);
    }
    assert_eq!(server.asked().into_iter().filter(nested).count(), 1);
}

#[tokio::test]
async fn a_read_is_asked_again_after_a_fault_and_when_the_catalog_says_so() {
    let world = World::new().await;
    for reply in [
        Reply::error(503, ""),
        Reply::Drop,
        Reply::Cut(10),
        Reply::Status(429, String::new(), vec![("Retry-After", "1".into())]),
        Reply::Status(404, "<html>no such host</html>".into(), vec![]),
    ] {
        world.server.forget();
        world.server.fail(is_load, Work::NotDone, reply.clone());
        world.load().await;
        assert_eq!(world.server.asked().len(), 2 + usize::from(world.server.asked()[0].target.contains("config")), "{reply:?}");
    }
}

#[tokio::test]
async fn a_catalog_that_asks_for_a_long_pause_is_left_alone() {
    let world = World::new().await;
    world.load().await;
    world.server.forget();
    world.server.fail(is_load, Work::NotDone, Reply::Status(429, String::new(), vec![("Retry-After", "3600".into())]));
    let error = world.client.load(&world.table.name).await.err().unwrap();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert_eq!(world.server.asked().len(), 1);
}

#[tokio::test]
async fn a_table_is_not_taken_for_gone_unless_the_catalog_itself_says_so() {
    let world = World::new().await;
    for _ in 0..4 {
        world.server.fail(is_load, Work::NotDone, Reply::Status(404, "<html>".into(), vec![]));
    }
    assert!(matches!(world.client.load(&world.table.name).await, Err(Error::Unreachable { .. })));
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_credentials_stay() {
    let elsewhere = RestServer::start(Arc::new(MemoryCatalog::new("other", file_io(&Default::default())))).await;
    let world = World::with(&[("token", "s3cr3t")]).await;
    world.load().await;
    world.server.fail(is_load, Work::NotDone, Reply::Status(302, String::new(), vec![("Location", format!("{}/x?k=1", elsewhere.url))]));
    let error = world.client.load(&world.table.name).await.err().unwrap().to_string();
    assert!(error.contains(&elsewhere.url) && !error.contains("k=1") && !error.contains("s3cr3t"), "{error}");
    assert_eq!(elsewhere.asked().len(), 0);
}

#[tokio::test]
async fn h102_the_catalog_does_not_send_us_elsewhere() {
    let elsewhere = RestServer::start(Arc::new(MemoryCatalog::new("other", file_io(&Default::default())))).await;
    let world = World::with(&[("credential", "id:s3cr3t")]).await;
    world.server.set_config(json!({ "overrides": { "uri": elsewhere.url, "oauth2-server-uri": elsewhere.url } }));
    world.load().await;
    assert_eq!(elsewhere.asked().len(), 0);
    assert_eq!(world.server.asked().last().unwrap().headers["authorization"], "Bearer t1");
}

#[tokio::test]
async fn prefix_headers_and_warehouse_are_sent() {
    let world = World::new().await;
    let options = afterwrite::lake::iceberg::catalog::rest::Options {
        name: "lake".into(),
        uri: format!("{}/", world.server.url),
        warehouse: Some("w h".into()),
        properties: [("header.X-Realm".to_owned(), "r".to_owned())].into(),
    };
    let clock = Arc::new(afterwrite::lake::clock::SystemClock);
    let rest = afterwrite::lake::iceberg::catalog::rest::RestCatalog::open(options, clock, crate::catalog::chance()).unwrap();
    world.server.set_config(json!({ "overrides": { "prefix": "a%7Cb" } }));
    assert!(rest.load(&world.table.name).await.unwrap_or(None).is_none(), "the server has no prefixes");
    let asked = world.server.asked();
    assert_eq!(asked[0].target, "/v1/config?warehouse=w%20h");
    assert_eq!(asked[1].target, "/v1/a%7Cb/namespaces/ns/tables/t");
    assert_eq!(asked[1].headers["x-realm"], "r");
    assert_eq!(asked[1].headers["x-iceberg-access-delegation"], "vended-credentials");
}

#[tokio::test]
async fn a_token_is_had_once_and_again_when_it_is_refused() {
    let world = World::with(&[("credential", "id:secret")]).await;
    world.load().await;
    world.load().await;
    world.server.fail(is_load, Work::NotDone, Reply::error(419, "AuthenticationTimeoutException"));
    world.load().await;
    let tokens: Vec<_> = world.server.asked().into_iter().filter(|a| a.target.contains("oauth")).collect();
    assert_eq!(tokens.len(), 2);
    assert_eq!(tokens[0].body, "grant_type=client_credentials&client_id=id&client_secret=secret&scope=catalog");
}

#[tokio::test]
async fn a_token_that_ends_soon_is_renewed_before_it_does() {
    let world = World::with(&[("credential", "id:secret")]).await;
    let is_token: fn(&Asked) -> bool = |asked| asked.target.contains("oauth");
    let brief = json!({ "access_token": "brief", "token_type": "bearer", "expires_in": 1 }).to_string();
    world.server.fail(is_token, Work::NotDone, Reply::Status(200, brief, vec![]));
    world.load().await;
    tokio::time::sleep(Duration::from_millis(800)).await;
    world.load().await;
    let used: Vec<_> = world.server.asked().into_iter().filter(|a| !is_token(a)).map(|a| a.headers["authorization"].clone()).collect();
    assert_eq!(used, ["Bearer brief", "Bearer brief", "Bearer t1"]);
}

#[tokio::test]
async fn a_wrong_credential_is_told_without_being_shown() {
    let world = World::with(&[("credential", "id:s3cr3t")]).await;
    let denied = json!({ "error": "invalid_client", "error_description": "bad secret" }).to_string();
    world.server.fail(|a| a.target.contains("oauth"), Work::NotDone, Reply::Status(401, denied, vec![]));
    let error = world.client.load(&world.table.name).await.err().unwrap();
    assert!(matches!(&error, Error::Setup(why) if why.contains("invalid_client: bad secret") && !why.contains("s3cr3t")), "{error:?}");
}

#[tokio::test]
async fn a_packed_load_is_read_and_a_load_is_always_fresh() {
    let world = World::new().await;
    world.server.fail(is_load, Work::Done, Reply::Gzip);
    let before = world.load().await.view;
    world.table.append([row(1, "a", 0)]).await;
    let after = world.load().await.view;
    assert_ne!((before.head, before.metadata_location), (after.head, after.metadata_location));
    assert!(world.server.asked().iter().all(|a| !a.headers.contains_key("if-none-match")));
}

#[tokio::test]
async fn an_answer_without_end_is_given_up() {
    let world = World::with(&[("rest.client.socket-timeout-ms", "100")]).await;
    world.load().await;
    for _ in 0..4 {
        world.server.fail(is_load, Work::Done, Reply::Slow(Duration::from_secs(30)));
    }
    let error = world.client.load(&world.table.name).await.err().unwrap().to_string();
    assert!(error.contains("no answer within 100 ms"), "{error}");
}

/// Signs a request again as AWS's own signer does, at the time that it names.
const SIGN: &str = r#"
import json, sys
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
import botocore.auth, datetime
asked = json.loads(sys.argv[1])
when = asked["headers"]["x-amz-date"]
class Then(datetime.datetime):
    @classmethod
    def utcnow(cls): return cls.strptime(when, "%Y%m%dT%H%M%SZ")
botocore.auth.get_current_datetime = lambda remove_tzinfo=True: Then.utcnow()
signed = asked["headers"]["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
headers = {k: v for k, v in asked["headers"].items() if k in signed and k not in ("x-amz-date", "host")}
request = AWSRequest(method=asked["method"], url=asked["url"], headers=headers, data=asked["body"].encode())
class Auth(SigV4Auth):
    def headers_to_sign(self, request):
        chosen = super().headers_to_sign(request)
        for name in set(chosen.keys()) - set(signed): del chosen[name]
        return chosen
Auth(Credentials("AKID", "s3cr3t", asked["session"]), asked["service"], "eu-west-1").add_auth(request)
print(request.headers["Authorization"])
"#;

#[tokio::test]
async fn a_signature_is_the_one_that_awss_own_signer_makes() {
    let Some(python) = crate::catalog::service("AFTERWRITE_TEST_PYICEBERG", "pyiceberg") else { return };
    let (_, server) = many().await;
    let properties = [
        ("rest.sigv4-enabled", "true"),
        ("rest.signing-name", "s3tables"),
        ("rest.signing-region", "eu-west-1"),
        ("rest.access-key-id", "AKID"),
        ("rest.secret-access-key", "s3cr3t"),
        ("rest.session-token", "session"),
        ("prefix", "arn%3Aaws%3As3tables%3Aeu-west-1%3A1%3Abucket%2Fb"),
    ];
    let rest = client(&server.url, &properties);
    let _ = rest.load(&name(&["a", "b c"], "x+y")).await;
    let _ = rest.list().await;
    let asked = server.asked();
    assert!(asked.len() >= 3, "{asked:?}");
    for asked in asked {
        let request = json!({ "method": asked.method, "url": format!("{}{}", server.url, asked.target), "headers": asked.headers,
            "body": asked.body, "service": "s3tables", "session": "session" });
        let run = std::process::Command::new(&python).arg("-c").arg(SIGN).arg(request.to_string()).output().unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        assert_eq!(String::from_utf8_lossy(&run.stdout).trim(), asked.headers["authorization"], "{}", asked.target);
    }
}

#[tokio::test]
async fn a_table_in_glue_is_refused_until_its_owner_says_that_no_optimizer_compacts_it() {
    let glue = [
        ("rest.sigv4-enabled", "true"),
        ("rest.signing-name", "glue"),
        ("rest.signing-region", "eu-west-1"),
        ("rest.access-key-id", "AKID"),
        ("rest.secret-access-key", "s3cr3t"),
    ];
    let told = async |properties: &[(&str, &str)], spec: Spec| {
        let world = World::of(spec.on_disk().create().await, properties).await;
        let name = &world.table.name;
        let Glanced::At(look) = world.client.glance_since(name, "main", None).await.unwrap() else { panic!("no table") };
        let whole = world.load().await.view.refused;
        assert_eq!(look.view().refused, whole, "a look and a load are refused alike");
        whole.into_iter().map(|r| (r.refusal, r.detail.contains("is AWS Glue"))).collect::<Vec<_>>()
    };
    assert_eq!(told(&glue, Table::plain()).await, [(Refusal::ManagedCompaction, true)]);
    assert_eq!(told(&glue, Table::plain().property("afterwrite.managed-compaction", "off")).await, []);
    assert_eq!(told(&[&glue[..], &[("afterwrite.managed-compaction", "off")]].concat(), Table::plain()).await, []);
    assert_eq!(told(&[], Table::plain()).await, []);
}

#[tokio::test]
async fn a_look_at_a_table_that_stands_still_is_sent_nothing() {
    let world = World::new().await;
    let name = &world.table.name;
    let Glanced::At(table) = world.client.glance_since(name, "main", None).await.unwrap() else { panic!("no table") };
    let at = table.view().metadata_location.clone();
    world.server.forget();
    assert!(matches!(world.client.glance_since(name, "main", Some(&at)).await.unwrap(), Glanced::Same));
    let asked: Vec<_> = world.server.asked().into_iter().filter(is_load).collect();
    let tag = asked[0].headers["if-none-match"].clone();
    assert_eq!((asked.len(), tag.contains(&at)), (1, true));
    // it has moved, as the look is told; a listing need not be told of it again
    world.table.append([row(1, "a", 0)]).await;
    let Glanced::At(moved) = world.client.glance_since(name, "main", Some(&at)).await.unwrap() else { panic!("it has moved") };
    assert!(moved.view().metadata_location != at && moved.view().head != table.view().head);
    world.server.forget();
    let listed = world.client.list().await.unwrap();
    assert_eq!(listed.iter().find(|p| p.name == *name).unwrap().metadata_location, moved.view().metadata_location);
    let asked: Vec<_> = world.server.asked().into_iter().filter(is_load).collect();
    assert!(asked.iter().all(|a| a.headers["if-none-match"].contains(&moved.view().metadata_location)), "{asked:?}");
    let gone = afterwrite::model::ident::TableName { table: "none".into(), ..name.clone() };
    assert!(matches!(world.client.glance_since(&gone, "main", Some(&at)).await.unwrap(), Glanced::Gone));
}

#[tokio::test]
async fn a_catalog_without_tags_is_believed_by_the_location_that_it_names() {
    let world = World::new().await;
    let name = &world.table.name;
    let at = world.load().await.view.metadata_location;
    // nothing was looked at before: there is no tag to ask with
    world.server.forget();
    assert!(matches!(world.client.glance_since(name, "main", Some(&at)).await.unwrap(), Glanced::Same));
    assert!(!world.server.asked().iter().any(|asked| asked.headers.contains_key("if-none-match")));
}
