"""Runs last: every file that afterwrite wrote in this run, as parquet-java and pyarrow see it."""

import struct

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import engines
import files
import prune

pytestmark = pytest.mark.last


@pytest.fixture(scope="module")
def written(everything, others_ended):
    found = files.ours(everything)
    if not found:
        pytest.skip("nothing was compacted in this run")
    return found


def test_parquet_java_accepts_every_file_and_finds_all_that_it_says_true(written):
    found, blooms = files.checked(written)
    # pyarrow counts the bytes of DELTA_BYTE_ARRAY values wrongly, and page sizes are taken over from inputs: only random inputs have them
    assert [f for f in found if not ("/test_fuzz/" in f and "unencoded bytes of" in f and "DELTA_BYTE_ARRAY" in f)] == []
    if any("/test_repack/" in str(path) for path in written):
        assert blooms >= 2, "of the tables that want them, no file has a bloom filter"


def test_pyarrow_accepts_every_file_with_its_checksums(written):
    for path in written:
        assert files.read(path).num_rows == pq.read_metadata(path).num_rows, path


LOWEST = 0x1234567890ABC


@pytest.fixture
def sample(tmp_path):
    """A file of two pages a column, whose lowest value is easy to find in its footer and page index."""
    path = tmp_path / "sample.parquet"
    numbers = [LOWEST + i for i in range(2000)]
    table = pa.table({"n": numbers, "s": [f"text {i}" for i in numbers]})
    pq.write_table(table, path, use_dictionary=False, compression="none", write_page_index=True, write_page_checksum=True, data_page_size=4096)
    return path


def test_the_check_accepts_a_sound_file(sample):
    assert files.faults([sample]) == []


def test_the_check_sees_a_flipped_bit_in_a_page(sample):
    damaged = bytearray(sample.read_bytes())
    damaged[100] ^= 1
    sample.write_bytes(damaged)
    assert "CRC" in "".join(files.faults([sample])) or "checksum" in "".join(files.faults([sample]))


@pytest.mark.parametrize("where, told", [("page index", "page 0 bounds"), ("footer", "chunk bounds")])
def test_the_check_sees_a_bound_that_leaves_out_a_value(sample, where, told):
    damaged = sample.read_bytes()
    first_page, *others = [i for i in range(len(damaged)) if damaged.startswith(struct.pack("<q", LOWEST), i)]
    places = {"page index": [i for i in others if i < footer(damaged)], "footer": [i for i in others if i >= footer(damaged)]}[where]
    for place in places:
        damaged = damaged[:place] + struct.pack("<q", LOWEST + 5) + damaged[place + 8 :]
    sample.write_bytes(damaged)
    assert told in "".join(files.faults([sample]))


def test_the_check_counts_bloom_filters_and_sees_a_cut_bound_of_fixed_length(sample, tmp_path):
    assert files.checked([sample]) == ([], 0)
    short = tmp_path / "short.parquet"
    pq.write_table(pa.table({"f": pa.array([bytes([i]) * 12 for i in range(9)], type=pa.binary(12))}), short, compression="none", use_dictionary=False)
    assert files.faults([short]) == []
    # Thrift's length before the 12 bytes of the highest value, and of the lowest: one byte fewer each, and a field header of its own
    damaged = short.read_bytes()
    tail = footer(damaged)
    high = damaged.index(b"\x0c" + b"\x08" * 12, tail)
    short.write_bytes(damaged[:high] + b"\x0b" + damaged[high + 1 : high + 12] + damaged[high + 13 : -8] + struct.pack("<i", len(damaged) - 9 - tail) + b"PAR1")
    assert "bytes are no values of 12" in "".join(files.faults([short]))


def test_the_check_sees_an_index_that_all_inputs_had_and_the_output_has_not(sample, tmp_path):
    bare = tmp_path / "bare.parquet"
    pq.write_table(pq.read_table(sample), bare, write_statistics=["s"])
    assert files.lost([sample], [sample]) == {}
    assert files.lost([sample, bare], [bare]) == {}
    every = {"column index", "offset index"}
    assert files.lost([sample], [sample, bare]) == {"n": every | {"statistics", "null count", "bounds"}, "s": every}


def test_the_predicates_see_a_bound_that_leaves_out_a_value(sample):
    counts = {"n": {LOWEST: {"=": 1, "<": 0, ">": 1999}, LOWEST + 1999: {"=": 1, "<": 1999, ">": 0}}}

    def by_sql(paths, counts):
        prune.by_sql("DuckDB", f"read_parquet('{paths[0]}')", counts, lambda text: duckdb.connect().execute(text).fetchall())

    for reader in (prune.arrow, prune.duck, by_sql):
        reader([sample], counts)
    damaged = sample.read_bytes()
    tail = footer(damaged)
    sample.write_bytes(damaged[:tail] + damaged[tail:].replace(struct.pack("<q", LOWEST), struct.pack("<q", LOWEST + 5)))
    for reader in (prune.arrow, prune.duck, by_sql):
        with pytest.raises(AssertionError, match="n"):
            reader([sample], counts)


def test_the_predicates_see_a_file_whose_bounds_in_the_manifest_leave_out_a_value(sample, tmp_path):
    home = engines.Home(tmp_path / "home")
    catalog = engines.PyIceberg(home).catalog
    catalog.create_namespace("db")
    rows = pq.read_table(sample)
    wanted = prune.counted([rows])
    table = catalog.create_table("db.t", rows.schema, properties={"write.avro.compression-codec": "null"})
    table.append(rows)
    reader = engines.DuckDB(home)
    readers = [lambda: prune.scans(table.refresh(), wanted), lambda: prune.by_sql("DuckDB", reader.source("db.t"), wanted, reader.rows)]
    for read in readers:
        read()
    [manifest] = home.folder.rglob("*-m0.avro")
    told = manifest.read_bytes()
    assert told.count(struct.pack("<q", LOWEST)) == 1
    manifest.write_bytes(told.replace(struct.pack("<q", LOWEST), struct.pack("<q", LOWEST + 5)))
    for read in readers:
        with pytest.raises(AssertionError, match="rows where n"):
            read()


def footer(file):
    return len(file) - 8 - struct.unpack("<i", file[-8:-4])[0]
