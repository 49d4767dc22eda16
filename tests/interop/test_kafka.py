"""The Kafka door with a real broker: what is told there leads to looks, and nothing is lost."""

import base64
import json
import os
import pathlib
import re
import subprocess
import threading

import pyarrow as pa
import pytest

import broker as brokers
import engines

RECORDINGS = pathlib.Path(__file__).parent.parent / "observe" / "vectors"
PARTS = ["r0", "r1", "r2"]
NOT_FOUND = 7
# the group waits so long for a member that was killed
SOON_MISSED = """
[kafka.test.properties]
session.timeout.ms = "3000"
heartbeat.interval.ms = "500"
"""


@pytest.fixture(scope="module")
def broker(scratch):
    broker = brokers.Broker(scratch / "kafka-broker")
    yield broker
    broker.stop()


class Sidecar:
    """`serve` with a Kafka door. The poller sleeps: after the start only the door brings looks."""

    def __init__(self, home, name, topics, brokers, group, extra="", act=False):
        self.group, self.brokers, self.topics = group, brokers, topics
        listed = ", ".join(f'{{ topic = "{t}", format = "{f}", catalog = "{home.name}" }}' for t, f in topics)
        config = home.config(
            f"""
[server]
listen = "127.0.0.1:0"
http = "127.0.0.1:0"
[poll]
min = "600s"
max = "600s"
[defaults]
act = {str(act).lower()}
cooldown = "0s"
[kafka.test]
brokers = "{brokers}"
group = "{group}"
topics = [{listed}]
{extra}
"""
        ).read_text()
        # a journal belongs to one process
        self.config = home.folder / f"{name}.toml"
        self.config.write_text(config.replace("journal.db", f"{name}.db"))
        self.afterwrite = engines.Afterwrite(self.config, home.name)
        self.start()

    def start(self):
        self.process = subprocess.Popen([os.environ["AFTERWRITE_BIN"], "--config", str(self.config), "serve"], stderr=subprocess.PIPE, text=True)
        listening = {}
        while {"grpc", "http"} - listening.keys():
            line = self.process.stderr.readline()
            assert line, "the sidecar ended before it listened"
            listening.update(re.findall(r"(grpc|http) listens on (?:http://)?(127\.0\.0\.1:\d+)", line))
        self.server, self.http = f"http://{listening['grpc']}", f"http://{listening['http']}"
        # a pipe that nobody reads would stop the process
        self.said = []
        threading.Thread(target=lambda pipe: self.said.extend(pipe), args=(self.process.stderr,), daemon=True).start()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        assert self.process.wait(60) == 0, "the sidecar did not drain"

    def door(self, topic=None):
        topic = topic or self.topics[0][0]
        rows = self.afterwrite.json("doors", "--server", self.server)
        return next(row for row in rows if (row["door"], row["source"]) == ("kafka", topic))

    def partitions(self, table):
        """The partitions that the sidecar knows, with the snapshot at which it judged them."""
        done = self.afterwrite.run("why", f"{self.afterwrite.catalog}.db.{table}", "--server", self.server, "--json", ok=(0, NOT_FOUND))
        decisions = [json.loads(line) for line in done.stdout.splitlines() if line.strip()]
        return {d["partition"]: d["snapshot_id"] for d in decisions}


@pytest.fixture
def sidecars():
    running = []
    yield running
    for sidecar in running:
        if sidecar.process.poll() is None:
            sidecar.kill()


@pytest.fixture
def home(scratch, request):
    return engines.Home(scratch / request.node.name)


class Writer:
    """PyIceberg, which says nothing by itself. Makes the catalog where there is none."""

    def __init__(self, home):
        self.catalog = engines.PyIceberg(home).catalog
        self.catalog.create_namespace_if_not_exists("db")

    def table(self, name):
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.schema import Schema
        from pyiceberg.transforms import IdentityTransform
        from pyiceberg.types import LongType, NestedField, StringType

        schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "region", StringType()))
        spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
        return self.catalog.create_table(f"db.{name}", schema, partition_spec=spec)

    def append(self, name, ids, parts=PARTS):
        """One commit with a row an id in each partition; gives back its snapshot."""
        rows = [{"id": i, "region": p} for i in ids for p in parts]
        table = self.catalog.load_table(f"db.{name}")
        table.append(pa.Table.from_pylist(rows, schema=pa.schema([("id", pa.int64()), ("region", pa.string())])))
        return table.refresh().current_snapshot().snapshot_id

    def ids(self, name):
        return sorted(self.catalog.load_table(f"db.{name}").scan().to_arrow().column("id").to_pylist())


