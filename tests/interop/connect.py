"""A standalone Kafka Connect worker with Iceberg's sink: records of a topic become rows of a table, a commit an interval."""

import pathlib
import subprocess

import java
from broker import free_ports

HERE = pathlib.Path(__file__).parent
SINK = """
name=ice
connector.class=org.apache.iceberg.connect.IcebergSinkConnector
tasks.max=1
topics={topic}
iceberg.tables={table}
iceberg.tables.auto-create-enabled=true
iceberg.tables.auto-create-props.write.summary.partition-limit=100
iceberg.tables.default-partition-by=region
iceberg.control.topic={control}
iceberg.control.commit.interval-ms=2000
iceberg.control.commit.timeout-ms=20000
iceberg.catalog={catalog}
iceberg.catalog.catalog-impl=org.apache.iceberg.jdbc.JdbcCatalog
iceberg.catalog.uri=jdbc:sqlite:{database}?busy_timeout=30000&journal_mode=WAL&synchronous=NORMAL&transaction_mode=IMMEDIATE
iceberg.catalog.warehouse=file://{warehouse}
iceberg.catalog.jdbc.schema-version=V1
"""
WORKER = """
bootstrap.servers={brokers}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
offset.storage.file.filename={folder}/offsets
offset.flush.interval.ms=1000
listeners=http://127.0.0.1:{port}
plugin.discovery=service_load
consumer.auto.offset.reset=earliest
consumer.metadata.max.age.ms=2000
"""


class Connect:
    def __init__(self, folder, home, brokers, topic, table, control):
        folder.mkdir()
        [port] = free_ports(1)
        worker, sink = folder / "worker.properties", folder / "sink.properties"
        worker.write_text(WORKER.format(brokers=brokers, folder=folder, port=port))
        sink.write_text(SINK.format(topic=topic, table=table, control=control, catalog=home.name, database=home.database, warehouse=home.warehouse))
        self.log = folder / "connect.log"
        command = ["java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{java.CACHE}/jars/connect/*", f"-Dlog4j2.configurationFile={HERE}/kafka/log4j2.xml"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen([*command, "org.apache.kafka.connect.cli.ConnectStandalone", str(worker), str(sink)], stdout=log, stderr=subprocess.STDOUT)

    def alive(self):
        assert self.process.poll() is None, self.log.read_text()[-4000:]
        return True

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
