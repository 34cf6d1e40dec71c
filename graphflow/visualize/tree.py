"""The tree of a run as text: who works for whom, what came of it, what it cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from graphflow.events import (
    AnswerGiven,
    Body,
    BudgetAdded,
    Detected,
    EffectFinished,
    EffectRequested,
    EffectStarted,
    Event,
    FrameClosed,
    FrameOpened,
    NodeEnded,
    NodeReentered,
    NodeRetried,
    NodeSkipped,
    NodeStarted,
    Paused,
    Refused,
    RunEnded,
    RunStarted,
    SessionStarted,
    Spent,
)
from graphflow.model.contract import Reason
from graphflow.model.ids import Path, Segment
from graphflow.visualize.overlay import report_status
from graphflow.visualize.talk import MODEL, Ask, Talk
from graphflow.visualize.tally import Tally
from graphflow.visualize.text import clip, count, plain, shown, visible

MOST_SIBLINGS: Final = 12
"""More visits of one node side by side are shown as a count, with those that are not in order."""

NAME: Final = 40

MOST_SIGNS: Final = 8
"""How many characters stand in one column at most; in some scripts more than one does."""

LEAST_SECONDS: Final = 0.001
"""Less is not shown."""

GLYPHS: Final = {
    "completed": "✓",
    "partial": "~",
    "failed": "✗",
    "timed_out": "✗",
    "exhausted": "✗",
    "cancelled": "⊘",
    "running": "▸",
    "waiting": "?",
    "open": "‖",
    "skipped": "–",
    "": "·",
}
_SHOWN: Final = (
    NodeStarted, FrameOpened, NodeReentered, NodeRetried, NodeEnded, FrameClosed, NodeSkipped, Paused,
    Refused, Detected, EffectStarted, Spent,
)  # fmt: skip
"""What the tree shows of a visit; it makes no row for anything else."""

_IN_ORDER: Final = frozenset({"completed", "skipped", ""})
_SAYS: Final = {"waiting": "?", "skipped": "–", "completed": "·"}
"""What stands before the words of a row; "!" where something went wrong."""

_OPEN: Final = frozenset({"running", "waiting"})
_BRANCHES: Final = {False: ("├─ ", "└─ ", "│  "), True: ("|- ", "`- ", "|  ")}


@dataclass(slots=True, eq=False)
class _Row:
    """One visit, or the run itself: what is known of it."""

    segment: Segment
    above: _Row | None
    status: str = ""
    began: float = 0.0
    ended: float = 0.0
    turns: int = 1
    retries: int = 0
    words: str = ""
    refused: Counter[str] = field(default_factory=Counter[str])
    total: Tally = field(default_factory=Tally)
    runs: int = 0
    sessions: int = 1
    below: dict[Segment, _Row] = field(default_factory=dict[Segment, "_Row"])
    odd: bool = False
    report: str = ""
    asking: bool = False  # a body that asks for effects is a function's
    talk: Talk | None = None


def run_tree(events: Iterable[Event], *, ascii: bool = False, width: int = 100) -> str:
    """Draw the tree of a run: a row for each visit, below the one that it works for or stands in.

    A row's spending includes that of everything below it. More than a dozen visits of one node side by side
    become one row with counts, followed by the rows of those that failed, wait or still run. Below an agent stands
    what it called in each turn. Whatever a name holds, a line has only characters that stay where they are, and at
    most `width` columns.

    Args:
        events: of one run, from its beginning; they may end anywhere.
        ascii: whether to use ASCII characters alone.
        width: columns of a line.

    >>> print(run_tree([]))
    ▸ run  running
    """
    tree = _Tree()
    for event in events:
        tree.fold(event)
    tree.settle()
    return "\n".join(_fitted(line, ascii=ascii, width=width) for line in _lines(tree.root, ascii=ascii))


def _fitted(line: str, *, ascii: bool, width: int) -> str:
    # Names are escaped where they are cut; this holds for whatever else an event brings. What could never be seen is
    # not looked at: the lines of a deep tree are long.
    safe = visible(line[: width * MOST_SIGNS])
    return clip(plain(safe), width, "...") if ascii else clip(safe, width)


class _Tree:
    """Folds the events of a run into rows."""

    def __init__(self) -> None:
        self.root = _Row(Segment("run"), None, "running")
        self.rows = [self.root]
        self.asked: dict[str, _Row] = {}
        self.at = 0.0

    def row(self, path: Path) -> _Row:
        """Return the row of a path; rows above it that no event spoke of are made too."""
        row = self.root
        for segment in path:
            inner = row.below.get(segment)
            if inner is None:
                inner = row.below[segment] = _Row(segment, row, began=self.at)
                self.rows.append(inner)
            row = inner
        return row

    def fold(self, event: Event) -> None:
        """Take one event into the tree."""
        self.at = self.root.ended = max(self.at, event.at)
        body = event.body
        match body:
            case RunStarted():
                self.root.segment = Segment(body.graph)
            case RunEnded():
                self.root.status = body.status
                self.root.words = _because(body.reason)
            case SessionStarted():
                self.root.sessions += 1
            case BudgetAdded():
                if self.root.status == "exhausted":
                    self.root.status, self.root.words = "running", ""
            case AnswerGiven():
                self.root.status, self.root.words = "running", ""  # a run that waited goes on
                self._answered(body.question)
            case EffectRequested() | EffectFinished():
                self._effect(body)
            case _ if isinstance(body, _SHOWN):
                self._visit(self.row(event.path), body)
            case _:
                pass

    def _answered(self, question: str) -> None:
        """Let a visit go on whose last open question was answered: no other event says so of an agent."""
        row = self.asked.pop(question, None)
        if row is not None and row.status == "waiting" and row not in self.asked.values():
            row.status, row.words = "running", ""

    def _effect(self, body: EffectRequested | EffectFinished) -> None:
        """Take in what makes no row, but may say something of one that is there."""
        row: _Row | None = self.root
        for segment in body.path:
            row = row.below.get(segment) if row is not None else None
        if row is not None and isinstance(body, EffectRequested):
            row.asking = True
        elif row is not None and row.talk is not None and isinstance(body, EffectFinished):
            row.talk.finished(body)

    def _visit(self, row: _Row, body: Body) -> None:
        match body:
            case NodeStarted() | FrameOpened():
                if row.status in {"", "skipped"} and row is not self.root:
                    row.status, row.words, row.began = "running", "", self.at
            case NodeReentered():
                row.turns, row.status, row.words = body.turn + 1, "running", ""
            case NodeRetried():
                row.retries += 1
            case NodeEnded():
                row.status, row.ended, row.words = body.status, self.at, _because(body.reason)
            case EffectStarted():
                _started(row, body)
            case FrameClosed():
                row.report = str(report_status(body.report) or "")
                if row.status in _OPEN and row is not self.root:
                    row.status = "failed" if report_status(body.report) == "failed" else "completed"
                    row.ended = self.at
            case NodeSkipped():
                if not row.status:
                    row.status, row.words = "skipped", _because(body.reason)
            case Paused():
                row.status, row.words = "waiting", shown(body.text, 200)
                self.asked[body.question] = row
            case Refused() | Detected():
                row.refused[_warning(body)] += 1
            case _:
                pass
        self._count(row, body)

    def _count(self, row: _Row, body: Body) -> None:
        spent = Tally()
        spent.add(body)
        runs = isinstance(body, (NodeStarted, NodeRetried))
        above: _Row | None = row
        while above is not None:
            above.total.add(spent)
            above.runs += runs
            above = above.above

    def settle(self) -> None:
        """Mark the rows that are not in order, and those that stay open until the run is resumed."""
        for row in reversed(self.rows):  # a row is made after the one above it
            if row.status == "running" and row is not self.root and self.root.status != "running":
                row.status = "open"
            row.odd = row.odd or row.status not in _IN_ORDER or bool(row.refused)
            if row.odd and row.above is not None:
                row.above.odd = True


def _started(row: _Row, body: EffectStarted) -> None:
    if body.key == body.name == MODEL and not row.asking:
        row.talk = row.talk or Talk()
    if row.talk is not None:
        row.talk.started(body)


def _warning(body: Refused | Detected) -> str:
    if isinstance(body, Detected):
        return f"{shown(body.detector, NAME)}: {shown(body.text, 120)}"
    limit = f" (limit {body.limit:g})" if body.limit is not None else ""
    return f"refused by {body.bound}{limit}: {shown(body.wanted, 120)}"


def _because(reason: Reason | None) -> str:
    if reason is None:
        return ""
    code = reason.error_type.rpartition(".")[2] or reason.code
    text = shown(reason.text, 200)
    return text if text.startswith(code) else f"{shown(code, NAME)}: {text}"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line of the tree, with the visits that are shown below it."""

    text: str
    row: _Row | None = None
    members: tuple[_Row, ...] = ()


