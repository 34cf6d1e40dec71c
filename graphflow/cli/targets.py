"""Which graph each stored run is of: noted beside the database, never in it.

A journal is data that may come from elsewhere, so it names no code. This file is written by the command line alone, on
the machine where the code is.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final, cast, get_args

from graphflow.cli.faults import BadUse
from graphflow.cli.inputs import tightened
from graphflow.cli.models import Asked, DecisionWord, ModelWords, with_model
from graphflow.cli.parts import Parts, PartWords, parts_of
from graphflow.cli.target import load, split_file
from graphflow.errors import JournalUnavailable, RunLocked, TargetError
from graphflow.graphs.graph import Graph
from graphflow.persistence.sqlite_lock import RunLock
from graphflow.persistence.sqlite_store import make_folder

PATIENCE: Final = 5.0
"""Seconds to wait for another process that writes the file."""

AGAIN: Final = 0.01

NAME: Final = "targets"
"""What the lock of the file is called."""

Notes = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Noted:
    """What a command line must say to have the graph of a run.

    Attributes:
        target: the graph, as `path.py:name` or `package.module:name`.
        max_depth: the lower depth that the run was given, or None.
        model: the model that all its agents ask, or None where each asks its own.
        parts: what it is given beside its graph, by the names of variables there.
    """

    target: str
    max_depth: int | None = None
    model: Asked | None = None
    parts: PartWords = field(default_factory=PartWords)


@dataclass(frozen=True, slots=True)
class GraphWords:
    """What stands on a command line about the graph of a stored run: what is None is as it is noted."""

    target: str | None = None
    max_depth: int | None = None
    model: ModelWords = field(default_factory=ModelWords)
    parts: PartWords = field(default_factory=PartWords)


class Targets:
    """The notes of one database."""

    def __init__(self, path: Path) -> None:
        """Name the file; nothing is read yet."""
        self._path = path

    def of(self, run: str) -> Noted | None:
        """Return what is noted of a run, if it is there and can be understood."""
        found = self._read().get(run)
        if not isinstance(found, dict):
            return None
        entry = cast("Notes", found)
        depth, target = entry.get("max_depth"), self._target(entry)
        known = isinstance(depth, int) and not isinstance(depth, bool) and depth >= 0
        if target is None:
            return None
        return Noted(target, depth if known else None, _model(entry.get("model")), _parts(entry.get("parts")))

    def note(self, run: str, noted: Noted) -> None:
        """Note the graph of a run; other processes may do the same at this moment.

        Raises:
            OSError: if the file cannot be written.
            JournalUnavailable: if another process holds it for too long.
        """
        entry = self._entry(noted.target)
        if noted.max_depth is not None:
            entry["max_depth"] = noted.max_depth
        if noted.model is not None:
            entry["model"] = {key: value for key, value in asdict(noted.model).items() if value not in {None, "auto"}}
        parts = {name: word for name, word in asdict(noted.parts).items() if word is not None}
        if parts:
            entry["parts"] = parts
        if self._read().get(run) != entry:
            self._change(lambda notes: {**notes, run: entry})

    def forget(self, runs: Iterable[str]) -> None:
        """Remove the notes of runs.

        Raises:
            OSError: if the file cannot be written.
            JournalUnavailable: if another process holds it for too long.
        """
        gone = frozenset(runs)
        if gone & self._read().keys():
            self._change(lambda notes: {run: entry for run, entry in notes.items() if run not in gone})

    # --- the file ---

    def _read(self) -> Notes:
        try:
            found: object = json.loads(self._path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return cast("Notes", found) if isinstance(found, dict) else {}

    def _change(self, change: Callable[[Notes], Notes]) -> None:
        make_folder(self._path.parent)
        with _held(self._path.parent):
            text = json.dumps(change(self._read()), indent=1)
            _replace(self._path, text + "\n")

    # --- places: of files below the folder that the database belongs to, so that it can be moved with them ---

    def _base(self) -> Path:
        folder = self._path.parent.absolute()
        return folder.parent if folder.name == ".graphflow" else folder

    def _entry(self, target: str) -> Notes:
        with contextlib.suppress(TargetError, OSError, ValueError):
            file, name = split_file(target)
            if file is not None:
                place = Path(os.path.normpath(file.absolute()))
                with contextlib.suppress(ValueError):
                    place = place.relative_to(self._base())
                return {"file": str(place)} if name is None else {"file": str(place), "name": name}
        return {"module": target}

    def _target(self, entry: Notes) -> str | None:
        """Return a target as it is seen from the folder one stands in."""
        module, file, name = entry.get("module"), entry.get("file"), entry.get("name")
        if isinstance(module, str):
            return module
        if not isinstance(file, str):
            return None
        place = self._base() / file
        with contextlib.suppress(OSError, ValueError):
            place = place.relative_to(Path.cwd())
        return f"{place}:{name}" if isinstance(name, str) else str(place)


@contextlib.contextmanager
def _held(folder: Path) -> Generator[None]:
    """Hold a lock that dies with its holder, as that of a run's writer does."""
    lock = _lock(folder)
    try:
        yield
    finally:
        lock.release()


