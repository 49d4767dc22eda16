"""The engines as one object each: every one opens the same catalog database and warehouse."""

import glob
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.parse
import urllib.request

import rows

CACHE = pathlib.Path(os.environ["AFTERWRITE_TEST_CACHE"])
JARS = CACHE / "jars"


class Home:
    """A catalog database and a warehouse folder that all engines share."""

    def __init__(self, folder, name="lake", uri=None):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.database = self.folder / "catalog.db"
        self.uri = uri or f"sqlite://{self.database}"
        self.warehouse = self.folder / "warehouse"
        self.warehouse.mkdir(exist_ok=True)
        # the address of a REST catalog that opens whichever SQLite file is its warehouse: the sidecar goes over it
        self.shared = os.environ.get("AFTERWRITE_TEST_OVER_REST")

    def config(self, extra="", rest=None, file="afterwrite.toml", journal="journal"):
        """The sidecar's settings; `rest` is the address of a REST catalog over the same database, and lines below it."""
        path = self.folder / file
        if self.shared and not rest and self.uri.startswith("sqlite"):
            rest = (self.shared, f'warehouse = "{self.database}"')
        catalog = f'type = "sql"\nuri = "{self.uri}"\nwarehouse = "file://{self.warehouse}"'
        if rest:
            catalog = f'type = "rest"\nuri = "{rest[0]}"\n' + "\n".join(rest[1:])
        path.write_text(
            f"""
[catalog.{self.name}]
{catalog}

[journal]
path = "{self.folder}/{journal}.db"
{extra}
"""
        )
        return path


class Afterwrite:
    """The binary under test."""

    def __init__(self, config, catalog="lake"):
        self.binary = os.environ["AFTERWRITE_BIN"]
        self.config = str(config)
        self.catalog = catalog

    def run(self, *words, ok=(0,), env=None):
        command = [self.binary, "--config", self.config, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, env={**os.environ, **(env or {})})
        assert done.returncode in ok, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *words, ok=(0,)):
        return [json.loads(line) for line in self.run(*words, "--json", ok=ok).stdout.splitlines() if line.strip()]

    def compact(self, table, *words, ok=(0,)):
        """Every scope's object; a landed one has a snapshot id."""
        return self.json("compact", f"{self.catalog}.{table}", *words, ok=ok)

    def start(self, *words):
        return subprocess.Popen([self.binary, "--config", self.config, "serve", *words], stderr=subprocess.PIPE, text=True)


