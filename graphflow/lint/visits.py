"""The parts of a run as the rules see them: visits, turns, calls, delegations, reports.

What a class of the user's holds is read by the names of its fields, so that a run that was read without its graph's
classes looks the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from graphflow.events import Boundary, EdgeName
from graphflow.graphs.compiled import Station
from graphflow.model.contract import Reason
from graphflow.model.ids import Path, path_text
from graphflow.model.thread import normal
from graphflow.nodes.agent import Agent
from graphflow.nodes.base import Node

Fields = Mapping[str, Any]


class Frame(NamedTuple):
    """Where visits share a thread: the path around them, the call that opened it, and the lanes."""

    path: Path
    call: tuple[int, int] | None
    lanes: tuple[int, ...]


class Reported(NamedTuple):
    """A report, whatever its class.

    Attributes:
        status, finding, action, evidence: as in `Report`.
        code: the code of its reason, or "".
        why: the text of its reason, or "".
    """

    status: str
    finding: str
    action: str
    evidence: tuple[str, ...]
    code: str
    why: str

    @property
    def words(self) -> str:
        """All that it says."""
        return f"{self.finding} {self.action} {self.why}"


@dataclass(slots=True)
class Called:
    """A call that a model wrote, and what came of it.

    Attributes:
        seq: the number of the event in which it was written.
        turn, position: where it stands in its visit.
        name: what it calls.
        kind: what that does.
        target: for a delegation or a handoff, the node.
        given: its arguments, as data.
        key: the same as a text to compare.
        result: what it brought, or why it failed; None while nothing is known.
        failed: whether it failed.
    """

    seq: int
    turn: int
    position: int
    name: str
    kind: str
    target: str
    given: Fields
    key: str
    result: str | None = None
    failed: bool = False


@dataclass(slots=True)
class Turn:
    """One reply of a model: the number of its event, what it says beside its calls, and these."""

    number: int
    seq: int
    reason: str
    calls: list[Called]


@dataclass(slots=True)
class Asked:
    """A delegation: what was asked of whom, and what came back.

    Attributes:
        seq: the number of the event that opened it.
        turn, position: where it stands in its caller's visit.
        to: the callee.
        brief: the fields of the brief.
        path: the callee's visit.
        report: what came back, None while nothing did.
        closed: the number of the event that brought it, -1 while nothing did.
    """

    seq: int
    turn: int
    position: int
    to: str
    brief: Fields
    path: Path
    report: Reported | None = None
    closed: int = -1

    @property
    def objective(self) -> str:
        """What was wanted."""
        return str(self.brief.get("objective", ""))


@dataclass(slots=True)
class Visit:
    """One visit: what it was asked, what it did, how it ended.

    Attributes:
        path: where it stands.
        seq: the number of the event with which it began.
        edge: the edge that it was entered over.
        station: the node in its graph, None where the graph has none of that name.
        turns: the replies of its model.
        asked: its delegations.
        answer: the text of its answer, "" if it gave none, or none that is known.
        words: whether a function's answer is a text or a report, and no other value.
        kept: the text of what it changed in the context with its answer, "" for nothing.
        report: its answer as a report, if it is one.
        answered: the number of the event that brought the answer, -1 without one.
        status, reason, ended: its terminal event.
        to, note: whom it handed over to, and with which note.
        questions: how often a person was asked.
        boundary: what it saw when it was entered.
        left: the edges over which control left it, each with the number of its event.
    """

    path: Path
    seq: int
    edge: EdgeName
    station: Station | None
    turns: list[Turn] = field(default_factory=list[Turn])
    asked: list[Asked] = field(default_factory=list[Asked])
    answer: str = ""
    words: bool = False
    kept: str = ""
    report: Reported | None = None
    answered: int = -1
    status: str = ""
    reason: Reason | None = None
    ended: int = -1
    to: str = ""
    note: str = ""
    questions: int = 0
    boundary: Boundary | None = None
    left: list[tuple[int, EdgeName]] = field(default_factory=list[tuple[int, EdgeName]])

    @property
    def name(self) -> str:
        """The name of its node."""
        return self.path[-1].name

    @property
    def node(self) -> Node[Any] | None:
        """Its node."""
        return None if self.station is None else self.station.node

    @property
    def agent(self) -> Agent | None:
        """Its node, if that is an agent."""
        return self.node if isinstance(self.node, Agent) else None

    @property
    def frame(self) -> Frame:
        """Where it stands with others."""
        return Frame(self.path[:-1], self.path[-1].call, self.path[-1].lanes)

    @property
    def where(self) -> str:
        """Its path as text."""
        return path_text(self.path)

    @property
    def calls(self) -> list[Called]:
        """All calls of its model, in order."""
        return [call for turn in self.turns for call in turn.calls]

    @property
    def told(self) -> str:
        """All that it says in the end: its answer, and what it changed in the context with it."""
        return f"{self.answer} {self.kept}" if self.kept else self.answer

    @property
    def last_turn(self) -> int | None:
        """Its last turn, None for a node without a model."""
        return self.turns[-1].number if self.turns else None

    def brought(self) -> Iterator[tuple[int, int, str]]:
        """Yield what its calls brought: the turn, the number of the event of the call, and a text to compare."""
        for call in self.calls:
            if call.kind == "tool" and call.result is not None and not call.failed:
                yield call.turn, call.seq, f"{call.name}: {normal(call.result)}"
        for asked in self.asked:
            if asked.report is not None and asked.report.status in {"done", "partial"}:
                yield asked.turn, asked.seq, f"report: {normal(asked.report.finding)} {asked.report.evidence}"


def reported(value: object) -> Reported | None:
    """Return a value as a report, if it has the fields of one."""
    status, finding = value_of(value, "status"), value_of(value, "finding")
    if not isinstance(status, str) or not isinstance(finding, str):
        return None
    evidence, reason = value_of(value, "evidence"), value_of(value, "reason")
    ids = tuple(map(str, cast("Iterable[object]", evidence))) if isinstance(evidence, (tuple, list)) else ()
    why = reason if isinstance(reason, str) else value_of(reason, "text")
    return Reported(
        status, finding, str(value_of(value, "action_needed") or ""), ids, str(value_of(reason, "code") or ""),
        str(why or ""),
    )  # fmt: skip


def value_of(value: object, name: str) -> Any:
    """Return a field of a model, or of what was read as a table of its fields; None where it has none."""
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).get(name)
    return getattr(value, name, None)
