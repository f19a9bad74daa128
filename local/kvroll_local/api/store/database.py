"""The SQLite file that holds every acknowledged write over a kill of the process."""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from kvroll_local.api.store.event import Json, Key

FORMAT = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS object(
  resource TEXT, namespace TEXT, name TEXT, body TEXT NOT NULL, applied TEXT NOT NULL, PRIMARY KEY(resource, namespace, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS clock(id INTEGER PRIMARY KEY CHECK(id = 1), version INTEGER NOT NULL);
INSERT OR IGNORE INTO clock VALUES(1, 1);
"""


class StoreInUse(Exception):
    """Another process has this store open."""


class StoreUnreadable(Exception):
    """The file is not a store that this version can read."""


class Database:
    """One open file. `synchronous=NORMAL` in WAL mode: a killed process loses nothing; power lost may take the newest writes.

    The exclusive lock is held while it is open, so a second opener is refused: two writers would give out the same versions.
    """

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, timeout=0)
        try:
            self._open(path)
        except BaseException:
            self._db.close()
            raise

    def _open(self, path: Path) -> None:
        try:
            # Set before WAL: the lock is then taken with the first read and kept until the file is closed.
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            found = int(self._db.execute("PRAGMA user_version").fetchone()[0])
            if found not in (0, FORMAT):
                raise StoreUnreadable(
                    f"{path} is a store of format {found}; this version reads format {FORMAT}. Move it away to begin anew"
                )
            self._db.executescript(f"BEGIN EXCLUSIVE; {_TABLES} PRAGMA user_version={FORMAT}; COMMIT;")
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise StoreInUse(
                    f"{path} is open in another process; one API server at a time owns a state folder: end the other one first"
                ) from None
            raise StoreUnreadable(f"{path} cannot be opened: {error}") from error
        except sqlite3.DatabaseError as error:
            raise StoreUnreadable(f"{path} is not a store ({error}). Move it away to begin anew") from error

    def version(self) -> int:
        """The newest version given out. Kept apart from the objects: else deleting the newest one would turn the clock back."""
        return int(self._db.execute("SELECT version FROM clock").fetchone()[0])

    def objects(self) -> Iterator[tuple[Key, Json, Json]]:
        for resource, namespace, name, body, applied in self._db.execute("SELECT * FROM object"):
            yield Key(resource, namespace, name), json.loads(body), json.loads(applied)

    def write(self, version: int, key: Key, body: Json | None, applied: Json) -> None:
        """One object and the clock, in one transaction; `None` deletes."""
        place = (key.resource, key.namespace, key.name)
        self._db.execute("BEGIN")
        try:
            self._db.execute("UPDATE clock SET version=?", (version,))
            if body is None:
                self._db.execute("DELETE FROM object WHERE resource=? AND namespace=? AND name=?", place)
            else:
                self._db.execute(
                    "INSERT OR REPLACE INTO object VALUES(?,?,?,?,?)", (*place, json.dumps(body), json.dumps(applied))
                )
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def remember(self, key: Key, applied: Json) -> None:
        """What managers applied last, where the object itself did not change."""
        place = (json.dumps(applied), key.resource, key.namespace, key.name)
        self._db.execute("UPDATE object SET applied=? WHERE resource=? AND namespace=? AND name=?", place)

    def close(self) -> None:
        self._db.close()
