"""What a run looks like at a moment: a row for each node, whatever the number of its visits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, NamedTuple, TypeAlias

from graphflow.events import (
    AnswerGiven,
    BudgetAdded,
    CallDelta,
    EffectFinished,
    EffectRequested,
    EffectStarted,
    Event,
    Heard,
    NodeEnded,
    NodeReentered,
    NodeRetried,
    NodeStarted,
    Paused,
    Refused,
    RunEnded,
    RunStarted,
    TextDelta,
)
from graphflow.model.budget import ADDITIVE, Budget
from graphflow.model.ids import Path
from graphflow.visualize.facts import budget_words
from graphflow.visualize.talk import MODEL
from graphflow.visualize.tally import Tally
from graphflow.visualize.text import ELLIPSIS, count, shown, visible

Names: TypeAlias = tuple[str, ...]

NAME: Final = 40

TAIL: Final = 60
"""How many characters of what a model writes are shown: the last ones."""

GLYPHS: Final = {
    "running": ("▸", ">"), "waiting": ("?", "?"), "failed": ("✗", "x"), "cancelled": ("⊘", "-"),
    "refused": ("!", "!"), "completed": ("✓", "+"), "open": ("‖", "="),
}  # fmt: skip
_BRANCHES: Final = {False: ("├─ ", "└─ ", "│  "), True: ("|- ", "`- ", "|  ")}

_ROOT: Final[Names] = ()


def names_of(path: Path) -> Names:
    """Return the names of a path: what the visits of one node have in common."""
    return tuple([segment.name for segment in path])


def shown_names(names: Names) -> str:
    """Write names as one line.

    >>> shown_names(("director", "code", "lead"))
    'director > code > lead'
    """
    return " > ".join(shown(name, NAME) for name in names)


@dataclass(slots=True)
class Row:
    """A node: how many of its visits stand how.

    Attributes:
        names: the names of its path.
        delegated: whether somebody delegates to it.
        started: visits that began.
        running, waiting, completed, failed, cancelled, open: visits that stand so; an open one could be resumed.
        retries, refused: how often that happened.
        giver: who handed control over to it, or "".
        model_calls, tool_calls, broken: how often an agent asked its model, called tools, and how many of these failed.
        thinking: how many models are asked now.
        tools: the tools that run now.
        text: the end of what a model writes now.
        position, call: where the call stands that it writes now in its reply, and what is called; -1 and "" for words.
    """

    names: Names
    delegated: bool = False
    started: int = 0
    running: int = 0
    waiting: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    open: int = 0
    retries: int = 0
    refused: int = 0
    giver: str = ""
    model_calls: int = 0
    tool_calls: int = 0
    broken: int = 0
    thinking: int = 0
    tools: Counter[str] = field(default_factory=Counter[str])
    text: str = ""
    position: int = -1
    call: str = ""

    @property
    def standing(self) -> str:
        """How it stands as a whole, the most urgent first."""
        for name in ("running", "waiting", "open", "failed", "cancelled", "completed"):
            if getattr(self, name):
                return name
        return "refused"

    def words(self) -> Iterator[str]:
        """Say what is more than one visit that went well."""
        if self.started > 1:
            yield f"{self.completed:,} of {self.started:,}"
        for name in ("running", "waiting", "open", "failed", "cancelled"):
            number = getattr(self, name)
            if number and (self.started > 1 or name != "running"):
                yield f"{number:,} {name}" if self.started > 1 else name
        if self.retries:
            yield "1 retry" if self.retries == 1 else f"{self.retries:,} retries"
        if self.refused:
            yield f"{self.refused:,} refused"
        if self.giver:
            yield f"from {shown(self.giver, NAME)}"
        yield from [count(self.model_calls, "model call")] * bool(self.model_calls)
        if self.tool_calls:
            broken = f", {self.broken:,} failed" if self.broken else ""
            yield count(self.tool_calls, "tool call") + broken
        yield from self.activity()

    def activity(self) -> Iterator[str]:
        """Say what an agent does now."""
        tools = [shown(name, NAME) + (f" ×{times:,}" if times > 1 else "") for name, times in self.tools.items()]
        if tools:
            yield f"calls {', '.join(tools)}"
        if self.thinking == 1:
            written = " ".join(self.text.split())
            tail = written if len(written) <= TAIL else ELLIPSIS + written[-TAIL:]
            what = f"writes {shown(self.call, NAME)}" if self.call else "writes"
            yield f"{what}: {visible(tail)}" if tail else what if self.call else "thinks"
        elif self.thinking:
            yield f"{self.thinking:,} think"

    def hear(self, body: Heard) -> None:
        """Take a piece of what a model writes: words, or a call, of which the last one begun is shown."""
        if isinstance(body, TextDelta):
            position, call, piece = -1, "", body.text
        else:
            position, call, piece = body.position, body.name, body.arguments
        if position < self.position:
            return
        if position > self.position:
            self.silence()
            self.position = position
        self.call = self.call or call
        self.text = (self.text + piece)[-4 * TAIL :]

    def silence(self) -> None:
        """Forget what a model wrote."""
        self.text, self.position, self.call = "", -1, ""


class Line(NamedTuple):
    """A line of the tree: a row as text, and how it stands."""

    text: str
    standing: str


@dataclass(slots=True)
class Board:
    """Folds the events of a run into rows; its size grows with the graph, not with the run.

    Attributes:
        graph: the name of the graph.
        budget: what the run may spend.
        at: active seconds at the last event.
        over: whether the run goes on no more.
        rows: by the names of their paths, in order of appearance.
    """

    graph: str = ""
    budget: Budget = field(default_factory=Budget)
    at: float = 0.0
    over: bool = False
    node_runs: int = 0
    retries: int = 0
    spent: Tally = field(default_factory=Tally)
    rows: dict[Names, Row] = field(default_factory=dict[Names, Row])
    _asked: dict[str, Path] = field(default_factory=dict[str, Path])
    _open: Counter[Path] = field(default_factory=Counter[Path])
    _flying: dict[Path, dict[str, str]] = field(default_factory=dict[Path, dict[str, str]])
    _functions: set[Path] = field(default_factory=set[Path])

    def row(self, path: Path) -> Row:
        """Return the row of a node; it is made when it is first heard of."""
        names = names_of(path)
        found = self.rows.get(names)
        if found is None:
            for length in range(1, len(names)):  # a row hangs below another, also if no event spoke of that
                self.rows.setdefault(names[:length], Row(names[:length]))
            found = self.rows[names] = Row(names, path[-1].call is not None)
        return found

    def _follow(self, spent: Budget) -> None:
        """Count what an earlier message of the chat has spent: the budget is for all of them."""
        self.node_runs, self.retries = spent.node_runs or 0, spent.retries or 0
        self.spent = Tally(
            spent.model_calls or 0, spent.tool_calls or 0, spent.tokens or 0, spent.usd or Decimal(0)
        )  # fmt: skip

    def fold(self, event: Event) -> None:
        """Take one event."""
        self.at = max(self.at, event.at)
        body = event.body
        self.spent.add(body)
        match body:
            case RunStarted():
                self.graph, self.budget = body.graph, body.budget
                if body.after is not None:
                    self._follow(body.after.spent)
            case BudgetAdded():
                self._more(body.budget)
            case RunEnded():
                self.over = body.status != "waiting"
                if self.over:
                    self._close()
            case NodeStarted():
                self.node_runs += 1
                row = self.row(body.path)
                row.started += 1
                row.running += 1
                row.giver = (body.edge.source or "") if body.edge.kind == "handoff" else ""
            case NodeRetried():
                self.node_runs += 1
                self.retries += 1
                self.row(body.path).retries += 1
            case Paused():
                self._pause(body)
            case AnswerGiven():
                self._answered(body.question)
            case NodeReentered():
                self._go_on(body.path)
            case NodeEnded():
                self._go_on(body.path)
                self._functions.discard(body.path)
                self._end(self.row(body.path), body.status)
            case Refused() if body.path:
                self.row(body.path).refused += 1
            case EffectRequested() | EffectStarted() | EffectFinished() | TextDelta() | CallDelta():
                self._effect(body)
            case _:
                pass

    def _close(self) -> None:
        """Let nothing run any more: what a bound has cut off stays open."""
        for row in self.rows.values():
            row.open, row.running = row.open + row.running, 0
            row.thinking = 0
            row.tools.clear()

    def _more(self, budget: Budget) -> None:
        """Let what a bound has cut off run again, with more to spend."""
        had = self.budget
        sums = {name: _sum(getattr(had, name), getattr(budget, name)) for name in (*ADDITIVE, "seconds")}
        self.budget = Budget.checked(**sums)
        if self.over:
            self.over = False
            for row in self.rows.values():
                row.open, row.running = 0, row.running + row.open

    # --- agents: their calls are effects that no body asked for ---

    def _effect(self, body: EffectRequested | EffectStarted | EffectFinished | Heard) -> None:
        match body:
            case EffectRequested():
                self._functions.add(body.path)
            case EffectStarted():
                if body.path not in self._functions:
                    self._called(body)
            case EffectFinished():
                failure = body.failure
                self._landed(body.path, body.key, broken=failure is not None and failure.code != "cancelled")
            case TextDelta() | CallDelta():
                self.row(body.path).hear(body)

    def _called(self, body: EffectStarted) -> None:
        row = self.row(body.path)
        self._flying.setdefault(body.path, {})[body.key] = body.name
        if body.key == MODEL:
            row.model_calls += 1
            row.thinking += 1
            row.silence()
        else:
            row.tool_calls += 1
            row.tools[body.name] += 1

    def _landed(self, path: Path, key: str, *, broken: bool = False) -> None:
        flying = self._flying.get(path, {})
        name = flying.pop(key, None)
        if name is None:
            return
        if not flying:
            del self._flying[path]
        row = self.row(path)
        if key == MODEL:
            row.thinking -= 1
            row.silence()
        else:
            row.broken += broken
            row.tools -= Counter((name,))

    # --- questions ---

    def _pause(self, body: Paused) -> None:
        self._asked[body.question] = body.path
        self._open[body.path] += 1
        if self._open[body.path] == 1:  # an agent may ask several things at once
            row = self.row(body.path)
            row.running -= 1
            row.waiting += 1

    def _answered(self, question: str) -> None:
        path = self._asked.pop(question, None)
        if path is not None and path in self._open:
            self._open[path] -= 1
            if not self._open[path]:
                self._go_on(path)

    def _go_on(self, path: Path) -> None:
        """Let a visit go on that waited for answers."""
        if path in self._open:
            del self._open[path]
            row = self.row(path)
            row.waiting -= 1
            row.running += 1

    @staticmethod
    def _end(row: Row, status: str) -> None:
        row.running -= 1
        match status:
            case "completed":
                row.completed += 1
            case "cancelled":
                row.cancelled += 1
            case _:
                row.failed += 1

    # --- as text ---

    def spending(self, seconds: float | None = None) -> str:
        """Say what was spent, against the budget where there is one.

        >>> Board(budget=Budget(node_runs=4000), node_runs=34).spending(1.25)
        '34 of 4,000 node runs · 1.2 s'
        """
        return " · ".join(self._amounts(self.at if seconds is None else seconds))

    def _amounts(self, seconds: float) -> Iterator[str]:
        budget, spent = self.budget, self.spent
        counts = (
            (self.node_runs, budget.node_runs, "node run"),
            (spent.model_calls, budget.model_calls, "model call"),
            (spent.tool_calls, budget.tool_calls, "tool call"),
            (self.retries, budget.retries, "retry"),
            (spent.tokens, budget.tokens, "token"),
        )
        for amount, limit, noun in counts:
            if amount or limit is not None:
                most = amount if limit is None else limit
                yield f"{amount:,}{_of(limit, ',')} {noun if most == 1 else plural(noun)}"
        if spent.usd or budget.usd is not None:
            yield f"${spent.usd.normalize():f}{_of(budget.usd, '', '$')}"
        yield f"{seconds:.1f}{_of(budget.seconds, 'g')} s"

    def bounds(self) -> str:
        """Say the budget, or that there is none."""
        return " · ".join(budget_words(self.budget)) or "no budget"

    def lines(self, most: int, *, ascii: bool = False) -> list[Line]:
        """Draw the rows as a tree of at most `most` lines: who works for whom.

        Where there are more rows, those that run or went wrong are kept, with all that stand above them.
        """
        rows = list(self.rows.values())
        kept = {row.names for row in rows} if len(rows) <= most else _urgent(rows, most - 1)
        below: dict[Names, list[Row]] = {}
        for row in rows:
            if row.names in kept:
                below.setdefault(row.names[:-1], []).append(row)
        lines = list(_tree(below, ascii=ascii))
        hidden = len(rows) - len(kept)
        if hidden:
            lines.append(Line(f"and {hidden:,} more", "hidden"))
        return lines


def plural(noun: str) -> str:
    """Return the plural of a noun.

    >>> plural("retry"), plural("node run")
    ('retries', 'node runs')
    """
    return noun[:-1] + "ies" if noun.endswith("y") else noun + "s"


def _sum(had: Any, more: Any) -> Any:
    """Add to a bound; what has none stays without."""
    return had if had is None or more is None else had + more


def _of(limit: object, form: str, sign: str = "") -> str:
    return "" if limit is None else f" of {sign}{limit:{form}}"


def _urgent(rows: list[Row], most: int) -> set[Names]:
    order = ("running", "waiting", "open", "failed", "refused", "cancelled", "completed")
    kept: set[Names] = set()
    for row in sorted(rows, key=lambda row: order.index(row.standing)):
        wanted = {row.names[:length] for length in range(1, len(row.names) + 1)}
        if len(kept | wanted) <= most:
            kept |= wanted
    return kept


def _tree(below: dict[Names, list[Row]], *, ascii: bool) -> Iterator[Line]:
    """Yield the lines of a tree; without recursion, because a path has any length."""
    middle, last, bar = _BRANCHES[ascii]
    todo = [("", row, index == 0) for index, row in enumerate(reversed(below.get(_ROOT, [])))]
    while todo:
        indent, row, is_last = todo.pop()
        glyph = GLYPHS[row.standing][ascii]
        words = (" - " if ascii else " · ").join(row.words())
        text = f"{indent}{last if is_last else middle}{glyph} {shown(row.names[-1], NAME)}"
        yield Line(f"{text}  {words}" if words else text, row.standing)
        inner = indent + ("   " if is_last else bar)
        todo += [(inner, found, index == 0) for index, found in enumerate(reversed(below.get(row.names, [])))]
