"""Trino: a reader that applies equality deletes, and a writer with encodings of its own. One process; a catalog a home."""

import base64
import datetime as dt
import decimal
import json
import time
import urllib.request
import uuid

import java
import rows

FLAGS = [
    "-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "--add-modules=jdk.incubator.vector", "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED", "-Djdk.attach.allowAttachSelf=true", "--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED",
]


class Trino:
    def __init__(self, scratch):
        command = [java.java25(), *FLAGS, "-cp", java.classes("trino"), "afterwrite.interop.TrinoServer"]
        self.child = java.Child(command, scratch / "trino.log")
        self.url = self.child.ready["url"]
        self.homes = {}

    def open(self, home, **properties):
        """The home's catalog under a name of its own: the name in the shared database stays the home's."""
        if home.folder not in self.homes:
            name = f"lake{len(self.homes)}"
            settings = {
                "iceberg.catalog.type": "jdbc", "iceberg.jdbc-catalog.driver-class": "org.sqlite.JDBC", "iceberg.jdbc-catalog.catalog-name": home.name,
                "iceberg.jdbc-catalog.connection-url": f"jdbc:sqlite:{home.database}?busy_timeout=30000&journal_mode=WAL&synchronous=NORMAL&transaction_mode=IMMEDIATE",
                "iceberg.jdbc-catalog.default-warehouse-dir": f"file://{home.warehouse}", "fs.local.enabled": "true", "local.location": "/",
                **properties,
            }
            self.child.tell("\t".join(["catalog", name, *(f"{k}={v}" for k, v in settings.items())]))
            self.homes[home.folder] = name
        return TrinoHome(self.url, self.homes[home.folder])

    def stop(self):
        self.child.stop()


class TrinoHome:
    """One home in Trino."""

    def __init__(self, url, catalog):
        self.url = url
        self.catalog = catalog

    def sql(self, text, **session):
        """Names of the columns, and the rows."""
        headers = {"X-Trino-User": "interop", "X-Trino-Catalog": self.catalog, "X-Trino-Schema": "db", "X-Trino-Time-Zone": "UTC", "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME"}
        if session:
            headers["X-Trino-Session"] = ",".join(f"{k}={v}" for k, v in session.items())
        page = _fetch(urllib.request.Request(f"{self.url}/v1/statement", text.encode(), headers))
        columns, found = [], []
        while True:
            assert "error" not in page, f"{page['error']['message']}: {text}"
            columns = page.get("columns") or columns
            found += [[_value(c["typeSignature"], v) for c, v in zip(columns, row)] for row in page.get("data") or []]
            if "nextUri" not in page:
                return [c["name"] for c in columns], found
            page = _fetch(urllib.request.Request(page["nextUri"], headers={"X-Trino-User": "interop"}))

    def digest(self, table, snapshot=None):
        at = f" FOR VERSION AS OF {snapshot}" if snapshot else ""
        return rows.digest(*self.sql(f"SELECT * FROM {table}{at}"))


def _fetch(request):
    while True:
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as e:
            if e.code != 503:
                raise
            time.sleep(0.1)


def _value(signature, value):
    """A value of Trino's JSON as the other readers give it."""
    kind = signature["rawType"]
    inner = [a["value"] for a in signature["arguments"]]
    if value is None:
        return None
    if kind == "decimal":
        return decimal.Decimal(value)
    if kind in ("double", "real"):
        return float(value)
    if kind == "varbinary":
        return base64.b64decode(value)
    if kind == "date":
        return dt.date.fromisoformat(value)
    if kind == "time":
        return dt.time.fromisoformat(value)
    if kind == "uuid":
        return uuid.UUID(value)
    if kind.startswith("timestamp"):
        return dt.datetime.fromisoformat(value.removesuffix(" UTC"))
    if kind == "array":
        return [_value(inner[0], v) for v in value]
    if kind == "map":
        return {_key(inner[0], k): _value(inner[1], v) for k, v in value.items()}
    if kind == "row":
        return {f["fieldName"]["name"]: _value(f["typeSignature"], v) for f, v in zip(inner, value)}
    return value


def _key(signature, key):
    return int(key) if signature["rawType"] in ("integer", "bigint") else _value(signature, key)
