"""The catalog and warehouse that all peers share.

A *seed* is a generated table that stays. A *trial* is another catalog entry on the
seed's metadata: each peer starts from the very same files, and what it writes beside
them belongs to the trial and goes with it. Nobody removes the inputs: a compaction
takes them out of the table, not off the disk.
"""

import json
import os
import pathlib
import shutil

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError
from pyiceberg.manifest import ManifestContent

CATALOG = "lake"
# raise it when inputs are generated otherwise than before: kept ones are then left alone
EDITION = 1


class Lake:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.warehouse = self.folder / "warehouse"
        self.warehouse.mkdir(parents=True, exist_ok=True)
        self.database = self.folder / "catalog.db"
        self.catalog = SqlCatalog(CATALOG, uri=f"sqlite:///{self.database}?timeout=30", warehouse=f"file://{self.warehouse}")
        for namespace in ("seed", "trial"):
            try:
                self.catalog.create_namespace(namespace)
            except NamespaceAlreadyExistsError:
                pass
        self.trials = 0
        self.clean()

    def seed(self, name, make):
        """The seed of that name; `make(table name)` generates it when it is not there, and tells what it is."""
        name = f"{name}_e{EDITION}"
        marker = self.folder / f"{name}.json"
        if marker.exists():
            return Seed(self, name, json.loads(marker.read_text()))
        self._drop(f"seed.{name}")
        shutil.rmtree(self.warehouse / "seed" / name, ignore_errors=True)
        facts = make(f"seed.{name}") or {}
        table = self.catalog.load_table(f"seed.{name}")
        location = table.location().removeprefix("file:").replace("//", "/")
        facts = {**facts, "metadata": table.metadata_location, "location": location, "files": listing(location)}
        marker.with_suffix(".new").write_text(json.dumps(facts))
        marker.with_suffix(".new").rename(marker)
        return Seed(self, name, facts)

    def clean(self):
        """Removes what trials of a killed run left."""
        for identifier in self.catalog.list_tables("trial"):
            self._drop(identifier)
        for marker in self.folder.glob("*.json"):
            facts = json.loads(marker.read_text())
            remove(facts["location"], set(listing(facts["location"])) - set(facts["files"]))

    def _drop(self, identifier):
        try:
            self.catalog.drop_table(identifier)
        except NoSuchTableError:
            pass


class Seed:
    def __init__(self, lake, name, facts):
        self.lake, self.name, self.facts = lake, name, facts

    def data_files(self):
        """Paths of the live data files."""
        return paths(self.lake.catalog.load_table(f"seed.{self.name}"))

    def files(self):
        """Paths of all that a reader of the table opens."""
        return [os.path.join(self.facts["location"], f) for f in self.facts["files"]]

    def trial(self, peer):
        self.lake.trials += 1
        return Trial(self, f"{self.name}_{peer}_{os.getpid()}_{self.lake.trials}")


class Trial:
    """One peer's turn on a seed."""

    def __init__(self, seed, name):
        self.seed, self.name = seed, name
        self.table = f"trial.{name}"
        self.before = set(listing(seed.facts["location"]))
        seed.lake.catalog.register_table(self.table, seed.facts["metadata"])
        self.own = set()

    def ended(self):
        """The peer is done: what stands there beyond the seed's files is its own. Trials end one after the other."""
        self.own = set(listing(self.seed.facts["location"])) - self.before
        return self

    def loaded(self):
        return self.seed.lake.catalog.load_table(self.table)

    def data_files(self):
        return paths(self.loaded())

    def data_bytes(self):
        return sum(os.path.getsize(path) for path in self.data_files())

    def close(self):
        self.seed.lake._drop(self.table)
        remove(self.seed.facts["location"], self.own)


def paths(table):
    """Live data files, from the manifests: PyIceberg plans no scan of a table with equality deletes."""
    manifests = [m for m in table.current_snapshot().manifests(table.io) if m.content == ManifestContent.DATA]
    return [plain(entry.data_file.file_path) for m in manifests for entry in m.fetch_manifest_entry(table.io)]


def plain(uri):
    return "/" + uri.removeprefix("file:").lstrip("/")


def listing(folder):
    """Every file below, relative."""
    return sorted(os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names)


def remove(folder, files):
    for file in files:
        pathlib.Path(folder, file).unlink(missing_ok=True)
