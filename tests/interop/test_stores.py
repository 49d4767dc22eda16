"""The catalogs and stores that the engines share with afterwrite, beyond SQLite and local files."""

import os
import urllib.parse

import pyarrow as pa
import pytest

import engines


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


def test_one_postgresql_catalog_for_spark_pyiceberg_and_afterwrite(postgres, spark_jvm, scratch):
    home = engines.Home(scratch / "postgres", uri=postgres.geturl())
    spark = spark_jvm.open(home, uri=f"jdbc:postgresql://{postgres.hostname}:{postgres.port}/interop?user={postgres.username}")
    pyiceberg = engines.PyIceberg(home, uri=postgres._replace(scheme="postgresql+psycopg2").geturl())
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
    spark.sql("CREATE TABLE lake.db.t (id BIGINT, v STRING) USING iceberg TBLPROPERTIES ('format-version'='2')")
    for i in range(10):
        spark.sql(f"INSERT INTO lake.db.t SELECT id, concat('v', id) FROM range({i * 10}, {i * 10 + 10}, 1, 1)")
        pyiceberg.catalog.load_table("db.t").append(pa.table({"id": [1000 + i], "v": ["py"]}))
    before = spark.digest("db.t")
    assert before[0] == 110
    results = engines.Afterwrite(home.config()).compact("db.t")
    assert [(r["files_in"], r["files_out"], r["rows"]) for r in results] == [(20, 1, 110)]
    assert spark.digest("db.t") == before
    assert pyiceberg.digest("db.t") == before


def test_flink_upserts_in_a_postgresql_catalog(postgres, spark_jvm, flink, scratch):
    home = engines.Home(scratch / "postgres", uri=postgres.geturl())
    jdbc = f"jdbc:postgresql://{postgres.hostname}:{postgres.port}/interop?user={postgres.username}"
    spark = spark_jvm.open(home, uri=jdbc)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
    spark.sql("CREATE TABLE lake.db.upserts (id BIGINT NOT NULL, v STRING) USING iceberg TBLPROPERTIES ('format-version'='2', 'write.upsert.enabled'='true')")
    job = flink.open(home, "db.upserts", keys=("id",), uri=jdbc)
    for step in range(4):
        job.upsert([(id, f"v{step}") for id in range(step, 40)])
    before = spark.digest("db.upserts")
    assert sorted(spark.sql("SELECT v, count(*) FROM lake.db.upserts GROUP BY v").collect()) == [("v0", 1), ("v1", 1), ("v2", 1), ("v3", 37)]
    results = engines.Afterwrite(home.config()).compact("db.upserts")
    assert [(r["files_in"], r["rows"]) for r in results] == [(4, 40)]
    assert spark.digest("db.upserts") == before
    job.upsert([(0, "later")])
    job.close()
    assert spark.sql("SELECT v FROM lake.db.upserts WHERE id = 0").collect() == [("later",)]


def test_a_warehouse_on_s3(scratch, trino_server):
    import boto3

    endpoint = os.environ["AFTERWRITE_TEST_S3"]
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=endpoint, **keys).create_bucket(Bucket="interop")
    home = engines.Home(scratch / "s3")
    home.config()
    settings = {"s3.endpoint": endpoint, "s3.region": "us-east-1", "s3.access-key-id": "test", "s3.secret-access-key": "test"}
    config = home.folder / "afterwrite.toml"
    lines = "\n".join(f'"{k}" = "{v}"' for k, v in settings.items())
    config.write_text(
        f'[catalog.lake]\ntype = "sql"\nuri = "{home.uri}"\nwarehouse = "s3://interop/warehouse"\n"s3.path-style-access" = "true"\n{lines}\n\n[journal]\npath = "{home.folder}/journal.db"\n'
    )
    from pyiceberg.catalog.sql import SqlCatalog

    pyiceberg = engines.PyIceberg(home)
    pyiceberg.catalog = SqlCatalog("lake", uri=f"sqlite:///{home.database}?timeout=30", warehouse="s3://interop/warehouse", **settings)
    pyiceberg.catalog.create_namespace("db")
    table = pyiceberg.catalog.create_table("db.t", pa.schema([("id", pa.int64()), ("v", pa.string())]))
    for i in range(12):
        table.append(pa.table({"id": range(i * 10, i * 10 + 10), "v": [f"v{i}"] * 10}))
    table.delete("id = 5")
    trino = trino_server.open(
        home, **{"fs.s3.enabled": "true", "s3.endpoint": endpoint, "s3.region": "us-east-1", "s3.path-style-access": "true", "s3.aws-access-key": "test", "s3.aws-secret-key": "test"}
    )
    before = pyiceberg.digest("db.t")
    assert before[0] == 119
    assert trino.digest("db.t") == before
    results = engines.Afterwrite(config).compact("db.t")
    assert [(r["files_in"], r["files_out"], r["rows"]) for r in results] == [(12, 1, 119)]
    assert pyiceberg.digest("db.t") == before
    assert trino.digest("db.t") == before


@pytest.fixture(scope="module", autouse=True)
def _environment():
    for name in ("AFTERWRITE_TEST_POSTGRES", "AFTERWRITE_TEST_S3"):
        assert os.environ.get(name), f"{name} is not set: run tests/run, which starts the services"