class Spark:
    """Spark with Iceberg's Java runtime: the reference reader and writer. One JVM serves every home: a catalog each."""

    def __init__(self, scratch):
        from pyspark.sql import SparkSession

        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        jars = sorted(glob.glob(str(JARS / "spark" / "*.jar")) + glob.glob(str(JARS / "aws" / "*.jar")))
        # on the class path, not in spark.jars: tests call Iceberg's classes through the gateway
        # short work: what the second compiler gains is less than what it takes
        flags = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-memory 2g --driver-java-options '{flags}' --driver-class-path {':'.join(jars)} pyspark-shell"
        os.environ["PYSPARK_PYTHON"] = sys.executable
        conf = {
            "spark.master": "local[2]",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.local.dir": str(scratch / "spark-local"),
            "spark.sql.warehouse.dir": str(scratch / "spark-warehouse"),
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            # and compiling a query is slower than running it uncompiled
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        }
        builder = SparkSession.builder
        for key, value in conf.items():
            builder = builder.config(key, value)
        self.session = builder.getOrCreate()
        self.session.sparkContext.setLogLevel("ERROR")
        self.homes = {}

    def open(self, home, uri=None, properties=None):
        """The name under which Spark knows the home's catalog; its rows carry the same name."""
        key = (str(home.folder), uri)
        if key not in self.homes:
            # the catalog's name is a key column of its tables, and Spark gives it the name used in SQL:
            # a session of its own for each home lets every home use the same name
            session = self.session.newSession()
            uri = uri or f"jdbc:sqlite:{home.database}?busy_timeout=30000&journal_mode=WAL&synchronous=NORMAL&transaction_mode=IMMEDIATE"
            settings = {
                "": "org.apache.iceberg.spark.SparkCatalog",
                ".type": "jdbc",
                ".uri": uri,
                ".warehouse": f"file://{home.warehouse}",
                ".jdbc.schema-version": "V1",
                ".jdbc.init-catalog-tables": "true",
                ".clients": "1",
                ".cache-enabled": "false",
                **{f".{key}": value for key, value in (properties or {}).items()},
            }
            for name, value in settings.items():
                session.conf.set(f"spark.sql.catalog.{home.name}{name}", value)
            self.homes[key] = session
        return SparkHome(self.homes[key], home.name)

    def open_rest(self, home, url):
        """The same over a REST catalog."""
        session = self.session.newSession()
        for name, value in {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": url, ".cache-enabled": "false"}.items():
            session.conf.set(f"spark.sql.catalog.{home.name}{name}", value)
        return SparkHome(session, home.name)

    def stop(self):
        self.session.stop()


class SparkHome:
    """One home in Spark."""

    def __init__(self, session, catalog):
        self.session = session
        self.catalog = catalog

    def sql(self, text):
        return self.session.sql(text)

    def digest(self, table, snapshot=None):
        at = f" VERSION AS OF {snapshot}" if snapshot else ""
        return _digest(self.sql(f"SELECT * FROM {self.catalog}.{table}{at}").toArrow())

    def fingerprint(self, table):
        return _fingerprint(self.sql(f"SELECT * FROM {self.catalog}.{table}").toArrow())

    def sums(self, table, snapshots, where="true"):
        """Count and sum of row hashes at each snapshot, computed by Spark itself; by default of all rows."""
        columns = ", ".join(self.sql(f"SELECT * FROM {self.catalog}.{table}").columns)
        query = f"SELECT {{0}}, count(*), sum(CAST(xxhash64({columns}) AS DECIMAL(38, 0))) FROM {self.catalog}.{table} VERSION AS OF {{0}} WHERE {where}"
        return {s: seen for s, *seen in self.sql(" UNION ALL ".join(query.format(s) for s in snapshots)).collect()}

    def files(self, table, kind="data_files"):
        return [r.asDict() for r in self.sql(f"SELECT * FROM {self.catalog}.{table}.{kind}").collect()]

    def snapshots(self, table):
        return [r.asDict() for r in self.sql(f"SELECT * FROM {self.catalog}.{table}.snapshots ORDER BY committed_at").collect()]


class PyIceberg:
    def __init__(self, home, uri=None, **properties):
        from pyiceberg.catalog.sql import SqlCatalog

        self.catalog = SqlCatalog(home.name, **{"uri": uri or f"sqlite:///{home.database}?timeout=30", "warehouse": f"file://{home.warehouse}", **properties})

    def digest(self, table, snapshot=None):
        return _digest(self.catalog.load_table(table).scan(snapshot_id=snapshot).to_arrow())

    def fingerprint(self, table):
        return _fingerprint(self.catalog.load_table(table).scan().to_arrow())

    def sums(self, table, snapshots):
        """Count and sum of row hashes at each snapshot, over what PyIceberg reads: planned anew for each, while a file with
        the same deletes is read once for all."""
        import duckdb
        from pyiceberg.io.pyarrow import ArrowScan

        loaded, of_task, sums = self.catalog.load_table(table), {}, {}
        for snapshot in snapshots:
            scan, total = loaded.scan(snapshot_id=snapshot), (0, 0)
            for task in scan.plan_files():
                key = (task.file.file_path, *sorted(d.file_path for d in task.delete_files))
                if key not in of_task:
                    seen = ArrowScan(loaded.metadata, loaded.io, scan.projection(), scan.row_filter).to_table([task])  # noqa: F841: named in the query
                    of_task[key] = duckdb.sql("SELECT count(*), coalesce(sum(hash(seen)::HUGEINT), 0) FROM seen").fetchone()
                total = tuple(a + b for a, b in zip(total, of_task[key]))
            sums[snapshot] = total
        return sums


def _digest(arrow):
    columns = [column.to_pylist(maps_as_pydicts="strict") if _has_map(column.type) else column.to_pylist() for column in arrow.columns]
    return rows.digest(arrow.column_names, zip(*columns) if columns else [])


def _fingerprint(arrow):
    """Count and order-free hash of many rows of flat columns: what was read, hashed by DuckDB, which takes the columns' texts since
    readers differ in the widths of their types."""
    import duckdb

    return duckdb.sql(fingerprint(sorted(arrow.column_names), "arrow")).fetchone()


def fingerprint(columns, source):
    texts = ", ".join(f'"{name}"::VARCHAR' for name in columns)
    return f"SELECT count(*), sum(hash({texts})::HUGEINT)::VARCHAR FROM {source}"


def _has_map(kind):
    import pyarrow as pa

    if pa.types.is_map(kind):
        return True
    return any(_has_map(kind.field(i).type) for i in range(kind.num_fields)) if pa.types.is_nested(kind) else False


DUCK = r"""
import sys, json, glob, importlib.util, duckdb, rows
con = duckdb.connect()
con.execute("SET enable_progress_bar = false")
con.execute("SET enable_external_file_cache = false")
for name in ("icu", "avro", "httpfs", "iceberg"):
    spec = importlib.util.find_spec("duckdb_extension_" + name)
    con.execute("LOAD '%s'" % glob.glob(list(spec.submodule_search_locations)[0] + "/extensions/*/" + name + ".duckdb_extension")[0])
con.execute("SET TimeZone='UTC'")

def digest(result):
    d = rows.Digest([column[0] for column in result.description])
    while batch := result.fetchmany(10000):
        for row in batch:
            d.add(row)
    return d.result()

def answer(statements, each):
    answers = []
    for statement in statements:
        result = con.execute(statement)
        if each:
            answers.append([str(v) for v in result.fetchone()])
    return answers if each else digest(result) if result.description else None

for line in sys.stdin:
    try:
        told = {"answer": answer(*json.loads(line))}
    except Exception as error:
        told = {"error": str(error)}
    print(json.dumps(told), flush=True)
"""


class DuckChild:
    """DuckDB as a child process: it aborts on some tables, and must not take the tests with it."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, "-c", DUCK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=os.path.dirname(__file__))

    def ask(self, statements, each):
        try:
            self.process.stdin.write(json.dumps([statements, each]) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        line = self.process.stdout.readline()
        told = json.loads(line) if line else {"error": f"ended with {self.process.wait()}: {self.process.stderr.read()}"}
        assert "error" not in told, f"duckdb: {statements}\n{told['error']}"
        return told["answer"]

    def end(self):
        self.process.stdin.close()
        self.process.wait()


class DuckDB:
    """DuckDB on a home. What only selects is asked of one child, since its extensions take long to load."""

    reader = None

    def __init__(self, home, pointer=None, *setup):
        """`pointer`: finds a table's metadata where the catalog is no SQLite; `setup`: statements before each."""
        self.home = home
        self.pointer = pointer or (lambda table: in_sqlite(home, table))
        self.setup = setup

    def source(self, table):
        """The table as it is now, to select from."""
        return f"iceberg_scan('{self.pointer(table)}')"

    def rows(self, text):
        """What a statement finds, as lists."""
        [[found]] = self.run(f"SELECT to_json(list(found)) FROM ({text}) found", each=True)
        return [list(row.values()) for row in json.loads(found)]

    def sums(self, table, snapshots):
        """Count and sum of row hashes at each snapshot, computed by DuckDB itself."""
        location = self.pointer(table)
        query = "SELECT count(*), sum(hash(seen)::HUGEINT) FROM iceberg_scan('{}', snapshot_from_id={}) seen"
        answers = self.run(*(query.format(location, s) for s in snapshots), each=True)
        return {s: tuple(answer) for s, answer in zip(snapshots, answers)}

    def run(self, *statements, each=False):
        statements = [*self.setup, *statements]
        if reads := all(statement.startswith("SELECT ") for statement in statements):
            if DuckDB.reader is None or DuckDB.reader.process.poll() is not None:
                DuckDB.reader = DuckChild()
        child = DuckDB.reader if reads else DuckChild()
        try:
            answers = child.ask(statements, each)
        finally:
            if not reads:
                child.end()
        return tuple(answers[len(self.setup) if each else 0 :]) if answers is not None else None

    def fingerprint(self, table):
        [[columns]] = self.run(f"SELECT to_json(list(column_name ORDER BY column_name)) FROM (DESCRIBE SELECT * FROM {self.source(table)})", each=True)
        [(count, total)] = self.run(fingerprint(json.loads(columns), self.source(table)), each=True)
        return int(count), total

    def digest(self, table, snapshot=None):
        at = f", snapshot_from_id={snapshot}" if snapshot else ""
        return self.run(f"SELECT * FROM iceberg_scan('{self.pointer(table)}'{at})")


def in_sqlite(home, table):
    """The current metadata location, straight from the catalog's database."""
    import sqlite3

    namespace, name = table.rsplit(".", 1)
    with sqlite3.connect(home.database, timeout=30) as connection:
        row = connection.execute(
            "SELECT metadata_location FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?",
            (home.name, namespace, name),
        ).fetchone()
    return row[0]


class RestCatalog:
    """Iceberg Java's own REST handlers over the shared database: the only way in which DuckDB commits."""

    def __init__(self, home):
        self.process = subprocess.Popen(
            [
                "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{CACHE}/classes/rest:{JARS}/rest/*",
                "org.apache.iceberg.rest.CatalogServer", "--port=0", f"--name={home.name}", f"--warehouse=file://{home.warehouse}",
                f"--jdbc=jdbc:sqlite:{home.database}?busy_timeout=30000&journal_mode=WAL&synchronous=NORMAL&transaction_mode=IMMEDIATE",
            ],
            stdout=subprocess.PIPE, text=True,
        )
        line = self.process.stdout.readline()
        assert line.startswith("READY port="), f"the REST catalog did not start: {line!r}"
        self.url = f"http://127.0.0.1:{line.split('=')[1].split()[0]}"

    def admin(self, reset=False, **switches):
        """Sets fault switches (see the server), or clears them all; gives switches and counters."""
        query = urllib.parse.urlencode(switches)
        with urllib.request.urlopen(f"{self.url}/admin{'/reset' if reset else ''}?{query}", timeout=10) as answer:
            return json.load(answer)

    def attach(self):
        return f"ATTACH '' AS ice (TYPE iceberg, ENDPOINT '{self.url}', AUTHORIZATION_TYPE 'none')"

    def stop(self):
        self.process.kill()
        self.process.wait()


def wait_until(check, seconds=60, step=0.2):
    """The first true answer of `check`; fails when time runs out."""
    deadline = time.monotonic() + seconds
    while True:
        answer = check()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"nothing came true within {seconds} s"
        time.sleep(step)
