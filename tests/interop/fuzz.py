"""Random tables as pyarrow and parquet-rs write them: types, nulls, nesting, dictionaries that overlap, grow and fall back, encodings by column."""

import decimal
import itertools
import os
import random

import pyarrow as pa
import pyarrow.parquet as pq

LEAVES = [
    pa.bool_(), pa.int32(), pa.int64(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(7, 2), pa.decimal128(15, 3), pa.decimal128(30, 5),
    pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.string(), pa.string(), pa.binary(), pa.binary(5),
]
CODECS = ["zstd", "snappy", "gzip", "lz4", "none"]


def random_type(rng, depth=0):
    if depth >= 2 or rng.random() < 0.75:
        return rng.choice(LEAVES)
    inner = lambda: random_type(rng, depth + 1)  # noqa: E731
    kind = rng.randrange(3)
    if kind == 0:
        return pa.list_(inner())
    if kind == 1:
        return pa.map_(pa.string(), inner())
    return pa.struct([(f"f{i}", inner()) for i in range(1 + rng.randrange(3))])


def random_schema(rng):
    """The first column counts rows; a column is required now and then."""
    columns = [pa.field(f"c{i}", random_type(rng), nullable=rng.random() > 0.15) for i in range(2 + rng.randrange(7))]
    return pa.schema([pa.field("rid", pa.int64()), *columns])


class Values:
    """Arrays of one file; what the table's seed decides is the same in all of its files."""

    def __init__(self, seed, file):
        self.rng = random.Random(f"{seed} {file}")
        self.seed = seed
        self.file = file
        self.place = 0

    def array(self, kind, count, nullable=True):
        self.place += 1
        like = random.Random(f"{self.seed} column {self.place}")
        share = like.choice([0, 0, 0.1, 0.9, 1]) if nullable else 0
        nulls = [self.rng.random() < share for _ in range(count)]
        if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return self.repeated(kind, count, nulls)
        if pa.types.is_struct(kind):
            inner = [self.array(field.type, count, field.nullable) for field in kind]
            return pa.StructArray.from_arrays(inner, fields=list(kind), mask=pa.array(nulls, type=pa.bool_()))
        numbers = self.numbers(like, count)
        places = {number: place for place, number in enumerate(dict.fromkeys(numbers))}
        pool = pa.array([leaf(kind, number) for number in places], type=kind)
        return pool.take(pa.array([None if null else places[number] for number, null in zip(numbers, nulls)], type=pa.int64()))

    def numbers(self, like, count):
        """Few numbers that all files share, few that move from file to file, sorted, a dictionary that falls back, or many."""
        shape, few, rng = like.randrange(5), 1 + like.randrange(60), self.rng
        if shape == 0:
            return [rng.randrange(few) for _ in range(count)]
        if shape == 1:
            return [self.file * 20 + rng.randrange(50) for _ in range(count)]
        if shape == 2:
            return sorted(rng.randrange(300) for _ in range(count))
        if shape == 3:
            return [rng.randrange(9) if i < count // 2 else rng.randrange(1 << 40) for i in range(count)]
        return [rng.randrange(-(1 << 40), 1 << 40) for _ in range(count)]

    def repeated(self, kind, count, nulls):
        lengths = [0 if null else self.rng.randrange(4) for null in nulls]
        ends = list(itertools.accumulate(lengths, initial=0))
        if pa.types.is_map(kind):
            keys = pa.array([f"k{i}" for length in lengths for i in range(length)], type=kind.key_type)
            return pa.MapArray.from_arrays(pa.array(ends, type=pa.int32()), keys, self.array(kind.item_type, ends[-1]), type=kind, mask=pa.array(nulls, type=pa.bool_()))
        large = pa.types.is_large_list(kind)
        make, offsets = (pa.LargeListArray, pa.int64()) if large else (pa.ListArray, pa.int32())
        return make.from_arrays(pa.array(ends, type=offsets), self.array(kind.value_type, ends[-1]), type=kind, mask=pa.array(nulls, type=pa.bool_()))


def leaf(kind, number):
    """The same number is the same value."""
    if pa.types.is_boolean(kind):
        return number % 2 == 0
    if pa.types.is_int32(kind) or pa.types.is_date32(kind):
        return number % (1 << 31) - (1 << 30) if pa.types.is_int32(kind) else number % 40000 - 20000
    if pa.types.is_floating(kind):
        return float("nan") if number % 11 == 0 else -0.0 if number % 7 == 0 else float("inf") if number % 31 == 0 else number / 3
    if pa.types.is_decimal(kind):
        return decimal.Decimal(number % 10 ** (min(kind.precision, 15) - 1) - 7).scaleb(-kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return (number % (1 << 40)).to_bytes(kind.byte_width, "big")
    if pa.types.is_timestamp(kind) or pa.types.is_int64(kind):
        return number * 1000
    text = "" if number % 13 == 0 else "long " * 30 + str(number) if number % 17 == 0 else f"ü{number}" if number % 5 == 0 else f"v{number}"
    return text.encode() if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else text


def made(schema, seed, file, rows):
    """The rows of one file, and what its layout is drawn from."""
    values = Values(seed, file)
    rid = pa.array(range(file * 1_000_000, file * 1_000_000 + rows), type=pa.int64())
    return pa.Table.from_arrays([rid, *(values.array(f.type, rows, f.nullable) for f in list(schema)[1:])], schema=schema), values.rng


def write(path, schema, seed, file, rows, plain=False):
    """One file with random options; answers what they are. `plain`: no other encodings but dictionaries."""
    table, rng = made(schema, seed, file, rows)
    dictionary, encodings = columns(rng, schema)
    encodings = None if plain else encodings
    how = {
        "compression": "brotli" if rng.random() < 0.05 else rng.choice(CODECS), "version": rng.choice(["2.6", "2.4"]), "data_page_version": rng.choice(["1.0", "1.0", "2.0"]),
        "data_page_size": rng.choice([1 << 20, 1 << 20, 40_000]), "row_group_size": rng.choice([1 << 20, 1 << 20, 2500]), "write_page_index": rng.random() < 0.7,
        "dictionary_pagesize_limit": rng.choice([1 << 20, 1 << 20, 3000]), "write_page_checksum": rng.random() < 0.5, "store_decimal_as_integer": rng.random() < 0.8,
        "use_dictionary": dictionary, "column_encoding": encodings,
    }
    pq.write_table(table, path, **how)
    return f"pyarrow {how}"


RUST_CODECS = ["ZSTD(1)", "ZSTD(1)", "SNAPPY", "GZIP(6)", "LZ4_RAW", "UNCOMPRESSED"]


def write_rust(child, path, schema, seed, file, rows, plain=False):
    """The same by parquet-rs, a child that is told the layout."""
    table, rng = made(schema, seed, file, rows)
    arrow = f"{path}.arrow"
    with pa.OSFile(arrow, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    how = {
        "compression": "BROTLI(1)" if rng.random() < 0.05 else rng.choice(RUST_CODECS), "version": 1 if plain else rng.choice([1, 2]), "page_rows": rng.choice([20_000, 20_000, 1300]),
        "page_size": rng.choice([1 << 20, 1 << 20, 20_000]), "batch": rng.choice([1024, 100]), "dictionary_size": rng.choice([1 << 20, 1 << 20, 3000]),
        "group_rows": rng.choice([1 << 20, 1 << 20, 2500]), "statistics": rng.choice(["page", "page", "chunk", "none"]), "offset_index": rng.random() < 0.8,
        "truncate": rng.choice([None, 8, 64]), "coerce": rng.random() < 0.5,
    }
    leaves = [
        {"dictionary": rng.random() < 0.65, "encoding": rng.choice(_encodings(kind)) if rng.random() < 0.5 and not plain else None, "bloom": rng.random() < 0.1}
        for _, kind in _leaves(schema, store_decimal_as_integer=True)
    ]
    child.ask(**{"from": arrow, "to": path, **how, "columns": leaves})
    os.unlink(arrow)
    return f"parquet-rs {how} {leaves}"


def columns(rng, schema):
    """Which columns have a dictionary, and the encodings of those that have none."""
    physical = _leaves(schema)
    dictionary, encodings = [], {}
    for name, kind in physical:
        if rng.random() < 0.65:
            dictionary.append(name)
        elif rng.random() < 0.5:
            encodings[name] = rng.choice(_encodings(kind))
    return dictionary or False, encodings or None


def _encodings(kind):
    if kind == "BOOLEAN":
        return ["PLAIN", "RLE"]
    if kind in ("INT32", "INT64"):
        return ["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"]
    if kind == "BYTE_ARRAY":
        return ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"]
    return ["PLAIN", "BYTE_STREAM_SPLIT"]


def _leaves(schema, **how):
    """Path and physical type of every leaf, by the file that pyarrow would write."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink, **how)
    found = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    return [(found.column(i).path, found.column(i).physical_type) for i in range(len(found))]
