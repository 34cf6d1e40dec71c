"""What the members of a team tell each other: what was said, the report of the whole, and what a team is asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, SerializationInfo, SerializerFunctionWrapHandler, model_serializer

from graphflow.model.context import Context, append, question_field, question_of
from graphflow.model.contract import BOUNDS, Reason, Report
from graphflow.model.outcome import NOTHING
from graphflow.model.state import State
from graphflow.model.thread import FOR_MODELS, shown, words_of

K = TypeVar("K", bound=Context)


class Task(Context):
    """What a team is asked: the context of a strategy, unless you give your own.

    Attributes:
        task: what is asked.
    """

    task: str


class Said(BaseModel):
    """What one member said.

    Attributes:
        speaker: the member's name.
        report: what it said; a text is the report's finding.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    speaker: str
    report: Report

    @property
    def text(self) -> str:
        """What it said in words: the finding, else why there is none."""
        return words_of(self.report)


class Conversation(Task):
    """A conversation that goes from member to member.

    Attributes:
        said: what was said, in order.
        speaker: who has the floor; "" where nobody has it.
        over: whether it has ended.
        seed: what draws depend on, where the next speaker is drawn.
    """

    said: Annotated[tuple[Said, ...], append] = ()
    speaker: str = ""
    over: bool = False
    seed: int | None = None


class TeamReport(Report):
    """The report of a team: that of its last speaker, or of all together, and what each one said.

    Attributes:
        said: what the members said, exactly, in order. A model that gets the report does not see it.
    """

    said: tuple[Said, ...] = ()

    @model_serializer(mode="wrap")
    def _for_reader(self, whole: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Leave out for a model what its team said: whoever delegates sees reports, and no steps."""
        written: dict[str, Any] = whole(self)
        if info.context == FOR_MODELS:
            written.pop("said", None)
        return written


def said_by(speaker: str, value: Any) -> Said:
    """Return what a member gave as what it said: a report stays as it is, anything else becomes the finding of one.

    >>> said_by("bull", "Buy.").report.finding
    'Buy.'
    >>> said_by("bear", None).report.status
    'partial'
    """
    if isinstance(value, Report):
        return Said(speaker=speaker, report=value)
    text = "" if value is None or value is NOTHING else shown(value)
    if text.strip():
        return Said(speaker=speaker, report=Report(finding=text))
    reason = Reason(code="empty_answer", text=f"{speaker!r} said nothing.")
    return Said(speaker=speaker, report=Report(status="partial", reason=reason))


def asked(state: State[Any]) -> str:
    """Return what a team is asked: what arrived, each with its source where several did, else its context's first text.

    A team that stands inside another one is asked what arrives there, and a team of its own what its context says.
    """
    arrived = [(message.source, words_of(message.value)) for message in state.inbox]
    told = [(source, text) for source, text in arrived if text.strip()]
    if len(told) == 1:
        return told[0][1]
    if told:
        return "\n".join(f"[{source}]: {text}" for source, text in told)
    return question_of(state.context)


def transcript(said: Iterable[Said]) -> str:
    r"""Write down what was said, a paragraph for each speaker's turn.

    >>> transcript([said_by("bull", "Buy."), said_by("bear", "Sell.")])
    '[bull]: Buy.\n[bear]: Sell.'
    """
    return "\n".join(f"[{one.speaker}]: {one.text}" for one in said)


def last_report(said: Sequence[Said]) -> TeamReport:
    """Return the report of a conversation: what its last speaker reported, and all that was said.

    >>> last_report([said_by("bull", "Buy."), said_by("bear", "Sell.")]).finding
    'Sell.'
    """
    if not said:
        return TeamReport(status="partial", reason=Reason(code="empty_answer", text="nobody has spoken."))
    last = said[-1].report
    return TeamReport(**{name: getattr(last, name) for name in Report.model_fields}, said=tuple(said))


def joint_report(said: Sequence[Said]) -> TeamReport:
    """Return the report of members that worked side by side: every finding and all evidence, in order.

    It is done where each of them is; it is failed where each has failed, or nobody said anything; else it is partial,
    and its reason names who is not done. Who was stopped by a bound has not failed: more of it would help.

    >>> joint_report([said_by("bull", "Buy."), said_by("bear", None)]).reason.text
    "not done: 'bear' (partial: 'bear' said nothing.)"
    """
    done = [one for one in said if one.report.status == "done"]
    evidence = tuple(dict.fromkeys(item for one in said for item in one.report.evidence))
    actions = [one.report.action_needed for one in said if one.report.action_needed]
    parts: dict[str, Any] = {
        "finding": transcript(one for one in said if one.report.finding.strip()),
        "evidence": evidence,
        "action_needed": "\n".join(actions) or None,
        "said": tuple(said),
    }
    if said and len(done) == len(said):
        return TeamReport(**parts)
    open_ones = [one for one in said if one.report.status != "done"]
    words = [f"{one.speaker!r} ({one.report.status}: {_why(one.report)})" for one in open_ones]
    reason = Reason(code="reported", text=f"not done: {'; '.join(words)}" if words else "nobody has reported.")
    hopeless = all(one.report.status == "failed" and not _at_a_bound(one.report) for one in said)
    return TeamReport(**parts, status="failed" if hopeless else "partial", reason=reason)


def _at_a_bound(report: Report) -> bool:
    return report.reason is not None and report.reason.code in BOUNDS


def _why(report: Report) -> str:
    return report.reason.text if report.reason is not None else ""


@dataclass(frozen=True)
class Holds:
    """Whether a field of the context has a value.

    Attributes:
        field: the field's name.
        value: the value.
        label: how an edge with this condition is drawn.
    """

    field: str
    value: str
    label: str

    def __call__(self, state: State[Any]) -> bool:
        """Compare."""
        return bool(getattr(state.context, self.field) == self.value)


def is_over(state: State[Conversation]) -> bool:
    """Tell whether a conversation has ended."""
    return state.context.over


@dataclass(frozen=True)
class Enter(Generic[K]):
    """Let a team inside another one begin with a context of its own: what it is asked, and nothing else.

    Attributes:
        kind: the class of the context.
    """

    kind: type[K]

    def __call__(self, state: State[Any]) -> K:
        """Make the context."""
        return self.kind(**{next(iter(self.kind.model_fields)): asked(state)})


def begins_with_text(kind: type[Context]) -> bool:
    """Tell whether a context can be made from a text alone: its first field takes one, and no other is required."""
    first = question_field(kind)
    others = (info for name, info in kind.model_fields.items() if name != first)
    return first is not None and not any(info.is_required() for info in others)
