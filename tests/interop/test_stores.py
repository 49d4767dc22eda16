"""The catalogs and stores that the engines share with afterwrite, beyond SQLite and local files."""

import os
import urllib.parse

import pyarrow as pa
import pytest

import engines
import prune
from conftest import Lab


@pytest.fixture(scope="module")
def postgres():
    import psycopg2

    admin = urllib.parse.urlparse(os.environ["AFTERWRITE_TEST_POSTGRES"])
    connection = psycopg2.connect(host=admin.hostname, port=admin.port, user=admin.username, dbname=admin.path[1:])
    connection.autocommit = True
    connection.cursor().execute("DROP DATABASE IF EXISTS interop")
    connection.cursor().execute("CREATE DATABASE interop")
    connection.close()
    return admin._replace(path="/interop")


ALL = ("pyiceberg", "duckdb", "trino")
UPSERTS = "CREATE TABLE lake.db.upserts (id BIGINT NOT NULL, v STRING) USING iceberg TBLPROPERTIES ('format-version'='2', 'write.upsert.enabled'='true')"


@pytest.fixture(scope="module")
def on_postgres(postgres, spark_jvm, trino_server, scratch):
    home = engines.Home(scratch / "postgres", uri=postgres.geturl())
    home.jdbc = f"jdbc:postgresql://{postgres.hostname}:{postgres.port}/interop?user={postgres.username}"
    pyiceberg = engines.PyIceberg(home, uri=postgres._replace(scheme="postgresql+psycopg2").geturl())
    lab = Lab(home, spark_jvm.open(home, uri=home.jdbc), pyiceberg, engines.DuckDB(home, pointer(pyiceberg)))
    lab.spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
    lab.trino = trino_server.open(home, **{"iceberg.jdbc-catalog.driver-class": "org.postgresql.Driver", "iceberg.jdbc-catalog.connection-url": home.jdbc})
    return lab


def pointer(pyiceberg):
    return lambda table: pyiceberg.catalog.load_table(table).metadata_location


def test_one_postgresql_catalog_for_all_readers_and_afterwrite(on_postgres):
    lab = on_postgres
    lab.spark.sql("CREATE TABLE lake.db.t (id BIGINT, v STRING) USING iceberg TBLPROPERTIES ('format-version'='2')")
    for i in range(4):
        lab.spark.sql(f"INSERT INTO lake.db.t SELECT id, concat('v', id) FROM range({i * 10}, {i * 10 + 10}, 1, 1)")
        lab.pyiceberg.catalog.load_table("db.t").append(pa.table({"id": [1000 + i], "v": ["py"]}))
    results = lab.prove("db.t", confirm=ALL)
    assert [(r["files_in"], r["files_out"], r["rows"]) for r in results] == [(8, 1, 44)]
    no_reader_prunes_a_live_row(lab, "db.t")


def no_reader_prunes_a_live_row(lab, table):
    prune.through_tables(lab, table, prune.counted([lab.pyiceberg.catalog.load_table(table).scan().to_arrow()]), lab.trino)


def test_flink_upserts_in_a_postgresql_catalog(on_postgres, flink):
    on_postgres.spark.sql(UPSERTS)
    upserts_are_compacted(on_postgres, flink.open(on_postgres.home, "db.upserts", keys=("id",), uri=on_postgres.home.jdbc))


def upserts_are_compacted(lab, job):
    """Beside the running job, which writes once more afterwards; nobody but Spark and Trino applies its deletes."""
    for step in range(3):
        job.upsert([(id, f"v{step}") for id in range(step, 40)])
    assert sorted(lab.spark.sql("SELECT v, count(*) FROM lake.db.upserts GROUP BY v").collect()) == [("v0", 1), ("v1", 1), ("v2", 38)]
    results = lab.prove("db.upserts", confirm=ALL, before_confirm=("trino",))
    assert [(r["files_in"], r["rows"]) for r in results] == [(3, 40)]
    no_reader_prunes_a_live_row(lab, "db.upserts")
    job.upsert([(0, "later")])
    job.close()
    assert lab.spark.sql("SELECT v FROM lake.db.upserts WHERE id = 0").collect() == [("later",)]
    assert lab.trino.digest("db.upserts") == lab.spark.digest("db.upserts")


@pytest.fixture(scope="module")
def on_s3(spark_jvm, trino_server, scratch):
    import boto3

    endpoint, warehouse = os.environ["AFTERWRITE_TEST_S3"], "s3://interop/warehouse"
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=endpoint, **keys).create_bucket(Bucket="interop")
    home = engines.Home(scratch / "s3")
    settings = {"s3.endpoint": endpoint, "s3.access-key-id": "test", "s3.secret-access-key": "test", "s3.path-style-access": "true"}
    config = home.folder / "afterwrite.toml"
    lines = "\n".join(f'"{k}" = "{v}"' for k, v in {**settings, "s3.region": "us-east-1"}.items())
    config.write_text(f'[catalog.lake]\ntype = "sql"\nuri = "{home.uri}"\nwarehouse = "{warehouse}"\n{lines}\n\n[journal]\npath = "{home.folder}/journal.db"\n')
    pyiceberg = engines.PyIceberg(home, **{**settings, "s3.region": "us-east-1", "warehouse": warehouse})
    home.java = {**settings, "io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "client.region": "us-east-1", "warehouse": warehouse}
    host = endpoint.removeprefix("http://")
    secret = f"CREATE SECRET (TYPE s3, KEY_ID 'test', SECRET 'test', REGION 'us-east-1', ENDPOINT '{host}', URL_STYLE 'path', USE_SSL false)"
    lab = Lab(home, spark_jvm.open(home, properties=home.java), pyiceberg, engines.DuckDB(home, pointer(pyiceberg), secret), config)
    lab.spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
    lab.trino = trino_server.open(
        home, **{"fs.s3.enabled": "true", "s3.endpoint": endpoint, "s3.region": "us-east-1", "s3.path-style-access": "true", "s3.aws-access-key": "test", "s3.aws-secret-key": "test"}
    )
    return lab


def test_a_warehouse_on_s3(on_s3):
    table = on_s3.pyiceberg.catalog.create_table("db.t", pa.schema([("id", pa.int64()), ("v", pa.string())]))
    for i in range(6):
        table.append(pa.table({"id": range(i * 10, i * 10 + 10), "v": [f"v{i}"] * 10}))
    table.delete("id = 5")
    results = on_s3.prove("db.t", confirm=ALL)
    assert [(r["files_in"], r["files_out"], r["rows"]) for r in results] == [(6, 1, 59)]
    no_reader_prunes_a_live_row(on_s3, "db.t")


def test_flink_upserts_in_a_warehouse_on_s3(on_s3, flink):
    on_s3.spark.sql(UPSERTS)
    upserts_are_compacted(on_s3, flink.open(on_s3.home, "db.upserts", keys=("id",), properties={**on_s3.home.java, "http-client.type": "urlconnection"}))


@pytest.fixture(scope="module", autouse=True)
def _environment():
    for name in ("AFTERWRITE_TEST_POSTGRES", "AFTERWRITE_TEST_S3"):
        assert os.environ.get(name), f"{name} is not set: run tests/run, which starts the services"
