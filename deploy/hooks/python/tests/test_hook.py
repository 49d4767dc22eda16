import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

import afterwrite_hook
from afterwrite_hook import Hook


class Door:
    """A sidecar's HTTP door that keeps what it hears."""

    def __init__(self):
        self.heard, self.tokens, self.statuses, self.gate = [], [], [], threading.Event()
        self.gate.set()
        door = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                door.gate.wait(20)
                assert self.path == "/v1/commits"
                door.tokens.append(self.headers["Authorization"])
                status = door.statuses.pop(0) if door.statuses else 200
                if status == 200:
                    door.heard += body
                self.send_response(status)
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def door():
    door = Door()
    yield door
    door.gate.set()
    door.server.shutdown()


def counts(hook):
    return hook.offered, hook.sent, hook.dropped


def test_a_commit_is_told_by_the_tables_name(door):
    hook = Hook(door.url, token="s3cret")
    hook.committed("lake.db.t", snapshot=9007199254740993)
    hook.committed("lake.db.u")
    assert hook.flush(10)
    assert door.heard == [
        {"table": "lake.db.t", "snapshots": [{"snapshotId": "9007199254740993"}], "sender": "python hook"},
        {"table": "lake.db.u", "snapshots": [], "sender": "python hook"},
    ]
    assert set(door.tokens) == {"Bearer s3cret"}
    hook.close()


def test_a_block_that_raises_tells_nothing(door):
    hook = Hook(door.url)
    with pytest.raises(KeyError):
        with hook.after("lake.db.t"):
            raise KeyError("the write failed")
    with hook.after("lake.db.u"):
        pass
    assert hook.flush(10)
    assert [e["table"] for e in door.heard] == ["lake.db.u"]


def test_whatever_is_handed_over_nothing_is_raised(door):
    hook = Hook(door.url)
    for wrong in (None, 7, object()):
        hook.committed(wrong)
    hook.committed("lake.db.t")
    assert hook.flush(10) and len(door.heard) == 1


