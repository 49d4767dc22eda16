"""Runs last: every file that afterwrite wrote in this run, as parquet-java and pyarrow see it."""

import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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


def test_the_predicates_see_a_bound_that_leaves_out_a_value(sample):
    counts = {"n": {LOWEST: {"=": 1, "<": 0, ">": 1999}}}
    for reader in (prune.arrow, prune.duck):
        reader([sample], counts)
    damaged = sample.read_bytes()
    tail = footer(damaged)
    sample.write_bytes(damaged[:tail] + damaged[tail:].replace(struct.pack("<q", LOWEST), struct.pack("<q", LOWEST + 5)))
    for reader in (prune.arrow, prune.duck):
        with pytest.raises(AssertionError, match="n"):
            reader([sample], counts)


def footer(file):
    return len(file) - 8 - struct.unpack("<i", file[-8:-4])[0]
