"""Figures as a table or as JSON lines, printed as they come."""

import json
import os

LIMITS = {
    # (benchmark, figure): (what the goal asks, whether more is better)
    ("L1", "spark_wall_ratio"): (15.0, True),
    ("L1", "spark_memory_ratio"): (0.1, False),
    ("L1", "output_bytes_ratio"): (1.0, False),
    ("L1", "scan_ratio"): (1.05, False),
    ("L1", "duckdb_wall_ratio"): (5.0, True),
    ("splice_vs_copy", "splice_vs_copy"): (0.8, True),
    ("reencode_vs_datafusion", "reencode_vs_datafusion"): (1.0, True),
    ("trigger_to_commit_s", "trigger_to_commit_s"): (0.2, False),
    ("flink_rewrites", "flink_rewrites"): (2, False),
    ("row_group_memory_ratio", "row_group_memory_ratio"): (1.0, False),
    ("observe_ratio", "observe_ratio"): (1.2, False),
    ("manifest_entries_per_s", "manifest_entries_per_core_s"): (300_000, True),
    ("hook_calls_per_s", "hook_calls_per_s"): (100_000, True),
    ("partition_bytes", "partition_bytes"): (256, False),
    ("restart_s", "restart_s"): (1.0, False),
}

# what the table at the end shows of each input
VARIANTS = {
    "spark_wall_ratio": "wall, times faster than Spark",
    "spark_cpu_ratio": "CPU, times less than Spark",
    "spark_memory_ratio": "memory / Spark's",
    "output_bytes_ratio": "bytes / Spark's",
    "duckdb_wall_ratio": "wall, times faster than DuckDB's `COPY`",
    "proof_share": "share of the proof",
}


class Figures:
    """Prints each figure; knows nothing of how it was measured."""

    def __init__(self, as_json):
        self.as_json = as_json
        self.case = None
        # by case, the figures that `end` puts side by side
        self.variants = {}

    def machine(self, facts):
        if self.as_json:
            # a figure like the others, so that whoever reads them needs no exception
            self._json({"name": "machine", "value": len(os.sched_getaffinity(0)), "unit": "cores", **facts})
        else:
            print("\n".join(f"{key:<12}{value}" for key, value in facts.items()), flush=True)

    def begin(self, case):
        self.case = case
        if not self.as_json:
            print(f"\n{case}", flush=True)

    def figure(self, name, value, unit, peer=None, **more):
        """One figure. `more`: what it was made of (`ours`, `theirs`), the scale, the tier."""
        figure = {"name": name, "case": self.case, "value": _short(value), "unit": unit}
        if peer:
            figure |= {"peer": peer, "ratio": figure["value"]}
        self._tell({**figure, **{key: _short(v) for key, v in more.items() if v is not None and v is not False}})

    def measured(self, figure, quick):
        """A figure that another program measured."""
        self._tell({**figure, "case": self.case, **({"quick": True} if quick else {})})

    def end(self):
        """What was compacted beside peers as one table in Markdown, a row an input: the way taken, and the ratios."""
        if self.as_json or not self.variants:
            return
        titles = ["input", "tier", *VARIANTS.values()]
        print("\n| " + " | ".join(titles) + " |\n" + "|---" * len(titles) + "|")
        for case, figures in self.variants.items():
            tier = next(figure.get("tier") for figure in figures.values())
            ratios = [f"{figures[name]['value']:.2g}" if name in figures else "" for name in VARIANTS]
            print("| " + " | ".join([f"`{case}`", tier or "", *ratios]) + " |", flush=True)

    def _tell(self, figure):
        if figure["name"] in VARIANTS:
            self.variants.setdefault(self.case, {})[figure["name"]] = figure
        limit = LIMITS.get((self.case, figure["name"]))
        if limit and not figure.get("quick"):
            figure["goal"] = f"{'≥' if limit[1] else '≤'} {limit[0]:,g}"
        if self.as_json:
            self._json(figure)
            return
        known = ("name", "case", "value", "unit", "peer", "ratio", "quick")
        rest = "  ".join(f"{key}={value}" for key, value in figure.items() if key not in known)
        against = f"against {figure['peer']}" if figure.get("peer") else ""
        print(f"  {figure['name']:<28}{_short(figure['value']):>12} {figure['unit']:<8}{against:<20}{rest}", flush=True)

    @staticmethod
    def _json(value):
        print(json.dumps(value, ensure_ascii=False), flush=True)


def _short(value):
    """Three or four digits say all that a run can tell."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    return value
