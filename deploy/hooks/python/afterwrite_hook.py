"""Tells afterwrite of commits made from Python: by a catalog that tells of its own, or by one line after a write.

A PyIceberg catalog, in `.pyiceberg.yaml` or in `load_catalog`, that tells of every commit that it makes:

    catalog:
      lake:
        py-catalog-impl: afterwrite_hook.catalog
        afterwrite.type: sql                          # what `type` would be: sql, rest, glue, hive, …
        afterwrite.endpoint: http://127.0.0.1:7412
        uri: …

Any other writer:

    hook = afterwrite_hook.Hook("http://127.0.0.1:7412")
    table.append(rows)
    hook.committed(table)                             # or hook.committed("lake.sales.orders")

    with hook.after("lake.sales.orders"):             # tells unless the block raises
        write_deltalake(path, rows, mode="append")

Nothing here slows or fails a write: commits go into a bounded queue, a daemon thread posts them, and what does not arrive is dropped and
counted. The sidecar's poller finds such a commit, only later.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import importlib
import json
import logging
import os
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

__all__ = ["Hook", "catalog"]

log = logging.getLogger("afterwrite_hook")
BATCH = 64
ATTEMPTS = 3
BACKOFF = 0.5
WARN_EVERY = 60.0


class Hook:
    """A queue of commits and the thread that posts them.

    endpoint    the sidecar's HTTP door
    token       its bearer token; else the environment's AFTERWRITE_TOKEN
    catalog     the sidecar's name of the catalog, where it is not PyIceberg's
    queue_size  commits that may wait; more are dropped
    timeout     of one request, in seconds
    flush       the most that the end of the process waits for the queue, in seconds
    """

    def __init__(self, endpoint, token=None, catalog=None, queue_size=1024, timeout=3.0, flush=2.0):
        address = urllib.parse.urlsplit(str(endpoint))
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError(f"endpoint: {endpoint} is no http address; write http://host:7412")
        self._url = str(endpoint) if address.path.strip("/") else f"{address.scheme}://{address.netloc}/v1/commits"
        self._token = token or os.environ.get("AFTERWRITE_TOKEN") or None
        self._catalog = catalog
        self._size, self._timeout, self._flush = int(queue_size), float(timeout), float(flush)
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._waiting = collections.deque()
        self._changed = threading.Condition()
        self._thread, self._pid = None, None
        self._sending, self._closed = 0, False
        self.offered = self.sent = self.dropped = 0
        self._warned_at, self._warned_of = -WARN_EVERY, 0
        atexit.register(self.close)

    def committed(self, table, snapshot=None):
        """Tells of a commit to a table. Never raises, never waits.

        table     a PyIceberg table, or `catalog.namespace.table` by the sidecar's name of the catalog
        snapshot  the snapshot's id; of a PyIceberg table its current one by default
        """
        try:
            self._offer(_event(table, self._catalog, snapshot))
        except Exception as problem:  # whatever was handed over, the write has been made
            log.debug("a commit is not told: %s", problem)

    def _made(self, catalog, table, made, updates):
        """Tells of what a catalog has just committed: the snapshots that were added, and the branch when it is another than main."""
        try:
            added = [u.snapshot.snapshot_id for u in updates if u.action == "add-snapshot"]
            refs = [u.ref_name for u in updates if u.action in ("set-snapshot-ref", "remove-snapshot-ref")]
            if added or refs:
                event = _said(_named(_Made(catalog, table, made), self._catalog), added)
                self._offer(event if "main" in refs or not refs else {**event, "ref": refs[0]})
        except Exception as problem:
            log.debug("a commit is not told: %s", problem)

    @contextlib.contextmanager
    def after(self, table):
        """Tells of a commit when the block ends, unless it raises."""
        yield self
        self.committed(table)

    def flush(self, timeout=None):
        """Waits until nothing is under way; says whether that came true in time."""
        deadline = time.monotonic() + (self._flush if timeout is None else timeout)
        with self._changed:
            while self._waiting or self._sending:
                left = deadline - time.monotonic()
                if left <= 0 or self._pid != os.getpid():
                    return False
                self._changed.wait(left)
        return True

    def close(self):
        """Ends the thread, after a short wait for what is in the queue."""
        try:
            self.flush()
            with self._changed:
                self._closed = True
                self.dropped += len(self._waiting)
                self._waiting.clear()
                self._changed.notify_all()
            atexit.unregister(self.close)
        except Exception as problem:
            log.debug("not closed: %s", problem)

    def _offer(self, event):
        if self._pid != os.getpid():
            self._begin()
        with self._changed:
            self.offered += 1
            if self._closed or len(self._waiting) >= self._size:
                self.dropped += 1
                return
            self._waiting.append(event)
            self._changed.notify_all()

    def _begin(self):
        """Starts the thread; again in a process that was forked, which has neither the thread nor its locks."""
        if self._pid is not None:
            self._changed = threading.Condition()
            self._waiting, self._sending = collections.deque(), 0
        with self._changed:
            if self._pid != os.getpid():
                self._pid = os.getpid()
                self._thread = threading.Thread(target=self._run, name="afterwrite-hook", daemon=True)
                self._thread.start()

    def _run(self):
        changed = self._changed
        while True:
            with changed:
                while not self._waiting and not self._closed:
                    changed.wait()
                if not self._waiting:
                    return
                batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
                self._sending = len(batch)
            problem = "it was not tried"
            try:
                problem = self._deliver(batch)
            finally:
                with changed:
                    self._sending = 0
                    if problem is None:
                        self.sent += len(batch)
                    else:
                        self.dropped += len(batch)
                    changed.notify_all()
            self._warn(problem)

    def _deliver(self, batch):
        """Posts a batch in a few attempts; what is wrong when it did not arrive."""
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        body, problem = json.dumps(batch).encode(), None
        for attempt in range(ATTEMPTS):
            if attempt and not self._closed:
                time.sleep(BACKOFF * attempt)
            try:
                with self._opener.open(urllib.request.Request(self._url, body, headers), timeout=self._timeout) as answer:
                    answer.read()
                return None
            except urllib.error.HTTPError as refusal:
                problem = f"answered {refusal.code}"
                if refusal.code != 429 and refusal.code < 500:
                    break
            except Exception as trouble:
                problem = str(trouble)
        return problem

    def _warn(self, problem):
        lost = self.dropped - self._warned_of
        if lost and time.monotonic() - self._warned_at >= WARN_EVERY:
            self._warned_at, self._warned_of = time.monotonic(), self.dropped
            why = problem or "the queue was full"
            log.warning("%d commits were not told to afterwrite at %s (%s); its poller will find them", lost, self._url, why)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The token is for one address."""

    def redirect_request(self, *_):
        return None


