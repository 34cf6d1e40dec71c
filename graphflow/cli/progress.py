"""Live progress of a run on stderr: lines where they are stored, a tree that is redrawn on a terminal."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol

from graphflow.cli.board import Board, Names, names_of, shown_names
from graphflow.cli.printing import Screen
from graphflow.cli.results import Refusal
from graphflow.cli.telling import TEXT, Telling
from graphflow.events import Event, Refused
from graphflow.graphs.graph import Graph
from graphflow.model.ids import path_text
from graphflow.visualize.text import cells, plain, shown

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

MOST_VISITS: Final = 3
"""More lines of one kind about one node are left out: a loop would fill the page."""

MOST_BUSY: Final = 3
"""How many agents are named that do something now."""

NOTED: Final = frozenset(
    {"emitted", "warned", "listener", "detected", "granted", "tool", "not executed", "repaired", "budget"}
)
"""The kinds of lines that no tree shows, so that they stand above it."""

OFTEN: Final = frozenset({"emitted", "warned"})
"""The kinds of which every line is shown: a node says them on purpose."""

EVERY: Final = 2.0
"""Seconds of silence after which spending is told again; each further time it takes twice as long."""

SELDOM: Final = 30.0
"""The longest that this gets."""

_STYLES: Final = {
    "running": "cyan", "waiting": "magenta", "failed": "red", "refused": "yellow", "cancelled": "dim",
    "completed": "green", "open": "yellow", "hidden": "dim",
}  # fmt: skip


class Progress(Protocol):
    """Shows how far a run is.

    Attributes:
        board: what it knows of the run.
        tells_spending: whether its last words are what the run spent.
        refusals: what bounds refused, as far as a line has told it, and how often.
    """

    board: Board
    tells_spending: bool
    refusals: Counter[Refusal]

    def __call__(self, event: Event) -> None:
        """Take one event of the run."""
        ...

    def past(self, event: Event) -> None:
        """Take one event of what was done before this process took the run up: it is known, and not told."""
        ...

    def note(self, text: str) -> None:
        """Say something beside the progress."""
        ...

    def refresh(self) -> None:
        """Show the present moment, if that is not done at each event."""
        ...

    def pause(self) -> None:
        """Leave the terminal to somebody else, until the next event; called again at the end."""
        ...


def progress_on(screen: Screen, graph: Graph[Any], *, quiet: bool) -> Progress:
    """Choose how to show progress of a run of a graph."""
    if quiet:
        return Silence()
    if screen.err.terminal and os.environ.get("TERM", "") not in {"", "dumb", "unknown"}:
        return Tree(screen, graph)
    return Lines(screen, graph)


class Silence:
    """Shows nothing, and still knows what was spent."""

    def __init__(self) -> None:
        """Begin with an empty board."""
        self.board = Board()
        self.tells_spending = False
        self.refusals: Counter[Refusal] = Counter()

    def __call__(self, event: Event) -> None:
        """Take one event of the run."""
        self.board.fold(event)

    def past(self, event: Event) -> None:
        """Take one event of the past."""
        self.board.fold(event)

    def note(self, text: str) -> None:
        """Do nothing."""

    def refresh(self) -> None:
        """Do nothing."""

    def pause(self) -> None:
        """Do nothing."""


class Lines(Silence):
    """Writes a line for what a person would want to hear of; what recurs is told a few times."""

    def __init__(self, screen: Screen, graph: Graph[Any]) -> None:
        """Write to the stderr of a screen."""
        super().__init__()
        self._screen = screen
        self._telling = Telling(graph)
        self._told: Counter[tuple[str, Names]] = Counter()
        self._last = self._heard = time.monotonic()
        self._pause = EVERY

    def __call__(self, event: Event) -> None:
        """Take one event, and write its line if it has one."""
        super().__call__(event)
        self._heard = time.monotonic()
        found = self._telling.line_of(event)
        if found is not None:
            self._pause = EVERY
            kind, text = found
            key = (kind, names_of(event.path))
            self._told[key] += 1
            if kind == "reported":
                text += f"  ({self.board.spending()})"
            if self._told[key] <= MOST_VISITS:
                self._say(text)
                if isinstance(event.body, Refused):
                    self.refusals[path_text(event.path), event.body.bound] += 1
            elif self._told[key] == MOST_VISITS + 1:
                self._say(f"{text} (more of this kind is not told)")
        self.refresh()

    def past(self, event: Event) -> None:
        """Take one event of the past: what comes later may speak of it."""
        super().past(event)
        self._telling.line_of(event)

    def refresh(self) -> None:
        """Tell the spending if that is due."""
        now = time.monotonic()
        if not self.board.over and now - self._last >= self._pause:
            rows = self.board.rows.values()
            busy = [f"{shown_names(row.names)} {what}" for row in rows for what in row.activity()]
            more = [f"and {len(busy) - MOST_BUSY:,} more"] * (len(busy) > MOST_BUSY)
            running = f"{sum(row.running for row in rows):,} running"
            spending = self.board.spending(self.board.at + now - self._heard)
            self._say(f"... {' · '.join([*busy[:MOST_BUSY], *more, spending, running])}")
            self._pause = min(2 * self._pause, SELDOM)

    def note(self, text: str) -> None:
        """Write a line."""
        self._say(text)

    def _say(self, text: str) -> None:
        self._last = time.monotonic()
        self._screen.say(text)


class Tree(Silence):
    """Redraws a tree of who works for whom, with the spending below it."""

    def __init__(self, screen: Screen, graph: Graph[Any]) -> None:
        """Draw on the stderr of a screen.

        Raises:
            MissingExtra: if the extra `cli` is not installed.
        """
        super().__init__()
        from rich.console import Console

        self.tells_spending = True
        self._telling = Telling(graph)
        self._told: Counter[tuple[str, Names]] = Counter()
        self._ascii = screen.err.ascii
        self._console = Console(file=screen.err.file, highlight=False, markup=False, emoji=False)
        self._live: Live | None = None
        self._began = time.monotonic()
        self._before = 0.0
        self._resting = 0.0
        self._stopped_at: float | None = None

    def __call__(self, event: Event) -> None:
        """Take one event; it is seen at the next refresh."""
        super().__call__(event)
        found = self._telling.line_of(event)
        if found is None or found[0] not in NOTED:
            return
        kind, text = found
        key = (kind, names_of(event.path))
        self._told[key] += 1
        if kind in OFTEN or self._told[key] <= MOST_VISITS:
            self.note(text)

    def past(self, event: Event) -> None:
        """Take one event of the past; the time that it took is over."""
        super().past(event)
        self._telling.line_of(event)
        self._before = self.board.at

    def note(self, text: str) -> None:
        """Write a line above the tree."""
        with contextlib.suppress(OSError):
            self._console.print(self._text(text, "dim"))

    def refresh(self) -> None:
        """Draw the present moment."""
        try:
            if self._live is None:
                self._start()
            if self._live is not None:
                self._live.update(self._drawing(shutil.get_terminal_size().lines - 3), refresh=True)
        except OSError:  # the terminal went away; the run goes on
            self._live = None

    def _start(self) -> None:
        from rich.live import Live

        if self._stopped_at is not None:
            self._resting += time.monotonic() - self._stopped_at
            self._stopped_at = None
        # Redrawn by us alone: a thread of its own would read the board while it changes.
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def pause(self) -> None:
        """Take the drawing away and leave its last state as plain lines."""
        live, self._live = self._live, None
        if live is None:
            return
        self._stopped_at = time.monotonic()
        try:
            live.stop()
            self.tells_spending = cells(self.board.spending()) <= self._console.width
            self._console.print(self._drawing(MOST_KEPT), no_wrap=True, overflow="ellipsis")
        except OSError:
            pass

    def _drawing(self, most: int) -> Text:
        seconds = self.board.at
        if self._stopped_at is None:
            seconds = max(seconds, self._before + time.monotonic() - self._began - self._resting)
        lines = [self._text(shown(self.board.graph, TEXT), "bold")]
        lines += [
            self._text(line.text, _STYLES[line.standing]) for line in self.board.lines(max(most, 3), ascii=self._ascii)
        ]
        lines.append(self._text(self.board.spending(seconds), "bold"))
        return self._text("\n").join(lines)

    def _text(self, text: str, style: str = "") -> Text:
        from rich.text import Text

        return Text(plain(text) if self._ascii else text, style, no_wrap=True, overflow="ellipsis")


MOST_KEPT: Final = 60
"""How many lines of a run stay on the terminal."""