def event(home, table, snapshot=None):
    snapshots = [] if snapshot is None else [{"snapshotId": str(snapshot)}]
    return json.dumps({"table": f"{home.name}.db.{table}", "snapshots": snapshots}).encode()


def test_a_commit_told_over_kafka_makes_its_partitions_known(broker, home, sidecars):
    broker.topic("thin")
    writer = Writer(home)
    sidecar = Sidecar(home, "one", [("thin", "json")], broker.plain, "thin")
    sidecars.append(sidecar)
    writer.table("t")
    snapshot = writer.append("t", [1], ["r0", "r2"])
    broker.write("thin", [event(home, "t", snapshot)])
    known = engines.wait_until(lambda: sidecar.partitions("t"))
    assert known == {'region="r0"': str(snapshot), 'region="r2"': str(snapshot)}
    engines.wait_until(lambda: broker.ends("thin", "thin", 1) == [(1, 1)])
    assert engines.wait_until(lambda: sidecar.door()["lag"] == 0)
    assert (sidecar.door()["received"], sidecar.door()["accepted"]) == (1, 1)
    sidecar.stop()


def test_a_recorded_control_topic_leads_to_one_look_a_commit(broker, home, sidecars):
    """The recorded snapshots are another table's: the look happens and finds what is there."""
    broker.topic("control-iceberg", 3)
    writer = Writer(home)
    sidecar = Sidecar(home, "connect", [("control-iceberg", "iceberg-connect")], broker.plain, "connect")
    sidecars.append(sidecar)
    writer.table("orders")
    snapshot = writer.append("orders", [1])
    for recording in ("kafka-connect-1.12.jsonl", "kafka-connect-1.12-timeout.jsonl"):
        for line in (RECORDINGS / recording).read_text().splitlines():
            record = json.loads(line)
            broker.write("control-iceberg", [base64.b64decode(record["value_b64"])], record["partition"])
    engines.wait_until(lambda: sidecar.door()["received"] == 35)
    known = engines.wait_until(lambda: sidecar.partitions("orders"))
    assert known == {f'region="{part}"': str(snapshot) for part in PARTS}
    door = sidecar.door()
    assert (door["accepted"], door["ignored"], door["parked"], door["dropped"]) == (5, 30, 0, 0)
    engines.wait_until(lambda: all(committed == end or end == 0 for committed, end in broker.ends("control-iceberg", "connect", 3)))


def test_a_record_that_cannot_be_read_goes_to_the_dead_letter_topic_and_blocks_nothing(broker, home, sidecars):
    from confluent_kafka import Consumer

    broker.topic("letters")
    broker.topic("letters-parked")
    writer = Writer(home)
    sidecar = Sidecar(home, "letters", [("letters", "json")], broker.plain, "letters", 'dead_letter = "letters-parked"')
    sidecars.append(sidecar)
    writer.table("t")
    snapshot = writer.append("t", [1], ["r0"])
    broker.write("letters", [b"\xff\x00 not json", event(home, "t", snapshot)])
    engines.wait_until(lambda: sidecar.partitions("t") == {'region="r0"': str(snapshot)})
    engines.wait_until(lambda: broker.ends("letters", "letters", 1) == [(2, 2)])
    assert (sidecar.door()["received"], sidecar.door()["accepted"], sidecar.door()["parked"]) == (2, 1, 1)
    reader = Consumer({"bootstrap.servers": broker.plain, "group.id": "reader", "auto.offset.reset": "earliest"})
    try:
        reader.subscribe(["letters-parked"])
        letter = engines.wait_until(lambda: reader.poll(1))
        assert letter.error() is None and letter.value() == b"\xff\x00 not json"
        headers = dict(letter.headers())
        assert headers["afterwrite-place"] == b"letters/0@0" and b"not a readable json event" in headers["afterwrite-reason"]
        assert reader.poll(2) is None, "one letter a record"
    finally:
        reader.close()


