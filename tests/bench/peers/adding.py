"""Puts files that some engine wrote into a table: data files that carry field ids already, and equality deletes.

PyIceberg's `add_files` takes only files without field ids, and it writes no delete manifests.
"""

import os

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import compute_statistics_plan, data_file_statistics_from_parquet_metadata, parquet_path_to_id_mapping
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, ListType, NestedField, StructType


def described(loaded, path, partition=None, content=DataFileContent.DATA, equality_ids=None):
    """A file as manifests describe it, from its footer."""
    schema, metadata = loaded.schema(), pq.read_metadata(path)
    if equality_ids:
        schema = schema.select(*[schema.find_column_name(i) for i in equality_ids])
    plan = compute_statistics_plan(schema, loaded.metadata.properties)
    statistics = data_file_statistics_from_parquet_metadata(metadata, plan, parquet_path_to_id_mapping(schema))
    return DataFile.from_args(
        content=content,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=partition or Record(),
        file_size_in_bytes=os.path.getsize(path),
        sort_order_id=None,
        spec_id=loaded.spec().spec_id,
        equality_ids=equality_ids,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def add_files(loaded, paths):
    with loaded.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for path in paths:
            append.append_data_file(described(loaded, path))


def add_equality_deletes(loaded, files):
    """One commit which adds these delete files."""
    with loaded.transaction() as transaction:
        with _AddDeletes(operation=Operation.APPEND, transaction=transaction, io=loaded.io) as append:
            append.deletes = files


class _DeleteManifest(ManifestWriterV2):
    def content(self):
        return ManifestContent.DELETES

    def _with_partition(self, format_version):
        # PyIceberg declares equality ids as long; the specification, and Java, as int
        kind = data_file_with_partition(format_version=format_version, partition_type=self._spec.partition_type(self._schema))
        ids = NestedField(135, "equality_ids", ListType(136, IntegerType(), element_required=True), required=False)
        fields = [ids if field.field_id == ids.field_id else field for field in kind.fields]
        return manifest_entry_schema_with_data_file(format_version=format_version, data_file=StructType(*fields))

    @property
    def _meta(self):
        return {**super()._meta, "content": "deletes"}


class _AddDeletes(_FastAppendFiles):
    """A fast append with a manifest of deletes beside the existing ones."""

    deletes = ()

    def _process_manifests(self, manifests):
        spec = self._transaction.table_metadata.spec()
        with _DeleteManifest(spec, self.schema(), self.new_manifest_output(), self._snapshot_id, self._compression) as writer:
            for file in self.deletes:
                entry = ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, sequence_number=None, file_sequence_number=None, data_file=file
                )
                writer.add(entry)
        return [writer.to_manifest_file(), *manifests]
