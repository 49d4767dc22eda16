"""Rows of any engine as one count and one order-free hash.

Each row becomes a canonical text (columns by name, floats widened, one NaN, -0.0 apart
from 0.0, NULL apart from empty, maps and structs as sorted pairs), then SHA-256; the hashes
are added modulo 2^128, so order does not matter and doubled rows do.
"""

import datetime as dt
import decimal
import hashlib
import math
import uuid

EPOCH = dt.datetime(1970, 1, 1)


def canonical(value):
    if value is None:
        return "N"
    if isinstance(value, bool):
        return f"b{int(value)}"
    if isinstance(value, int):
        return f"i{value}"
    if isinstance(value, float):
        if math.isnan(value):
            return "fNaN"
        return f"f{value.hex()}"
    if isinstance(value, decimal.Decimal):
        return "d" + format(value.normalize(), "f") if value else "d0"
    if isinstance(value, str):
        return f"s{len(value)}:{value}"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "x" + bytes(value).hex()
    if isinstance(value, dt.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(dt.timezone.utc).replace(tzinfo=None)
        return f"t{(value - EPOCH) // dt.timedelta(microseconds=1)}"
    if isinstance(value, dt.date):
        return "D" + value.isoformat()
    if isinstance(value, dt.time):
        return "T" + value.isoformat()
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
