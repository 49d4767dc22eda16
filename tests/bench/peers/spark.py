"""Spark with Iceberg's Java runtime: local[2], 4 GB. Writes most inputs, and is the peer.

    python -m peers.spark FOLDER TABLE     a session of its own for one rewrite
"""

import glob
import os
import pathlib
import sys

from . import measure
from .lake import CATALOG

MEMORY = "4g"


def session(lake_folder, scratch, quick=False):
    """Starts the JVM; one a process. `quick`: without the compiler that pays only in longer runs."""
    from pyspark.sql import SparkSession

    jars = sorted(glob.glob(os.path.join(os.environ["AFTERWRITE_BENCH_JARS"], "*.jar")))
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    flags = "--driver-java-options -XX:TieredStopAtLevel=1" if quick else ""
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-memory {MEMORY} {flags} --driver-class-path {':'.join(jars)} --conf spark.log.level=ERROR pyspark-shell"
    catalog = f"spark.sql.catalog.{CATALOG}"
    database = f"jdbc:sqlite:{lake_folder}/catalog.db?busy_timeout=30000&journal_mode=WAL&synchronous=NORMAL&transaction_mode=IMMEDIATE"
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
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": database,
        f"{catalog}.warehouse": f"file://{lake_folder}/warehouse",
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.jdbc.init-catalog-tables": "true",
        f"{catalog}.clients": "1",
        f"{catalog}.cache-enabled": "false",
    }
    builder = SparkSession.builder
    for key, value in conf.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


class Spark:
    """A warm session."""

    def __init__(self, lake, scratch, quick=False):
        self.lake, self.scratch = lake, scratch
        self.session = session(lake.folder, scratch, quick)
        self.jvm = self.session.sparkContext._gateway.proc.pid
        self.is_warm = False

    def sql(self, text):
        return self.session.sql(text)

    def rewrite(self, trial):
        """`rewrite_data_files` with its defaults; the table's properties name target and codec. The JVM alone is measured."""
        with measure.Lasting(self.jvm) as run:
            rewrite(self.session, trial.table)
        return run.taken

    def scan(self, trial, query):
        """CPU and wall seconds of one query on the files of the trial."""
        with measure.Lasting(self.jvm) as run:
            self.sql(query.format(f"{CATALOG}.{trial.table}")).collect()
        return run.taken

    def append(self, table, folder):
        """Appends parquet files, one task and so one file a partition each."""
        self.session.conf.set("spark.sql.files.maxPartitionBytes", "1g")
        self.session.conf.set("spark.sql.files.openCostInBytes", "1g")
        self.session.read.parquet(str(folder)).writeTo(f"{CATALOG}.{table}").append()

    def stop(self):
        """Ends the JVM too: the next session begins with an empty heap."""
        from pyspark import SparkContext

        gateway = SparkContext._gateway
        self.session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
        SparkContext._gateway = SparkContext._jvm = None


def rewrite(made, table):
    made.sql(f"CALL {CATALOG}.system.rewrite_data_files(table => '{table}')").collect()


def cold(lake, scratch, table):
    """The same with a session's start before it."""
    return measure.run([sys.executable, "-m", "peers.spark", str(lake.folder), str(scratch), table])


if __name__ == "__main__":
    rewrite(session(sys.argv[1], pathlib.Path(sys.argv[2])), sys.argv[3])
