"""Position deletes by which engines disagree: DuckDB enters those of a statement under the table's present spec, with the
bounds of their paths under another field id, and joins them by path; Spark and PyIceberg join them by partition and see
the rows. A partition with such a row is refused by name and no engine sees a row come or go."""

import uuid

import pytest

import engines


@pytest.fixture(scope="module")
def rest(lab):
    server = engines.RestCatalog(lab.home)
    yield server
    server.stop()


def evolved(lab, table, change):
    """Files of two specs, 100 rows each in three commits."""
    lab.spark.sql(f"CREATE TABLE lake.db.{table} (id BIGINT, v STRING, p BIGINT) USING iceberg PARTITIONED BY (p) TBLPROPERTIES ('format-version'='2')")
    columns = "id, concat('v', id) AS v, id % 3 AS p"
    for i in range(6):
        if i == 3:
            lab.spark.sql(f"ALTER TABLE lake.db.{table} {change}")
        lab.spark.sql(f"INSERT INTO lake.db.{table} SELECT {columns} FROM range({i * 30}, {i * 30 + 30}, 1, 1)")


def readings(lab, table, readers):
    return {name: getattr(lab, name).digest(table) for name in readers}


def counts(seen):
    return {name: count for name, (count, _) in seen.items()}


@pytest.mark.parametrize("change", ["DROP PARTITION FIELD p", "REPLACE PARTITION FIELD p WITH bucket(2, id)"])
def test_duckdb_deletes_rows_of_files_of_an_older_spec(lab, rest, change):
    table = f"strays_{change.split()[0].lower()}"
    evolved(lab, table, change)
    lab.duckdb.run(rest.attach(), f"DELETE FROM ice.db.{table} WHERE id < 30 AND id % 3 = 1")
    deletes = lab.spark.files(f"db.{table}", "delete_files")
    assert {f["spec_id"] for f in deletes} == {1}
    # DuckDB does not read a table whose partition field was dropped
    readers = ["spark", "pyiceberg"] + (["duckdb"] if change.startswith("REPLACE") else [])
    before = readings(lab, f"db.{table}", readers)
    seen = {"spark": 180, "pyiceberg": 180, "duckdb": 170}
    assert counts(before) == {name: seen[name] for name in readers}
    results = lab.afterwrite.compact(f"db.{table}", ok=(3,))
    refused = [r for r in results if r.get("refusal")]
    # the partition p=1 of the old spec, and nothing else
    assert [(r["refusal"], r["partition"]) for r in refused] == [("stray-delete", "p=1")], results
    assert deletes[0]["file_path"] in refused[0]["detail"]
    assert len([r for r in results if r.get("snapshot_id")]) == (3 if "DROP" in change else 4)
    assert readings(lab, f"db.{table}", readers) == before
    # the delete stays for as long as DuckDB would see the rows again without it
    assert lab.spark.files(f"db.{table}", "delete_files") == deletes


def test_rows_deleted_again_by_another_engine_free_the_partition(lab, rest):
    evolved(lab, "freed", "REPLACE PARTITION FIELD p WITH bucket(2, id)")
    lab.duckdb.run(rest.attach(), "DELETE FROM ice.db.freed WHERE id < 30 AND id % 3 = 1")
    assert [r["refusal"] for r in lab.afterwrite.compact("db.freed", ok=(3,)) if r.get("refusal")] == ["stray-delete"]
    # copy-on-write, as the advice says: the file that the stray delete names is gone
    lab.spark.sql("DELETE FROM lake.db.freed WHERE id < 30 AND id % 3 = 1")
    before = readings(lab, "db.freed", ["spark", "pyiceberg", "duckdb"])
    assert counts(before) == {"spark": 170, "pyiceberg": 170, "duckdb": 170}
    lab.afterwrite.compact("db.freed")
    assert readings(lab, "db.freed", ["spark", "pyiceberg", "duckdb"]) == before


def test_a_delete_that_states_its_only_file_under_another_spec(lab):
    """Iceberg Java up to 1.11 and PyIceberg apply it by path; Java 1.12 calls the table corrupted."""
    evolved(lab, "stated", "DROP PARTITION FIELD p")
    target = next(f for f in lab.spark.files("db.stated") if f["spec_id"] == 0)
    position_delete(lab, "db.stated", target["file_path"], [0, 1])
    with pytest.raises(Exception, match="Mismatched partition specs"):
        lab.spark.digest("db.stated")
    before = readings(lab, "db.stated", ["pyiceberg"])
    assert counts(before) == {"pyiceberg": 178}
    refused = [r for r in lab.afterwrite.compact("db.stated", ok=(3,)) if r.get("refusal")]
    assert [r["refusal"] for r in refused] == ["stray-delete"] and target["file_path"] in refused[0]["detail"]
    assert readings(lab, "db.stated", ["pyiceberg"]) == before
    assert len(lab.spark.files("db.stated", "delete_files")) == 1


def position_delete(lab, table, path, positions):
    """Writes a position delete under the current, unpartitioned spec, with Iceberg Java's own writer."""
    jvm = lab.spark.session._jvm
    iceberg = jvm.org.apache.iceberg
    java = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(lab.spark.session._jsparkSession, f"lake.{table}")
    out = java.io().newOutputFile(f"{java.location()}/data/pos-{uuid.uuid4()}.parquet")
    factory = getattr(iceberg.data, "GenericFileWriterFactory$Builder")(java).build()
    writer = factory.newPositionDeleteWriter(iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(out), java.spec(), None)
    delete = iceberg.deletes.PositionDelete.create()
    for position in positions:
        writer.write(delete.set(path, position))
    writer.close()
    java.newRowDelta().addDeletes(writer.toDeleteFile()).commit()