def _lock(folder: Path) -> RunLock:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return RunLock.take(folder, NAME)
        except RunLocked:
            if time.monotonic() >= end:
                msg = f"another process holds the notes in {str(folder)!r}."
                raise JournalUnavailable(msg) from None
            time.sleep(AGAIN)


def _replace(path: Path, text: str) -> None:
    """Write a file so that whoever reads it sees the old text or the new one, whole."""
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix=".new")
    try:
        with os.fdopen(number, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _model(found: object) -> Asked | None:
    """Return a model as it is noted, if it can be understood."""
    if not isinstance(found, dict):
        return None
    entry = cast("Notes", found)
    name, base_url, decision = entry.get("name"), entry.get("base_url"), entry.get("decision", "auto")
    known = isinstance(name, str) and isinstance(base_url, str | None) and decision in get_args(DecisionWord)
    timeout = entry.get("timeout")
    usable = isinstance(timeout, int | float) and not isinstance(timeout, bool) and 0 < timeout < math.inf
    return Asked(cast("str", name), base_url, decision, timeout if usable else None) if known else None


def _parts(found: object) -> PartWords:
    """Return the names of parts as they are noted: those that can be understood."""
    entry = cast("Notes", found) if isinstance(found, dict) else {}
    return PartWords(**{one.name: word for one in fields(PartWords) if isinstance(word := entry.get(one.name), str)})


def required(targets: Targets, run: str, words: GraphWords) -> Noted:
    """Return which graph to load for a run: as it is noted, where the command line says nothing else.

    Raises:
        BadUse: if nothing says so.
    """
    noted = targets.of(run)
    target = words.target or (None if noted is None else noted.target)
    if target is None:
        raise BadUse(f"nobody noted which graph the run {run!r} is of: add --target path.py[:name].")
    return noted_by(replace(words, target=target), noted)


def noted_by(words: GraphWords, noted: Noted | None = None) -> Noted:
    """Return what a command line with a target says of a graph, where something may be noted already.

    Raises:
        BadUse: if what it says of the model makes no sense.
    """
    target = words.target or ""
    known = noted or Noted(target)
    depth = known.max_depth if words.max_depth is None else words.max_depth
    return Noted(target, depth, words.model.over(known.model), words.parts.over(known.parts))


def graph_of(noted: Noted) -> tuple[Graph[Any], Noted]:
    """Load the graph of a run as the run has it; return with it what is to be noted.

    Raises:
        TargetError: if there is no such graph.
        BadUse: if it cannot be had so.
        UsageError: if its model is none.
        MissingExtra: if an extra is needed for its model and not installed.
    """
    graph, noted, _ = _loaded(noted)
    return graph, noted


def played_by(noted: Noted) -> tuple[Graph[Any], Noted, Parts]:
    """Load what a run goes on with: its graph, what is to be noted, and what it is given beside.

    Raises:
        Exception: what `graph_of` raises.
        BadUse: if something of it is not there.
    """
    graph, noted, module = _loaded(noted)
    return graph, noted, parts_of(module, noted.target, noted.parts)


def _loaded(noted: Noted) -> tuple[Graph[Any], Noted, ModuleType]:
    graph, module = load(noted.target)
    graph = tightened(graph, noted.max_depth)
    if noted.model is None:
        return graph, noted, module
    graph, asked = with_model(graph, noted.model)
    return graph, replace(noted, model=asked), module