def _lines(root: _Row, *, ascii: bool) -> Iterator[str]:
    """Yield the lines of a tree; without recursion, because a path has any length."""
    mid, last, bar = _BRANCHES[ascii]
    yield _root_text(root, ascii=ascii)
    todo = [("", entry, place) for entry, place in _placed(_entries_of(root, ascii=ascii))]
    while todo:
        indent, entry, is_last = todo.pop()
        yield indent + (last if is_last else mid) + entry.text
        inner = indent + ("   " if is_last else bar)
        row = entry.row
        entries = _entries_of(row, ascii=ascii) if row is not None else _told(entry.members, ascii=ascii)
        todo += [(inner, entry, place) for entry, place in _placed(entries)]


def _placed(entries: list[_Entry]) -> list[tuple[_Entry, bool]]:
    """Return entries in reverse, as a stack wants them, each with whether it is the last one shown."""
    return [(entry, index == 0) for index, entry in enumerate(reversed(entries))]


def _entries_of(row: _Row, *, ascii: bool) -> list[_Entry]:
    entries = [_Entry(f"{_SAYS.get(row.status, '!')} {row.words}")] if row.words else []
    entries += [_Entry(f"! {text}" + (f"  ×{times:,}" if times > 1 else "")) for text, times in row.refused.items()]
    if row.talk is not None:
        lines = row.talk.lines(_asks_of(row), over=row.status not in _OPEN, ascii=ascii)
        entries += [_Entry(f"· {line}") for line in lines]
    groups: dict[tuple[str, bool], list[_Row]] = {}
    for inner in row.below.values():
        groups.setdefault((inner.segment.name, inner.segment.call is None), []).append(inner)
    for members in groups.values():
        if len(members) > MOST_SIBLINGS:
            entries.append(_Entry(_group_text(members, ascii=ascii), None, tuple(m for m in members if m.odd)))
        else:
            entries += [_Entry(_row_text(member, ascii=ascii), member) for member in members]
    return entries