def test_records_of_aborted_and_open_transactions_are_not_heard(broker, home, sidecars):
    broker.topic("transactions")
    Writer(home)
    sidecar = Sidecar(home, "tx", [("transactions", "json")], broker.plain, "transactions")
    sidecars.append(sidecar)
    for name, ends in (("aborted", "abort_transaction"), ("committed", "commit_transaction")):
        producer = broker.producer(**{"transactional.id": name})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("transactions", event(home, name))
        producer.flush(30)
        getattr(producer, ends)(30)
    still_open = broker.producer(**{"transactional.id": "open"})
    still_open.init_transactions(30)
    still_open.begin_transaction()
    still_open.produce("transactions", event(home, "open"))
    still_open.flush(30)
    engines.wait_until(lambda: sidecar.door()["received"] == 1)
    # markers of transactions take offsets: no lag may stay for them
    engines.wait_until(lambda: sidecar.door()["lag"] == 0)
    still_open.commit_transaction(30)
    engines.wait_until(lambda: sidecar.door()["received"] == 2)
    engines.wait_until(lambda: sidecar.door()["lag"] == 0)
    assert sidecar.door()["accepted"] == 2


def test_a_kill_during_a_burst_loses_nothing(broker, home, sidecars):
    broker.topic("burst", 4)
    writer = Writer(home)
    tables = [f"t{n}" for n in range(4)]
    for table in tables:
        writer.table(table)
    sidecar = Sidecar(home, "burst", [("burst", "json")], broker.plain, "burst", SOON_MISSED)
    sidecars.append(sidecar)
    heads = {}
    for life in range(3):
        for partition, table in enumerate(tables):
            heads[table] = writer.append(table, [life])
            broker.write("burst", [event(home, table, heads[table] if n == 999 else n + 1000 * life) for n in range(1000)], partition)
        engines.wait_until(lambda: sidecar.door()["received"] > 500, step=0.02)
        sidecar.kill()
        for committed, end in broker.ends("burst", "burst", 4):
            assert committed <= end
        sidecar.start()
    engines.wait_until(lambda: [committed for committed, _ in broker.ends("burst", "burst", 4)] == [3000] * 4)
    for table in tables:
        engines.wait_until(lambda: set(sidecar.partitions(table).values()) == {str(heads[table])})
    engines.wait_until(lambda: sidecar.door()["lag"] == 0)


def test_two_sidecars_of_one_group_lose_nothing_and_do_no_work_twice(broker, home, sidecars):
    """Partitions move to and fro while both may compact: every row stays, every commit is looked at, and a table is rewritten by one of them."""
    broker.topic("shared", 4)
    writer = Writer(home)
    tables = [f"t{n}" for n in range(4)]
    for table in tables:
        writer.table(table)
    start = lambda name: Sidecar(home, name, [("shared", "json")], broker.plain, "shared", SOON_MISSED, act=True)
    first = start("first")
    sidecars.append(first)
    second = None

    def write(partition, table, ids):
        snapshot = append_again(writer, table, ids)
        broker.write("shared", [event(home, table, snapshot)], partition)

    for round in range(18):
        if round == 10:
            engines.wait_until(lambda: all(no_file_is_replaced_twice(writer, table) for table in tables))
            second = start("second")
            sidecars.append(second)
        if round == 14:
            first.kill()
            first.start()
        for partition, table in enumerate(tables):
            write(partition, table, round)
    engines.wait_until(lambda: [committed for committed, _ in broker.ends("shared", "shared", 4)] == [18] * 4, seconds=120)
    assert first.door()["received"] and second.door()["received"], "both take part"
    head = lambda table: str(writer.catalog.load_table(f"db.{table}").current_snapshot().snapshot_id)
    known = lambda table: {*first.partitions(table).values(), *second.partitions(table).values()}
    engines.wait_until(lambda: all(head(table) in known(table) for table in tables))
    jobs = lambda sidecar: sidecar.afterwrite.json("jobs", "--limit", "1000")
    assert jobs(second) == [], "the tables are left to the one that rewrote them"
    # where it is gone for the time that the table allows, the other one takes the table over
    first.stop()
    properties_again(writer, "t3", **{"afterwrite.keep-out": "1s"})
    for round in range(18, 28):
        write(3, "t3", round)
    engines.wait_until(lambda: any(job["state"] == "committed" for job in jobs(second)))
    second.stop()
    assert {job["table"] for job in jobs(second)} == {f"{home.name}.db.t3"}
    never_at_once(jobs(first), jobs(second))
    for table in tables:
        assert writer.ids(table) == sorted(list(range(28 if table == "t3" else 18)) * 3), table
        assert no_file_is_replaced_twice(writer, table), f"{table} was never compacted"


