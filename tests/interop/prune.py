"""No reader may prune a live row: counts with predicates pushed down against a count over all rows."""

import collections
import datetime as dt
import decimal
import random

import duckdb
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyiceberg.expressions import EqualTo, GreaterThan, LessThan

import batches
import files


def check(lab, table, trino=None):
    """Every flat column of the table's files: counts of chosen values, and of what lies below and above them."""
    paths = [f["file_path"].removeprefix("file:").replace("///", "/") for f in lab.spark.files(table)]
    wanted = counted([files.read(path) for path in paths])
    duck(paths, wanted)
    arrow(paths, wanted)
    through_tables(lab, table, wanted, trino)
    # Spark's own reader prunes pages by their index; in batches it knows no split bytes
    split = set().union(*(batches.having(path, lambda chunk: "BYTE_STREAM_SPLIT" in chunk.encodings) for path in paths))
    for switch in batches.SWITCHES["Spark"]:
        lab.spark.session.conf.set(switch, str(not split).lower())
    lab.spark.session.read.parquet(*map(str, paths)).createOrReplaceTempView("files_of_table")
    by_sql("Spark on the files", "files_of_table", wanted, spark_asks(lab))


def through_tables(lab, table, wanted, trino=None):
    """The readers that find the files in the table: these prune manifests and files by their bounds, too."""
    scans(lab.pyiceberg.catalog.load_table(table), wanted)
    by_sql("DuckDB", lab.duckdb.source(table), wanted, lab.duckdb.rows, within=True)
    # row groups, dictionaries and bloom filters, by Iceberg's reader
    by_sql("Spark", f"{lab.spark.catalog}.{table}", wanted, spark_asks(lab))
    if trino:
        by_sql("Trino", table.rsplit(".", 1)[1], wanted, lambda text: trino.sql(text.replace("AS TIMESTAMP)", "AS TIMESTAMP(6))"))[1])


def counted(tables):
    """By flat column, and by chosen value, how many rows are equal to, below and above it."""
    wanted = {}
    for name in (f.name for f in tables[0].schema if not f.type.num_fields):
        values = [v for part in tables for v in part[name].to_pylist()]
        wanted[name] = {value: count(values, value) for value in chosen(values)}
    return wanted


def chosen(values):
    """The outermost values, some between them, and one that is not there; NaN has no order."""
    distinct = sorted({v for v in values if v is not None and v == v})
    if not distinct:
        return []
    between = random.Random(1).sample(distinct, min(12, len(distinct)))
    return list(dict.fromkeys([distinct[0], distinct[-1], *outside(distinct), *distinct[1:2], *distinct[-2:-1], *between]))


def outside(distinct):
    last = distinct[-1]
    if isinstance(last, bool):
        return []
    if isinstance(last, (dt.date, dt.datetime)):
        return [last + dt.timedelta(days=1)]
    return [last + "a"] if isinstance(last, str) else [last + b"a"] if isinstance(last, bytes) else [last + 1]


def count(values, value):
    """Rows equal to, below and above; NaN is above all for the engines here."""
    seen = collections.Counter("=" if v == value else "<" if v < value else ">" for v in values if v is not None and v == v)
    return {sign: seen[sign] for sign in "=<>"}


SIGNS = "=<>"


def predicates(wanted, within=True):
    """At the bounds and, if asked, just inside them, with the rows that each must find: a few, since engines take their time for each."""
    for name, counts in wanted.items():
        if len(counts) > 1:
            lowest, highest, *_ = counts
            signs = [(lowest, "="), (highest, "="), *([(lowest, ">"), (highest, "<")] if within else [])]
            yield from ((name, value, sign, counts[value][sign]) for value, sign in signs)


def by_sql(reader, source, wanted, ask, within=False):
    """One statement with a scan for each count, so that each pushes its own predicate down."""
    nan = lambda name, value: f" AND NOT {name} = CAST('NaN' AS DOUBLE)" if isinstance(value, float) else ""  # noqa: E731
    asked = list(predicates(wanted, within))
    assert asked, "there is nothing to ask for"
    parts = [f"SELECT {i} AS i, count(*) AS n FROM {source} WHERE {name} {sign} {literal(value)}{nan(name, value)}" for i, (name, value, sign, _) in enumerate(asked)]
    found = {i: n for i, n in ask(" UNION ALL ".join(parts))}
    for i, (name, value, sign, rows) in enumerate(asked):
        assert found[i] == rows, f"{reader} finds {found[i]} rows where {name} {sign} {value!r}, not {rows}"


def spark_asks(lab):
    return lambda text: [(r["i"], r["n"]) for r in lab.spark.sql(text).collect()]


def scans(table, wanted):
    """PyIceberg, which leaves out manifests and files by their bounds, and row groups by Arrow."""
    kinds = {"=": EqualTo, "<": LessThan, ">": GreaterThan}
    for name, value, sign, rows in predicates(wanted):
        at = value.replace(tzinfo=None).isoformat() if isinstance(value, dt.datetime) else value
        found = table.scan(row_filter=kinds[sign](name, at), selected_fields=(name,)).to_arrow()
        seen = sum(v is not None and v == v for v in found[name].to_pylist())
        assert seen == rows, f"PyIceberg finds {seen} rows where {name} {sign} {value!r}, not {rows}"


def literal(value):
    """Spelled as Spark, Trino and DuckDB all read it."""
    if isinstance(value, bool) or isinstance(value, int):
        return str(value).lower()
    if isinstance(value, float):
        return f"CAST('{value!r}' AS DOUBLE)"
    if isinstance(value, decimal.Decimal):
        return f"CAST('{value}' AS DECIMAL(38, {-value.as_tuple().exponent}))"
    if isinstance(value, dt.datetime):
        return f"CAST('{value.replace(tzinfo=None)}' AS TIMESTAMP)"
    if isinstance(value, dt.date):
        return f"DATE '{value}'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return "'" + value.replace("'", "''") + "'"


def duck(paths, wanted):
    source = f"read_parquet({[str(p) for p in paths]})"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, counts in wanted.items():
            for value, counted in counts.items():
                for sign in SIGNS:
                    nan = f" AND NOT isnan({name})" if isinstance(value, float) else ""
                    found = connection.execute(f"SELECT count(*) FROM {source} WHERE {name} {sign} ?{nan}", [value]).fetchone()[0]
                    assert found == counted[sign], f"DuckDB finds {found} rows where {name} {sign} {value!r}, not {counted[sign]}"


def arrow(paths, wanted):
    source = ds.dataset([str(p) for p in paths])
    for name, counts in wanted.items():
        for value, counted in list(counts.items())[:6]:
            field, scalar = ds.field(name), pc.scalar(value)
            found = {"=": source.count_rows(filter=field == scalar), "<": source.count_rows(filter=field < scalar), ">": source.count_rows(filter=field > scalar)}
            assert found == counted, f"pyarrow prunes live rows of {name} at {value!r}"
