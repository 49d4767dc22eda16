"""What a job's time limit does to its plan in the journal."""

import pyarrow as pa

import engines

MEMORY = 512 << 20


def test_a_job_of_any_time_limit_is_journaled(scratch):
    home = engines.Home(scratch / "journal")
    pyiceberg = engines.PyIceberg(home)
    pyiceberg.catalog.create_namespace("db")
    for seconds in range(10, 26):
        table = pyiceberg.catalog.create_table(f"db.t{seconds}", pa.schema([("id", pa.int64())]))
        for i in range(2):
            table.append(pa.table({"id": [i]}))
        config = home.config(f'[defaults]\nmemory_limit = "{MEMORY}"\nmax_job_time = "{seconds}s"\n')
        results = engines.Afterwrite(config).compact(f"db.t{seconds}")
        assert [(r["result"], r["detail"]) for r in results] == [("committed", "")], f"{seconds} s"
