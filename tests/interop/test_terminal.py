"""What people see and type: progress bars on a terminal, gRPC calls without files."""

import fcntl
import json
import os
import pty
import shutil
import struct
import subprocess
import termios
import threading

import pyarrow as pa
import pytest

import engines
import reflected
from reflected import objects
from sidecar import Sidecar

ESCAPE = "\x1b["


@pytest.fixture(scope="module")
def home(scratch):
    home = engines.Home(scratch / "terminal")
    catalog = engines.PyIceberg(home).catalog
    catalog.create_namespace("db")
    for name in ("seen", "unseen"):
        table = catalog.create_table(f"db.{name}", pa.schema([("id", pa.int64())]))
        for i in range(6):
            table.append(pa.table({"id": list(range(i * 1000, i * 1000 + 1000))}))
    return home


def on_a_terminal(*command):
    """Runs a command whose standard error is a terminal: standard output, and what the terminal was sent."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm-256color"}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs, text=True, env=environment)
    os.close(theirs)
    sent = []

    def read():
        # a terminal without a writer is an error on Linux
        try:
            while part := os.read(ours, 1 << 16):
                sent.append(part)
        except OSError:
            pass

    reader = threading.Thread(target=read)
    reader.start()
    out, _ = process.communicate(timeout=300)
    reader.join(30)
    os.close(ours)
    assert process.returncode == 0, (out, sent)
    return out, b"".join(sent).decode()


def without_one(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def results(out):
    return [json.loads(line)["result"] for line in out.splitlines()]


def test_a_compaction_shows_how_far_it_is_on_a_terminal_and_only_there(home):
    command = lambda table: (os.environ["AFTERWRITE_BIN"], "--config", str(home.config()), "compact", f"lake.db.{table}", "--json")  # noqa: E731
    out, sent = on_a_terminal(*command("seen"))
    assert results(out) == ["committed"]
    assert ESCAPE in sent and "compacting lake.db.seen" in sent and "planning partitions of lake.db.seen" in sent, sent
    out, err = without_one(*command("unseen"))
    assert results(out) == ["committed"]
    assert ESCAPE not in err and "compacting" not in err, err


def test_the_demo_shows_how_far_it_is_on_a_terminal_and_only_there(scratch):
    command = lambda folder: (os.environ["AFTERWRITE_BIN"], "demo", "--dir", str(scratch / folder), "--scale", "0.001", "--commits", "3", "--json")  # noqa: E731
    out, sent = on_a_terminal(*command("demo-seen"))
    assert len(json.loads(out)["tables"]) == 2
    assert ESCAPE in sent and "3/3" in sent, sent
    out, err = without_one(*command("demo-unseen"))
    assert len(json.loads(out)["tables"]) == 2
    assert ESCAPE not in err and "3/3" not in err, err


@pytest.fixture(scope="module")
def listening(home):
    sidecar = Sidecar(home, "")
    yield sidecar
    sidecar.stop()


@pytest.fixture(scope="module", params=["python", "grpcurl"])
def asked(request, listening):
    """Asks the server what its reflection offers: by a client in Python, and by grpcurl where that is installed."""
    if request.param == "python":
        client = reflected.Client(listening.grpc)
        yield client
        client.close()
        return
    tools = engines.CACHE / "tools" / "bin"
    binary = shutil.which("grpcurl", path=f"{tools}:{os.environ['PATH']}")
    if binary is None:
        pytest.skip("grpcurl did not install: it is built with Go")

    def run(*words, data=None, ok=True):
        command = [binary, "-plaintext", *(["-d", data] if data else []), listening.grpc, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert ok is None or (done.returncode == 0) == ok, (command, done.stdout, done.stderr)
        return done.stdout if ok else done.stdout + done.stderr

    yield run


def test_reflection_lists_and_describes_the_services_without_files(asked):
    assert {"afterwrite.v1.CommitHook", "afterwrite.v1.Layout", "grpc.health.v1.Health"} <= set(asked("list").split())
    assert "afterwrite.v1.CommitHook.ReportCommits" in asked("list", "afterwrite.v1.CommitHook").split()
    assert "string snapshot_id = 1;" in asked("describe", "afterwrite.v1.SnapshotChange")


def test_health_is_asked_for_without_files(asked):
    for service in ("", "afterwrite.v1.CommitHook", "afterwrite.v1.Layout"):
        assert objects(asked("grpc.health.v1.Health/Check", data=json.dumps({"service": service}))) == [{"status": "SERVING"}]
    assert "NotFound" in asked("grpc.health.v1.Health/Check", data='{"service": "nobody"}', ok=False)


def test_a_commit_is_reported_as_the_readme_says(asked):
    report = "afterwrite.v1.CommitHook/ReportCommit"
    [answer] = objects(asked(report, data='{"table": "lake.db.seen"}'))
    assert answer["status"] == "ACCEPTED"
    snapshots = [{"snapshot_id": "9007199254740993"}]
    [answer] = objects(asked(report, data=json.dumps({"table": "lake.db.seen", "snapshots": snapshots})))
    assert answer["status"] in ("ACCEPTED", "DUPLICATE")
    [answer] = objects(asked(report, data='{"table": "lake.db.seen", "ref": "audit"}'))
    assert answer == {"status": "IGNORED", "reason": "branch `audit` is not looked after: only `main` is"}
    assert "NotFound" in asked(report, data='{"table": "sea.db.t"}', ok=False)
    assert "InvalidArgument" in asked(report, data='{"table": "t"}', ok=False)
    events = [{"seq": 7, "event": {"table": "lake.db.seen"}}, {"seq": 8, "event": {"table": "t"}}, {"seq": 9, "event": {"table": "lake.db.unseen"}}]
    answers = objects(asked("afterwrite.v1.CommitHook/ReportCommits", data="".join(map(json.dumps, events))))
    assert [(a["seq"], a["status"]) for a in answers] == [("7", "ACCEPTED"), ("8", "REJECTED"), ("9", "ACCEPTED")]


def test_a_layout_is_read_without_files(asked):
    asked("afterwrite.v1.CommitHook/ReportCommit", data='{"table": "lake.db.seen"}')
    ask = lambda ok=True: asked("afterwrite.v1.Layout/GetLayout", data='{"table": "lake.db.seen"}', ok=ok)  # noqa: E731
    engines.wait_until(lambda: "NotFound" not in ask(ok=None))
    assert objects(ask())[0]["traits"]["records"] == "6000"