def test_what_finds_no_room_is_dropped_and_counted_and_nobody_waits(door):
    door.gate.clear()
    hook = Hook(door.url, queue_size=8)
    start = time.monotonic()
    writers = [threading.Thread(target=lambda: [hook.committed("lake.db.t", n) for n in range(500)]) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(10)
    assert time.monotonic() - start < 5 and not any(w.is_alive() for w in writers)
    door.gate.set()
    assert hook.flush(10)
    assert hook.offered == 2000 and hook.sent + hook.dropped == 2000
    assert len(door.heard) == hook.sent and 8 <= hook.sent <= 16


def test_a_sidecar_that_is_away_costs_the_writer_nothing():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        hook = Hook(f"http://127.0.0.1:{closed.getsockname()[1]}", timeout=0.2, flush=0.1)
        start = time.monotonic()
        hook.committed("lake.db.t")
        assert time.monotonic() - start < 0.1
        assert hook.flush(10)
        assert counts(hook) == (1, 0, 1)
        start = time.monotonic()
        hook.committed("lake.db.t")
        hook.close()
        assert time.monotonic() - start < 1, "the end of a process waits no longer than it may"


def test_what_may_pass_is_tried_again_and_a_refusal_or_a_redirect_is_not(door):
    door.statuses = [503, 200, 401, 302, 200]
    hook = Hook(door.url, token="s3cret")
    for n in range(4):
        hook.committed("lake.db.t", n)
        assert hook.flush(10)
    assert [e["snapshots"][0]["snapshotId"] for e in door.heard] == ["0", "3"]
    assert counts(hook) == (4, 2, 2) and len(door.tokens) == 5


def test_a_forked_process_tells_its_own_commits(door):
    hook = Hook(door.url)
    hook.committed("lake.db.parent")
    assert hook.flush(10)
    child = os.fork()
    if child == 0:
        hook.committed("lake.db.child")
        os._exit(0 if hook.flush(10) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert [e["table"] for e in door.heard] == ["lake.db.parent", "lake.db.child"]


def test_a_short_program_tells_its_last_commit(door):
    program = "import sys, afterwrite_hook; afterwrite_hook.Hook(sys.argv[1]).committed('lake.db.last')"
    subprocess.run([sys.executable, "-c", program, door.url], env={**os.environ, "PYTHONPATH": os.path.dirname(afterwrite_hook.__file__)}, check=True, timeout=30)
    assert [e["table"] for e in door.heard] == ["lake.db.last"]


def test_a_wrong_address_is_told_at_once():
    for wrong in ("sidecar:7412", "", None, "ftp://h"):
        with pytest.raises(ValueError, match="http://host:7412"):
            Hook(wrong)


@pytest.fixture
def lake(tmp_path):
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog import load_catalog

    def load(**properties):
        made = load_catalog(
            "lake", **{"py-catalog-impl": "afterwrite_hook.catalog", "afterwrite.type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}", **properties}
        )
        made.create_namespace_if_not_exists("db")
        return made

    return load


def rows(*ids):
    import pyarrow as pa

    return pa.table({"id": pa.array(ids, pa.int64())})


def test_a_catalog_tells_of_every_snapshot_that_it_commits(door, lake):
    catalog = lake(**{"afterwrite.endpoint": door.url, "afterwrite.flush": "5"})
    table = catalog.create_table("db.t", rows(1).schema)
    table.append(rows(1, 2))
    first = table.current_snapshot().snapshot_id
    table.overwrite(rows(3))
    with table.transaction() as transaction:
        transaction.set_properties({"a": "b"})
    with catalog.create_table_transaction("db.made", rows(1).schema) as transaction:
        transaction.append(rows(7))
    hook = catalog.afterwrite_hook
    assert hook.flush(10)
    made = [str(s.snapshot_id) for s in table.snapshots()]
    told = [[s["snapshotId"] for s in e["snapshots"]] for e in door.heard if e["path"]["table"] == "t"]
    assert made[0] == str(first) and told == [made[:1], made[1:]], "an overwrite is one commit of two snapshots; properties are none"
    assert door.heard[0]["path"] == {"catalog": "lake", "namespace": ["db"], "table": "t"}
    assert door.heard[0]["tableUuid"] == str(table.metadata.table_uuid)
    assert [e["path"]["table"] for e in door.heard] == ["t", "t", "made"]


def test_a_branch_is_named(door, lake):
    catalog = lake(**{"afterwrite.endpoint": door.url, "afterwrite.catalog": "prod"})
    table = catalog.create_table("db.b", rows(1).schema)
    table.append(rows(1))
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()
    table.append(rows(2), branch="audit")
    assert catalog.afterwrite_hook.flush(10)
    assert [e.get("ref") for e in door.heard] == [None, "audit", "audit"]
    assert {e["path"]["catalog"] for e in door.heard} == {"prod"}


def test_one_line_after_a_write_tells_the_tables_newest_snapshot(door, lake):
    from pyiceberg.catalog.sql import SqlCatalog

    plain = lake(**{"afterwrite.endpoint": door.url})
    table = SqlCatalog("lake", uri=plain.properties["uri"], warehouse=plain.properties["warehouse"]).create_table("db.p", rows(1).schema)
    hook = Hook(door.url)
    table.append(rows(1))
    hook.committed(table)
    with hook.after(table):
        table.append(rows(2))
    assert hook.flush(10)
    assert [e["snapshots"][0]["snapshotId"] for e in door.heard] == [str(s.snapshot_id) for s in table.snapshots()]


@pytest.mark.parametrize("wrong", [{}, {"afterwrite.endpoint": "nowhere"}, {"afterwrite.endpoint": "http://h", "afterwrite.nonsense": "1"}, {"afterwrite.endpoint": "http://h", "afterwrite.timeout": "soon"}])
def test_settings_that_are_wrong_leave_the_catalog_as_it_is(lake, wrong):
    catalog = lake(**wrong)
    table = catalog.create_table("db.w", rows(1).schema)
    table.append(rows(1))
    assert table.scan().to_arrow().num_rows == 1 and catalog.afterwrite_hook is None


def test_a_kind_of_catalog_that_is_not_known_is_refused_by_name(lake):
    with pytest.raises(ValueError, match="afterwrite.type: nessie"):
        lake(**{"afterwrite.type": "nessie"})
    named = afterwrite_hook.catalog("lake", **{"afterwrite.py-catalog-impl": "pyiceberg.catalog.noop.NoopCatalog"})
    assert type(named).__name__ == "TellingNoopCatalog"


def test_a_delta_tables_commit_is_told(door, tmp_path):
    deltalake = pytest.importorskip("deltalake")
    hook = Hook(door.url)
    with hook.after("lake.db.delta"):
        deltalake.write_deltalake(str(tmp_path / "delta"), rows(1), mode="append")
    assert hook.flush(10) and [e["table"] for e in door.heard] == ["lake.db.delta"]
