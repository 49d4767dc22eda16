"""Generated inputs: tables of many small files, written by real engines."""

import dataclasses
import shutil

from . import deletes, duck
from .lake import CATALOG

TARGET = 128 << 20


@dataclasses.dataclass(frozen=True)
class Size:
    """How much of lineitem: `steps` × `split` × `buckets` files."""

    scale: float
    steps: int
    split: int = 1
    buckets: int = 8

    @property
    def name(self):
        return f"sf{self.scale:g}".replace(".", "_") + f"_{self.steps}x{self.split}x{self.buckets}"


SF10 = Size(10, 250)
SF1 = Size(1, 25)
QUICK = Size(0.01, 6, 1, 2)


def properties(**more):
    """What every table says of its files; all that rewrite it read the same."""
    said = {"format-version": 2, "write.parquet.compression-codec": "zstd", "write.target-file-size-bytes": TARGET}
    said |= {"write.distribution-mode": "none", "write.spark.fanout.enabled": "true", **more}
    return ", ".join(f"'{key}'='{value}'" for key, value in said.items())


def slices(world, size):
    """lineitem as DuckDB's files, from which every writer takes its rows."""
    folder = world.home / "slices" / size.name.rsplit("x", 1)[0]
    if not folder.exists():
        new = folder.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        duck.lineitem(new, size.scale, size.steps, size.split)
        new.rename(folder)
    return folder


LINEITEM = (
    "l_orderkey BIGINT, l_partkey BIGINT, l_suppkey BIGINT, l_linenumber BIGINT, l_quantity DECIMAL(15,2), l_extendedprice DECIMAL(15,2), "
    "l_discount DECIMAL(15,2), l_tax DECIMAL(15,2), l_returnflag STRING, l_linestatus STRING, l_shipdate DATE, l_commitdate DATE, "
    "l_receiptdate DATE, l_shipinstruct STRING, l_shipmode STRING, l_comment STRING"
)


def lineitem(world, size, codec="zstd", name="lineitem", then=None, columns=LINEITEM):
    """lineitem in buckets by order key, one file a bucket and slice. `then`: what happens to the table afterwards."""

    def make(table):
        by = f"PARTITIONED BY (bucket({size.buckets}, l_orderkey)) " if size.buckets else ""
        said = properties(**{"write.parquet.compression-codec": codec})
        world.spark.sql(f"CREATE TABLE {CATALOG}.{table} ({columns}) USING iceberg {by}TBLPROPERTIES ({said})")
        world.spark.append(table, slices(world, size))
        if then:
            then(table)
        return {"scale": f"SF{size.scale:g}"}

    return world.lake.seed(f"{name}_{codec}_{size.name}", make)


def position_deletes(world, size):
    """One row in twenty, by Spark's merge-on-read DELETE: a delete file for each data file."""

    def then(table):
        world.spark.sql(f"ALTER TABLE {CATALOG}.{table} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
        world.spark.sql(f"DELETE FROM {CATALOG}.{table} WHERE pmod(xxhash64(l_orderkey, l_linenumber), 20) = 0")

    return lineitem(world, size, name="position_deletes", then=then)


def equality_deletes(world, size):
    """One order in twenty, by its key: a delete file for each bucket."""
    return lineitem(world, size, name="equality_deletes", then=lambda table: deletes.by_equality(world.lake, table, "l_orderkey", 20))


def spark_rows(world, name, columns, files, rows):
    """`files` files of `rows` rows each, from expressions over `id`."""

    def make(table):
        frame = world.spark.session.range(0, files * rows, 1, files).selectExpr(*columns)
        frame.createOrReplaceTempView("made")
        # a column that cannot be null would be a required one, which is another schema than most tables have
        kinds = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in frame.schema.fields)
        world.spark.sql(f"CREATE TABLE {CATALOG}.{table} ({kinds}) USING iceberg TBLPROPERTIES ({properties()})")
        world.spark.sql(f"INSERT INTO {CATALOG}.{table} SELECT * FROM made")
        return {"scale": f"{files} files of {rows} rows"}

    return world.lake.seed(f"{name}_{files}x{rows}", make)


def wide(world, files, rows):
    """300 columns: numbers, text of few and of many values, decimals, dates, and nulls."""
    kinds = [
        "xxhash64(id, {0})",
        "CAST(pmod(xxhash64(id, {0}), 1000) AS INT)",
        "rand({0}) * 1000",
        "concat('value ', pmod(xxhash64(id, {0}), 40))",
        "IF(id % 7 = 0, NULL, hex(xxhash64(id, {0})))",
        "CAST(pmod(xxhash64(id, {0}), 1000000) AS DECIMAL(18,2))",
        "date_add(DATE'2020-01-01', CAST(pmod(xxhash64(id, {0}), 2000) AS INT))",
        "timestamp_micros(1700000000000000 + id * 1000 + {0})",
        "id % 3 = 0",
        "IF(id % 10 < 9, NULL, id)",
    ]
    return spark_rows(world, "columns_300", [f"{kinds[i % len(kinds)].format(i)} AS c{i}" for i in range(300)], files, rows)


def nested(world, files, rows):
    columns = [
        "id",
        "IF(id % 5 = 0, NULL, transform(sequence(1, 1 + CAST(id % 6 AS INT)), x -> concat('item ', pmod(xxhash64(id, x), 500)))) AS texts",
        "map(concat('k', id % 7), CAST(id % 1000 AS INT), concat('l', id % 5), CAST(id AS INT)) AS counts",
        "IF(id % 9 = 0, NULL, named_struct('a', CAST(id % 50 AS INT), 'b', named_struct('c', rand(1), 'd', hex(xxhash64(id))), "
        "'l', transform(sequence(1, 1 + CAST(id % 4 AS INT)), x -> id + x))) AS s",
        "transform(sequence(1, 1 + CAST(id % 3 AS INT)), x -> named_struct('k', x, 'v', concat('v', id % 100))) AS pairs",
    ]
    return spark_rows(world, "nested", columns, files, rows)


def long_strings(world, files, rows):
    """Values of 1 to 8 KB that compress to about half."""
    text = "concat_ws(' ', transform(sequence(1, 60 + CAST(pmod(xxhash64(id), 420) AS INT)), x -> hex(xxhash64(id, x))))"
    return spark_rows(world, "long_strings", ["id", f"{text} AS body", "concat('kind ', id % 20) AS kind"], files, rows)
