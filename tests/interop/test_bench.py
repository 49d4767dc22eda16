"""The benchmarks' runner: every figure that the project promises is a name that can be asked for, and tells value and unit."""

import glob
import json
import os
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROMISED = (
    "spark_wall_ratio spark_memory_ratio output_bytes_ratio scan_ratio duckdb_wall_ratio L1 L1_SF1 position_deletes equality_deletes "
    "columns_300 nested long_strings tiny_files snappy gzip by_spark by_pyiceberg by_duckdb by_flink by_trino splice_vs_copy "
    "reencode_vs_datafusion trigger_to_commit_s observe_ratio manifest_entries_per_s hook_calls_per_s hook_p99_ms partition_bytes "
    "restart_s write_amplification flink_rewrites row_group_memory_ratio metadata_json proof_share"
).split()


def peers(program, **environment):
    """Runs a few lines against the runner's package."""
    env = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "tests/bench"), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def listing(tmp_path):
    """A stand-in for the binary that has the library's own benchmarks: what their sources name."""
    import re

    lines = []
    for source in sorted(glob.glob(os.path.join(ROOT, "tests/bench/src/*.rs"))):
        with open(source) as file:
            found = re.search(r'BENCH: Bench = Bench \{\s*name: "(\w+)",\s*also: &\[(.*?)\]', file.read(), re.S)
        if found:
            lines.append("\t".join([found[1], " ".join(re.findall(r'"(\w+)"', found[2])), "about"]))
    assert len(lines) == 9
    binary = tmp_path / "listing"
    binary.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(lines) + "\nEND\n")
    binary.chmod(0o755)
    return str(binary)


def test_every_promised_figure_is_a_name_that_can_be_run(listing):
    program = (
        "import json, sys; from peers import __main__ as m; ours = m.own(); known = {**m.benchmarks(), **{n: None for n in ours}}; "
        f"figures = m.by_figure(known, ours); print(json.dumps([m.chosen([n], known, figures) for n in {PROMISED!r}]))"
    )
    chosen = json.loads(peers(program, AFTERWRITE_BENCH_BIN=listing))
    assert [len(names) for names in chosen] == [1] * len(PROMISED)
    asked = dict(zip(PROMISED, (names[0] for names in chosen)))
    assert (asked["hook_p99_ms"], asked["scan_ratio"], asked["snappy"]) == ("hook_calls_per_s", "L1", "snappy")


def test_each_line_tells_a_name_a_value_and_a_unit():
    program = (
        "from peers.figures import Figures; f = Figures(True); f.machine({'memory': '1 GiB'}); f.begin('L1'); "
        "f.figure('spark_wall_ratio', 8.0, 'x', 'spark', ours=1.0); f.figure('proof_share', 0.25, 'share')"
    )
    machine, ratio, share = [json.loads(line) for line in peers(program).splitlines()]
    assert (machine["name"], machine["unit"]) == ("machine", "cores") and machine["value"] >= 1
    assert (ratio["value"], ratio["unit"], ratio["peer"], ratio["ratio"]) == (8.0, "x", "spark", 8.0)
    assert (share["name"], share["value"], share["unit"]) == ("proof_share", 0.25, "share")
    with open(os.path.join(ROOT, "tests/bench/peers/compaction.py")) as file:
        assert '"proof_share", parts["proof_s"] / max(parts["seconds"], 1e-9), "share"' in file.read()


def test_what_was_compacted_beside_peers_is_one_table_at_the_end():
    program = (
        "from peers.figures import Figures; f = Figures(False); f.begin('snappy'); "
        "f.figure('spark_wall_ratio', 8.123, 'x', 'spark', tier='re-pack'); f.figure('proof_share', 0.25, 'share', tier='re-pack'); "
        "f.begin('nested'); f.figure('spark_wall_ratio', 2.0, 'x', 'spark', tier='re-encode'); f.begin('other'); f.figure('else', 1, 'x'); f.end()"
    )
    lines = [line for line in peers(program).splitlines() if line.startswith("|")]
    assert lines[0].startswith("| input | tier | wall, times faster than Spark |")
    assert lines[2:] == ["| `snappy` | re-pack | 8.1 |  |  |  |  | 0.25 |", "| `nested` | re-encode | 2 |  |  |  |  |  |"]
    assert "|" not in peers("from peers.figures import Figures; f = Figures(True); f.begin('a'); f.end()")