def test_two_sidecars_that_find_the_same_tables_never_rewrite_in_one_at_once(broker, home, sidecars, monkeypatch):
    """Both see at their start what neither has ever rewritten; claims decide which of them does, and it alone reads."""
    monkeypatch.setenv("AFTERWRITE_CLAIMS", "true")
    # it compares heads: both of two claims that are written at once may stand
    home.shared = home.shared or os.environ.get("AFTERWRITE_TEST_REST")
    broker.topic("claimed")
    writer = Writer(home)
    tables = [f"t{n}" for n in range(6)]
    for table in tables:
        writer.table(table)
        for round in range(10):
            writer.append(table, [round])
    for name in ("first", "second"):
        sidecars.append(Sidecar(home, name, [("claimed", "json")], broker.plain, "claimed", act=True))
    compacted = lambda: all(no_file_is_replaced_twice(writer, table) for table in tables)
    engines.wait_until(compacted, seconds=120)
    jobs = []
    for sidecar in sidecars:
        sidecar.stop()
        jobs.append(sidecar.afterwrite.json("jobs", "--limit", "1000"))
    never_at_once(*([job for job in all if job["wasted_bytes"] or job["state"] == "committed"] for all in jobs))
    done = [[job["table"] for job in all if job["state"] == "committed"] for all in jobs]
    assert sorted({*done[0], *done[1]}) == [f"{home.name}.db.{table}" for table in tables]
    assert not {*done[0]} & {*done[1]}, "a table is left to the one that claimed it"
    for table in tables:
        assert writer.ids(table) == sorted(list(range(10)) * len(PARTS)), table


def never_at_once(mine, theirs):
    """No job of one sidecar was under way while the other had one on the same table, whatever came of them."""
    for one in mine:
        for other in theirs:
            apart = one["changed_ms"] <= other["created_ms"] or other["changed_ms"] <= one["created_ms"]
            assert one["table"] != other["table"] or apart, f"{one} and {other}"


def properties_again(writer, table, **properties):
    """As `append_again`, of properties."""
    from pyiceberg.exceptions import CommitFailedException

    while True:
        try:
            with writer.catalog.load_table(f"db.{table}").transaction() as change:
                return change.set_properties(**properties)
        except CommitFailedException:
            continue


def append_again(writer, table, round):
    """A commit that may lose its race against a compaction, as any writer's."""
    from pyiceberg.exceptions import CommitFailedException

    while True:
        try:
            return writer.append(table, [round])
        except CommitFailedException:
            continue


def no_file_is_replaced_twice(writer, table):
    """The files that compactions took away, each once."""
    loaded = writer.catalog.load_table(f"db.{table}")
    gone = []
    for snapshot in loaded.snapshots():
        if snapshot.summary.operation.value == "replace":
            for manifest in snapshot.manifests(loaded.io):
                if manifest.added_snapshot_id == snapshot.snapshot_id:
                    entries = manifest.fetch_manifest_entry(loaded.io, discard_deleted=False)
                    gone += [e.data_file.file_path for e in entries if e.status.value == 2]
    assert len(gone) == len(set(gone)), f"{table}: a file was compacted twice"
    return gone


def test_tls_and_a_password_let_in_and_a_wrong_password_is_told(broker, home, sidecars):
    broker.topic("secret")
    Writer(home)
    properties = f"""
[kafka.test.properties]
security.protocol = "SASL_SSL"
ssl.ca.location = "{broker.certs}/ca.pem"
sasl.mechanism = "PLAIN"
sasl.username = "{brokers.USER}"
sasl.password = "%s"
"""
    wrong = Sidecar(home, "wrong", [("secret", "json")], broker.sasl, "secret", properties % "guess")
    sidecars.append(wrong)
    problem = engines.wait_until(lambda: wrong.door()["problem"])
    assert "uthentication" in problem and "guess" not in problem, problem
    wrong.stop()
    right = Sidecar(home, "right", [("secret", "json")], broker.sasl, "secret", properties % brokers.PASSWORD)
    sidecars.append(right)
    broker.write("secret", [event(home, "t")])
    engines.wait_until(lambda: right.door()["received"] == 1)
    assert engines.wait_until(lambda: right.door()["problem"] is None)
