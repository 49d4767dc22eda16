"""No reader may prune a live row: counts with predicates pushed down against a count over all rows."""

import collections
import datetime as dt
import decimal
import random

import duckdb
import pyarrow.compute as pc
import pyarrow.dataset as ds

import files


def check(lab, table, trino=None, spark=True):
    """Every flat column of the table's files: counts of chosen values, and of what lies below and above them."""
    paths = [f["file_path"].removeprefix("file:").replace("///", "/") for f in lab.spark.files(table)]
    rows = [files.read(path) for path in paths]
    wanted = {}
    for name in (f.name for f in rows[0].schema if not f.type.num_fields):
        values = [v for part in rows for v in part[name].to_pylist()]
        wanted[name] = {value: count(values, value) for value in chosen(values)}
    duck(paths, wanted)
    arrow(paths, wanted)
    for told, ask in sql_readers(lab, table, paths, trino, spark):
        for name, counts in wanted.items():
            if len(counts) > 1:
                assert ask(counting(name, counts)) == numbered(counts), f"{told} prunes live rows of {name}"


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


def predicates(counts):
    """At the bounds and just inside them, with the rows that each must find: a few, since engines take their time for each."""
    lowest, highest, *_ = counts
    return [(value, sign, counts[value][sign]) for value, sign in [(lowest, "="), (lowest, ">"), (highest, "="), (highest, "<")]]


def counting(name, counts):
    """One statement with a scan for each count, so that each pushes its own predicate down."""
    nan = lambda value: f" AND NOT {name} = CAST('NaN' AS DOUBLE)" if isinstance(value, float) else ""  # noqa: E731
    parts = [f"SELECT {i} AS i, count(*) AS n FROM {{source}} WHERE {name} {sign} {literal(value)}{nan(value)}" for i, (value, sign, _) in enumerate(predicates(counts))]
    return " UNION ALL ".join(parts)


def numbered(counts):
    return {i: found for i, (_, _, found) in enumerate(predicates(counts))}


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


def sql_readers(lab, table, paths, trino, spark):
    """Engines asked by SQL, with the name of the source to put in."""
    def through(source, ask):
        return lambda text: ask(text.replace("{source}", source))

    def spark_counts(text):
        return {r["i"]: r["n"] for r in lab.spark.sql(text).collect()}

    if spark:
        # Iceberg's reader prunes files, row groups, dictionaries and bloom filters; Spark's own prunes pages by their index
        yield "Spark on the table", through(f"lake.{table}", spark_counts)
        lab.spark.session.read.parquet(*[str(p) for p in paths]).createOrReplaceTempView("files_of_table")
        yield "Spark on the files", through("files_of_table", spark_counts)
    if trino:
        exact = lambda text: text.replace("AS TIMESTAMP)", "AS TIMESTAMP(6))")  # noqa: E731
        yield "Trino", through(table, lambda text: {i: n for i, n in trino.sql(exact(text))[1]})
