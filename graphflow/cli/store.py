"""Where the command line keeps runs: `.graphflow/runs.db`, another SQLite file, or a PostgreSQL database."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphflow.cli.faults import BadUse
from graphflow.cli.ids import LAST
from graphflow.cli.printing import quoted
from graphflow.cli.targets import Targets
from graphflow.errors import UnknownRun
from graphflow.events import Journal, StoredRun
from graphflow.persistence.sqlite import SqliteJournal
from graphflow.visualize.text import visible

DEFAULT: Final = ".graphflow/runs.db"
"""The database of a folder."""

VARIABLE: Final = "GRAPHFLOW_DB"
"""The environment variable that names another database."""

MOST_ALIKE: Final = 5

_URL: Final = re.compile(r"postgres(ql)?://")


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What a command line says of the store.

    Attributes:
        db: the file or the address of the database, None for the default.
        fsync: whether each record waits for the disk.
    """

    db: str | None = None
    fsync: bool = False


@dataclass(frozen=True, slots=True)
class Store:
    """A database of runs, with the targets that are noted beside it.

    Attributes:
        journal: what keeps the runs.
        name: what a person calls it; never a password.
        option: what has to stand on a command line to mean it, "" for the default.
        targets: which graph each run is of.
    """

    journal: Journal
    name: str
    option: str
    targets: Targets

    def command(self, name: str, run: str, *options: str) -> str:
        """Write a command line that works on a run of this database.

        Args:
            name: the command.
            run: the id of the run.
            options: what stands there beside, quoted for a shell; several stand on lines of their own.

        >>> store = Store(SqliteJournal(DEFAULT), DEFAULT, "", Targets(Path()))
        >>> store.command("resume", "a run", "--target path.py")
        "graphflow resume 'a run' --target path.py"
        >>> store.command("resume", "-x", "--target path.py")
        'graphflow resume --target path.py -- -x'
        """
        word = quoted(run)
        head, tail = ([], ["--", word]) if word.startswith("-") else ([word], [])
        own = [self.option] if self.option else []
        apart = " \\\n    " if len(options) > 1 else " "
        return apart.join([" ".join(["graphflow", name, *head, *own]), *options, *tail])


@contextlib.contextmanager
def opened(options: StoreOptions) -> Generator[Store]:
    """Name the database, and close it in the end; nothing is opened before it is used.

    Raises:
        BadUse: if it cannot be one.
        MissingExtra: if the extra `postgres` is needed and not installed.
    """
    db = options.db or DEFAULT
    if _URL.match(db):
        from graphflow.persistence.postgres import PostgresJournal

        if options.fsync:
            raise BadUse("--fsync is for a file; a PostgreSQL server decides by its own settings.")
        server = PostgresJournal(db)
        with contextlib.closing(server):
            # An address may hold a password, so it is not written down again.
            option = "" if db == os.environ.get(VARIABLE) else "--db ..."
            yield Store(server, repr(server).strip("<>"), option, Targets(Path(DEFAULT).with_name("targets.json")))
        return
    if db == ":memory:":
        raise BadUse("--db :memory: would keep nothing: say --no-store, or name a file.")
    path = Path(db)
    with contextlib.suppress(OSError, ValueError):
        if path.is_dir():
            raise BadUse(f"--db {db}: that is a folder; name a file in it.")
    option = "" if db in {DEFAULT, os.environ.get(VARIABLE)} else f"--db {quoted(db)}"
    with contextlib.closing(SqliteJournal(db, fsync=options.fsync)) as journal:
        yield Store(journal, visible(db), option, Targets(_beside(path)))


def _beside(path: Path) -> Path:
    """Return where the targets of a database's runs stand; those of two databases in a folder never meet."""
    return path.with_name("targets.json" if path.name == Path(DEFAULT).name else f"{path.name}.targets.json")


async def find(store: Store, asked: str) -> StoredRun:
    """Return the stored run that is meant: by its id, the beginning of one, or `last`.

    Raises:
        BadUse: if nothing is stored, or several ids begin so.
        UnknownRun: if none does.
        JournalError: if the database cannot be read.
    """
    runs = await store.journal.runs()
    if not runs:
        raise BadUse(f"no run is stored in {store.name}.")
    exact = [run for run in runs if run.run == asked]
    found = exact or (runs[-1:] if asked == LAST else [run for run in runs if asked and run.run.startswith(asked)])
    if len(found) > 1:
        raise BadUse(f"{asked!r} is the beginning of {len(found):,} ids: {_some(found)}. Write more of it.")
    if not found:
        raise UnknownRun(asked, [run.run for run in runs])
    return found[0]


def _some(runs: Sequence[StoredRun]) -> str:
    names = ", ".join(visible(run.run) for run in runs[:MOST_ALIKE])
    return names if len(runs) <= MOST_ALIKE else f"{names}, ..."