def _event(table, catalog, snapshot):
    if isinstance(table, str):
        snapshots = [] if snapshot is None else [snapshot]
        return _said({"table": table}, snapshots)
    current = table.metadata.current_snapshot_id if snapshot is None else snapshot
    return _said(_named(table, catalog), [] if current is None else [current])


def _named(table, catalog):
    *namespace, name = table.name()
    path = {"catalog": catalog or table.catalog.name, "namespace": namespace, "table": name}
    return {"path": path, "tableUuid": str(table.metadata.table_uuid)}


def _said(event, snapshots):
    return {**event, "snapshots": [{"snapshotId": str(id)} for id in snapshots], "sender": "python hook"}


CATALOGS = {
    "rest": "pyiceberg.catalog.rest.RestCatalog",
    "sql": "pyiceberg.catalog.sql.SqlCatalog",
    "hive": "pyiceberg.catalog.hive.HiveCatalog",
    "glue": "pyiceberg.catalog.glue.GlueCatalog",
    "dynamodb": "pyiceberg.catalog.dynamodb.DynamoDbCatalog",
    "in-memory": "pyiceberg.catalog.memory.InMemoryCatalog",
    "bigquery": "pyiceberg.catalog.bigquery_metastore.BigQueryMetastoreCatalog",
}
_hooks = {}
_telling_classes = {}
_making = threading.Lock()


def catalog(name, **properties):
    """A PyIceberg catalog that tells of each commit it has made: `py-catalog-impl: afterwrite_hook.catalog`.

    `afterwrite.type` names the kind of catalog that `type` would have named, or `afterwrite.py-catalog-impl` its class. The other
    settings are those of `Hook`: `afterwrite.endpoint`, `.token`, `.catalog`, `.queue-size`, `.timeout`, `.flush`.
    """
    theirs = {key: value for key, value in properties.items() if not key.startswith("afterwrite.") and key != "py-catalog-impl"}
    ours = {key[len("afterwrite.") :].replace("-", "_"): value for key, value in properties.items() if key.startswith("afterwrite.")}
    kind = ours.pop("type", None)
    implementation = ours.pop("py_catalog_impl", None) or CATALOGS.get(kind)
    if implementation is None:
        raise ValueError(f"afterwrite.type: {kind} is not one of {', '.join(CATALOGS)}; or name a class in afterwrite.py-catalog-impl")
    module, _, attribute = implementation.rpartition(".")
    made = _telling(getattr(importlib.import_module(module), attribute))(name, **theirs)
    made.afterwrite_hook = _hook(ours)
    return made


def _hook(options):
    """The hook of these settings, shared by catalogs; `None`, with a warning, when they are wrong: a write goes before its hook."""
    key = tuple(sorted(options.items()))
    with _making:
        if key not in _hooks:
            try:
                _hooks[key] = Hook(**options)
            except Exception as problem:
                log.warning("afterwrite hears nothing of this catalog's commits: %s", problem)
                _hooks[key] = None
        return _hooks[key]


def _telling(base):
    """A kind of catalog, with its commits told after they were made."""
    with _making:
        if base not in _telling_classes:

            class Telling(base):
                afterwrite_hook = None

                def commit_table(self, table, requirements, updates):
                    made = super().commit_table(table, requirements, updates)
                    if self.afterwrite_hook is not None:
                        self.afterwrite_hook._made(self, table, made, updates)
                    return made

            Telling.__name__ = Telling.__qualname__ = f"Telling{base.__name__}"
            _telling_classes[base] = Telling
        return _telling_classes[base]


class _Made:
    """A table as its commit left it; the table itself gets to know only later."""

    def __init__(self, catalog, table, made):
        self.catalog, self.metadata, self.name = catalog, made.metadata, table.name
