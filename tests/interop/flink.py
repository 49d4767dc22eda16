"""Flink: the engine that writes equality deletes, and a stream's reader. One process; a job a table, one commit a batch."""

import base64
import datetime as dt
import decimal

import java

OPENS = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("nio", "util", "lang", "time")]


class Flink:
    def __init__(self, scratch):
        command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *OPENS, "-cp", f"{java.classes('flink')}:{java.CACHE}/jars/aws/*", "afterwrite.interop.FlinkWriter"]
        self.child = java.Child(command, scratch / "flink.log")

    def open(self, home, table, keys=(), sink="v2", uri=None, properties=None):
        """A job that writes to an existing table; with `keys` it upserts."""
        self.child.ask(do="open", table=table, keys=list(keys), sink=sink, catalog={**catalog(home, uri), **(properties or {})})
        return Job(self.child, table)

    def follow(self, home, table, snapshot):
        """A job that reads what each commit adds, from that snapshot on."""
        self.child.ask(do="follow", table=table, snapshot=str(snapshot), catalog=catalog(home))
        return Reader(self.child, table)

    def stop(self):
        self.child.stop()


def catalog(home, uri=None):
    return {
        "uri": uri or f"jdbc:sqlite:{home.database}?busy_timeout=30000&journal_mode=WAL&synchronous=NORMAL&transaction_mode=IMMEDIATE",
        "warehouse": f"file://{home.warehouse}", "jdbc.schema-version": "V1", "clients": "1", "cache-enabled": "false",
    }


class Reader:
    def __init__(self, child, table):
        self.child = child
        self.table = table

    def seen(self):
        """The first column of all rows read so far, in their order."""
        return self.child.ask(do="seen", table=self.table)["seen"]

    def close(self):
        self.child.ask(do="leave", table=self.table)


class Job:
    def __init__(self, child, table):
        self.child = child
        self.table = table

    def upsert(self, rows):
        """One checkpoint; answers the summary of its snapshot."""
        return self.write([["+I", *row] for row in rows])

    def delete(self, rows):
        return self.write([["-D", *row] for row in rows])

    def write(self, rows):
        return self.child.ask(do="write", table=self.table, rows=[[plain(v) for v in row] for row in rows])["summary"]

    def close(self):
        self.child.ask(do="close", table=self.table)


def plain(value):
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, (dt.date, decimal.Decimal)):
        return str(value)
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value
