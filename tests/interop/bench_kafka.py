"""Events a second from a Kafka topic to absorbed looks. Prints what it measures.

    tests/run --with sh -c 'AFTERWRITE_BIN=target/release/afterwrite "$AFTERWRITE_TEST_PYICEBERG" tests/interop/bench_kafka.py'
"""

import pathlib
import sys
import tempfile
import time

import broker as brokers
import engines
import test_kafka

EVENTS = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
PARTITIONS, TABLES = 4, 100


def field(number, value):
    return bytes([number << 3 | 2, len(value)]) + value


def commit(table, snapshot):
    """afterwrite.v1.CommitEvent with a table and a snapshot."""
    return field(1, table.encode()) + field(5, field(1, str(snapshot).encode()))


def main():
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        broker = brokers.Broker(scratch / "broker")
        try:
            home = engines.Home(scratch / "home")
            writer = test_kafka.Writer(home)
            for n in range(TABLES):
                writer.table(f"t{n}")
            broker.topic("bench", PARTITIONS)
            for partition in range(PARTITIONS):
                mine = range(partition, EVENTS, PARTITIONS)
                broker.write("bench", (commit(f"lake.db.t{n % TABLES}", n) for n in mine), partition)
            began = time.monotonic()
            sidecar = test_kafka.Sidecar(home, "bench", [("bench", "protobuf")], broker.plain, "bench")
            first = None
            while (door := sidecar.door())["received"] < EVENTS or door["lag"]:
                first = first or (door["received"] and time.monotonic())
                time.sleep(0.2)
            took = time.monotonic() - (first or began)
            offsets = broker.ends("bench", "bench", PARTITIONS)
            print(f"{EVENTS} events over {TABLES} tables absorbed in {took:.1f} s: {EVENTS / took:,.0f} a second; offsets {offsets}")
            print(door)
            sidecar.stop()
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