def _asks_of(row: _Row) -> list[Ask]:
    """Return what a visit delegated; of those that control was handed to in the frame of a callee, the callee alone."""
    asks: dict[tuple[int, int], Ask] = {}
    called = [(call, inner) for inner in row.below.values() if (call := inner.segment.call) is not None]
    for call, inner in called:
        asks.setdefault(call, Ask(*call, inner.segment.name, inner.report or inner.status))
    return list(asks.values())


def _told(members: tuple[_Row, ...], *, ascii: bool) -> list[_Entry]:
    entries = [_Entry(_row_text(member, ascii=ascii), member) for member in members[:MOST_SIBLINGS]]
    more = len(members) - MOST_SIBLINGS
    return [*entries, _Entry(f"and {more:,} more")] if more > 0 else entries


def _root_text(root: _Row, *, ascii: bool) -> str:
    facts = [root.status] if not ascii else []
    facts += [count(root.runs, "node run")] * bool(root.runs)
    facts += [*root.total.words(), *_seconds(root.ended)]
    facts += [count(root.sessions, "session")] * (root.sessions > 1)
    return _joined(f"{_glyph(root.status, ascii=ascii)} {shown(root.segment.name, NAME)}", facts)


def _row_text(row: _Row, *, ascii: bool) -> str:
    name = shown(row.segment.name, NAME)
    name += "".join(f"[{lane}]" for lane in row.segment.lanes[-1:])
    name += f" (visit {row.segment.visit})" if row.segment.visit > 1 else ""
    facts = [row.status.replace("_", " ")] * (not ascii and row.status not in {"completed", ""})
    facts += [count(row.turns, "turn")] * (row.turns > 1)
    facts += [count(row.retries, "retry", "retries")] * bool(row.retries)
    facts += [*row.total.words(), *_seconds(row.ended - row.began)]
    return _joined(f"{_glyph(row.status, ascii=ascii)} {name}", facts)


def _group_text(members: list[_Row], *, ascii: bool) -> str:
    ends = Counter(member.status or "not run" for member in members)
    total = Tally()
    for member in members:
        total.add(member.total)
    worst = next((member.status for member in members if member.status not in _IN_ORDER), members[0].status)
    facts = [f"{number:,} {status.replace('_', ' ')}" for status, number in sorted(ends.items())]
    longest = max(member.ended for member in members) - min(member.began for member in members)
    name = f"{shown(members[0].segment.name, NAME)} ×{len(members):,}"
    return _joined(f"{_glyph(worst, ascii=ascii)} {name}", [*facts, *total.words(), *_seconds(longest)])


def _glyph(status: str, *, ascii: bool) -> str:
    if not ascii:
        return GLYPHS[status]
    return "[ok]" if status == "completed" else f"[{status.replace('_', ' ') or ' '}]"


def _seconds(seconds: float) -> list[str]:
    return [f"{seconds:.3g} s"] if seconds >= LEAST_SECONDS else []


def _joined(head: str, facts: list[str]) -> str:
    return f"{head}  {' · '.join(facts)}" if facts else head
