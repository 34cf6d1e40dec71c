"""Whether the file of a run at work is still there: SQLite writes on into one that was removed, without a word."""

from __future__ import annotations

from typing import Final

from graphflow.errors import JournalUnavailable
from graphflow.persistence.sqlite_store import Store, file_of

EVERY: Final = 1.0
"""Active seconds of a run between two looks, for a look is a call of the system: too dear for each row."""


class Watch:
    """Looks now and then whether a name still leads to the file that a run was claimed in.

    Attributes:
        due: the active seconds of the run at which it wants to look next.
        told: whether the error has been made.
    """

    __slots__ = ("_file", "_replaced", "_store", "due", "told")

    def __init__(self, store: Store, last: int) -> None:
        """Take the file that is open now; one of a run that has rows is looked at with the next of them."""
        self._store, self._file, self._replaced = store, store.file, store.replaced
        self.due = EVERY if last < 0 else 0.0
        self.told = False

    def is_gone(self, at: float) -> bool:
        """Look, and tell whether the file is another one, or none."""
        self.due = at + EVERY
        store = self._store
        if self._file is None:  # in memory
            return False
        return store.replaced != self._replaced or file_of(store.place.real()) != self._file

    def error(self, run: str) -> JournalUnavailable:
        """Say what has happened, what is lost, and what can be done."""
        self.told = True
        path = self._store.place.path
        what = "removed or moved away" if file_of(self._store.place.real()) is None else "replaced by another file"
        text = (
            f"the journal {str(path)!r} was {what} while the run {run!r} was at work: what the run has stored is not "
            f"there, and no resume finds it. If the file was moved, move it back, with the -wal file that lay beside "
            f"it, and resume; if not, its runs are lost: bring back a copy, or begin this run anew. What the run did "
            f"outside is done."
        )
        return JournalUnavailable(text, lost=True)
