import os
import time

os.environ["TZ"] = "UTC"
time.tzset()

import pytest
from pyiceberg.manifest import FileFormat, ManifestContent

import engines
import files
import flink as flink_engine
import trino as trino_engine


# Modules that share engines besides Spark, so that one worker starts each of them once.
SHARED = {"test_encodings": "trino and flink", "test_flink": "trino and flink", "test_live_writers": "trino and flink", "test_stores": "trino and flink", "test_through_proxy": "trino and flink"}
# What takes long begins early.
FIRST = ["test_encodings", "test_flink", "test_stores", "test_through_proxy", "test_demo", "test_v3", "test_repack", "test_users_never_pay", "test_writers", "test_hooks", "test_proxy", "test_rest", "test_fuzz", "test_kafka"]
# Modules whose sidecar goes over the shared REST catalog, where there is one, on the same tables; with AFTERWRITE_TEST_OVER_REST all do.
OVER_REST = ["test_serve", "test_strays"]
EVERYTHING = pytest.StashKey()


def pytest_configure(config):
    config.addinivalue_line("markers", "last: looks at what all other tests left behind")


def is_last(item):
    return item.get_closest_marker("last") is not None


@pytest.hookimpl(tryfirst=True)  # before the worker reads the groups
def pytest_collection_modifyitems(items):
    """Workers take whole groups, in this order."""
    module = lambda item: item.module.__name__  # noqa: E731
    items.sort(key=lambda item: (is_last(item), FIRST.index(module(item)) if module(item) in FIRST else len(FIRST)))
    for item in items:
        item.add_marker(pytest.mark.xdist_group(SHARED.get(module(item), module(item))))


@pytest.fixture(scope="session", autouse=True)
def everything(request, tmp_path_factory):
    """The folder below which every worker's files lie."""
    own = tmp_path_factory.getbasetemp()
    request.config.stash[EVERYTHING] = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    return request.config.stash[EVERYTHING]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Tells the other workers that a test has ended."""
    answer = yield
    with open(item.config.stash[EVERYTHING] / "ended", "a") as told:
        told.write(f"{item.nodeid}\n")
    return answer


@pytest.fixture(scope="session")
def others_ended(request, everything):
    """Waits for all tests, of whichever worker, that are not among the last."""
    awaited = {item.nodeid for item in request.session.items if not is_last(item)}
    engines.wait_until(lambda: not awaited or awaited <= set((everything / "ended").read_text().splitlines()), seconds=1800)


@pytest.fixture(scope="session")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("interop")


@pytest.fixture(scope="session")
def spark_jvm(scratch):
    spark = engines.Spark(scratch)
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def trino_server(scratch):
    engine = trino_engine.Trino(scratch)
    yield engine
    engine.stop()


@pytest.fixture(scope="session")
def flink(scratch):
    engine = flink_engine.Flink(scratch)
    yield engine
    engine.stop()


class Lab:
    """One home with every engine on it."""

    def __init__(self, home, spark, pyiceberg=None, duckdb=None, config=None):
        self.home = home
        self.spark = spark
        self.pyiceberg = pyiceberg or engines.PyIceberg(home)
        self.duckdb = duckdb or engines.DuckDB(home)
        self.afterwrite = engines.Afterwrite(config or home.config())

    def digests(self, table, confirm, snapshot=None):
        """What every asked reader sees; Spark is the oracle and always asked."""
        return {name: getattr(self, name).digest(table, snapshot) for name in ("spark", *confirm)}

    def parquet(self, table):
        """The table's Parquet files on this machine."""
        loaded = self.pyiceberg.catalog.load_table(table)
        entries = [e for m in loaded.current_snapshot().manifests(loaded.io) if m.content == ManifestContent.DATA for e in m.fetch_manifest_entry(loaded.io)]
        return {"/" + e.data_file.file_path.removeprefix("file:").lstrip("/") for e in entries if e.data_file.file_path.startswith("file:") and e.data_file.file_format == FileFormat.PARQUET}

    def prove(self, table, confirm=("pyiceberg", "duckdb"), before_confirm=None, landed=None):
        """Compacts and checks that every reader sees the same rows as before, now and in the past.

        `before_confirm`: readers that can read the table before (deletes stop some of them).
        `landed`: how many scopes must have landed; at least one by default.
        """
        head = self.spark.snapshots(table)[-1]["snapshot_id"]
        before = self.digests(table, confirm if before_confirm is None else before_confirm)
        assert len(set(before.values())) == 1, f"the readers disagree before the compaction: {before}"
        inputs = self.parquet(table)
        results = self.afterwrite.compact(table)
        outputs = self.parquet(table)
        done = [r for r in results if r.get("snapshot_id")]
        assert done if landed is None else len(done) == landed, results
        lost = files.lost(inputs - outputs, outputs - inputs)
        assert not lost, f"all inputs tell of their columns what the outputs do not: {lost}, by {results}"
        after = self.digests(table, confirm)
        assert set(after.values()) == set(before.values()), f"before {before}, after {after}, by {results}"
        assert self.spark.digest(table, head) == before["spark"], "the past changed"
        for snapshot in self.spark.snapshots(table):
            if str(snapshot["snapshot_id"]) in [r["snapshot_id"] for r in done]:
                assert snapshot["operation"] == "replace"
        return results


@pytest.fixture(scope="module")
def lab(request, scratch, spark_jvm):
    home = engines.Home(scratch / request.module.__name__)
    if request.module.__name__ in OVER_REST:
        home.shared = home.shared or os.environ.get("AFTERWRITE_TEST_REST")
    spark = spark_jvm.open(home)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
    return Lab(home, spark)


@pytest.fixture(scope="module")
def trino(lab, trino_server):
    """Trino on the module's home; the lab may ask it as a reader from now on."""
    lab.trino = trino_server.open(lab.home)
    return lab.trino
