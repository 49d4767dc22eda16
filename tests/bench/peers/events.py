"""From a Kafka topic to absorbed looks: events a second, and how long one waits at half of that."""

import os
import pathlib
import sys
import threading
import time

INTEROP = pathlib.Path(__file__).parents[2] / "interop"
PARTITIONS, TABLES = 4, 100
TOPIC = "commits"


def measure(world, figures):
    """Commits of 100 tables in 4 partitions, written before the sidecar starts; then commits at half that rate.

    An event counts when a look that began after it was read is absorbed and its offset may move. The wait is the age of the oldest
    event that is not absorbed, as the sidecar tells it: the reader counts every 100 ms.
    """
    broker, home, door = _interop()
    events, seconds = (20_000, 1) if world.quick else (2_000_000, 10)
    folder = world.folder("kafka")
    brokers = broker.Broker(folder / "broker")
    try:
        place = home.Home(folder / "home")
        writer = door.Writer(place)
        for n in range(TABLES):
            writer.table(f"t{n}")
        brokers.topic(TOPIC, PARTITIONS)
        for partition in range(PARTITIONS):
            brokers.write(TOPIC, (_commit(n) for n in range(partition, events, PARTITIONS)), partition)
        sidecar = door.Sidecar(place, "bench", [(TOPIC, "protobuf")], brokers.plain, "bench")
        rate = _drained(sidecar, events)
        figures.figure("kafka_events_per_s", rate, "1/s", events=events, tables=TABLES, quick=world.quick)
        # hardly changed by whatever else the machine does; the start of the sidecar is in it
        figures.figure("kafka_cpu_us_per_event", _cpu_seconds(sidecar.process.pid) / events * 1e6, "µs", events=events, quick=world.quick)
        computed = _cpu_seconds(sidecar.process.pid)
        waits = _paced(brokers, sidecar, rate / 2, seconds)
        paced = _cpu_seconds(sidecar.process.pid) - computed
        figures.figure("kafka_paced_cpu_us_per_event", paced / (rate / 2 * seconds) * 1e6, "µs", rate=int(rate / 2), quick=world.quick)
        # of records that are all still with the broker nobody tells the age
        told = [wait for wait in waits if wait is not None]
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            figures.figure(f"kafka_wait_{name}_ms", _quantile(told, share), "ms", rate=int(rate / 2), samples=len(told), untold=len(waits) - len(told), quick=world.quick)
        behind = lambda door: door["lag"] or door["received"] < sum(end for _, end in brokers.ends(TOPIC, "bench", PARTITIONS))
        until = time.monotonic() + 60
        while behind(sidecar.door()) and time.monotonic() < until:
            time.sleep(0.1)
        sidecar.stop()
        ends = brokers.ends(TOPIC, "bench", PARTITIONS)
        if any(committed != end for committed, end in ends):
            raise RuntimeError(f"offsets committed and written differ: {ends}")
    finally:
        brokers.stop()


def _interop():
    """The tests' own broker, catalog and sidecar."""
    os.environ.setdefault("AFTERWRITE_TEST_CACHE", str(pathlib.Path(os.environ["AFTERWRITE_BENCH_JARS"]).parents[1]))
    if str(INTEROP) not in sys.path:
        sys.path.insert(0, str(INTEROP))
    import broker
    import engines
    import test_kafka

    return broker, engines, test_kafka


def _drained(sidecar, events):
    """Events a second, from when the first ones were heard until none waits; those that were heard by then do not count."""
    began, first, heard = time.monotonic(), None, 0
    while (door := sidecar.door())["received"] < events or door["lag"]:
        if first is None and door["received"]:
            first, heard = time.monotonic(), door["received"]
        if time.monotonic() - began > 600:
            raise RuntimeError(f"the topic was not read in ten minutes: {door}")
        time.sleep(0.05)
    return (events - heard) / (time.monotonic() - first) if first else events / (time.monotonic() - began)


def _cpu_seconds(pid):
    """What a process has computed since it began, user and system."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _paced(brokers, sidecar, rate, seconds):
    """Writes at a steady rate. Milliseconds that the oldest event had waited, as often as it can be asked."""
    done = threading.Event()
    writing = threading.Thread(target=_write, args=(brokers, rate, seconds, done), daemon=True)
    waits = []
    writing.start()
    while not done.is_set():
        waits.append(sidecar.door()["staleness_ms"])
    writing.join()
    return waits


def _write(brokers, rate, seconds, done):
    producer = brokers.producer()
    began = time.monotonic()
    written = 0
    while (now := time.monotonic() - began) < seconds:
        due = int(rate * now)
        while written < due:
            try:
                producer.produce(TOPIC, _commit(written), partition=written % PARTITIONS)
                written += 1
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
        time.sleep(0.001)
    producer.flush(60)
    done.set()


def _quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def _commit(n):
    """afterwrite.v1.CommitEvent with a table and a snapshot."""
    return _field(1, f"lake.db.t{n % TABLES}".encode()) + _field(5, _field(1, str(n).encode()))


def _field(number, value):
    return bytes([number << 3 | 2, len(value)]) + value
