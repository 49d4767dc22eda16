"""Rows of any engine as one count and one order-free hash.

Each row becomes a canonical text (columns by name, floats widened, one NaN, -0.0 apart
from 0.0, NULL apart from empty, maps and structs as sorted pairs), then SHA-256; the hashes
are added modulo 2^128, so order does not matter and doubled rows do.
"""

import datetime as dt
import decimal
import functools
import hashlib
import math
import uuid

EPOCH = dt.datetime(1970, 1, 1)


def moment(value):
    if value.tzinfo is not None:
        value = value.astimezone(dt.timezone.utc).replace(tzinfo=None)
    return f"t{(value - EPOCH) // dt.timedelta(microseconds=1)}"


# by the value's own type; what takes long is told once for equal values, whose text is the same
FORMS = {
    type(None): lambda value: "N",
    bool: lambda value: f"b{int(value)}",
    int: lambda value: f"i{value}",
    float: lambda value: "fNaN" if math.isnan(value) else f"f{value.hex()}",
    decimal.Decimal: functools.lru_cache(100_000)(lambda value: "d" + format(value.normalize(), "f") if value else "d0"),
    str: lambda value: f"s{len(value)}:{value}",
    dt.datetime: functools.lru_cache(100_000)(moment),
    dt.date: functools.lru_cache(100_000)(lambda value: "D" + value.isoformat()),
    dt.time: lambda value: "T" + value.isoformat(),
}


def canonical(value):
    if form := FORMS.get(type(value)):
        return form(value)
    if isinstance(value, dt.datetime):  # pandas has a kind of its own
        return moment(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "x" + bytes(value).hex()
    if isinstance(value, uuid.UUID):
        return canonical(str(value))
    if hasattr(value, "asDict"):
        return canonical(value.asDict(recursive=False))
    if isinstance(value, dict):
        return "{" + ",".join(sorted(canonical(k) + "=" + canonical(v) for k, v in value.items())) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(canonical(v) for v in value) + "]"
    raise TypeError(f"no canonical form for {type(value)}")


class Digest:
    """Count and order-free hash of rows."""

    def __init__(self, names):
        self.order = sorted(range(len(names)), key=lambda i: names[i])
        self.count = 0
        self.sum = 0

    def add(self, row):
        text = "|".join(canonical(row[i]) for i in self.order)
        self.count += 1
        self.sum = (self.sum + int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")) % 2**128

    def result(self):
        return self.count, f"{self.sum:032x}"


def digest(names, rows):
    d = Digest(names)
    for row in rows:
        d.add(row)
    return d.result()
