"""What an agent sees when it is entered: what of the thread crosses, what the user said, and what arrived.

A message is in a thread once. What arrives from another agent of the same thread is there already; what arrives from
elsewhere, such as the output of a function, is put into the thread by the first agent that sees it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic import BaseModel

from graphflow.events import Boundary
from graphflow.model.contract import Brief, Report
from graphflow.model.ids import Segment, path_text
from graphflow.model.state import Message
from graphflow.model.thread import History, Thread, ThreadMessage, data, shown, view_of
from graphflow.nodes.agent import Agent
from graphflow.runtime.core import thread_above
from graphflow.runtime.frames import takes_text
from graphflow.runtime.tables import Frame, Inbox, ThreadLog, Visit

NOTHING_SAID = ThreadMessage("user", "Begin.")
"""What an agent is told when nobody has said anything: a model needs something to answer."""


class Entry(NamedTuple):
    """What an agent sees, and what the record says of it."""

    view: Thread
    boundary: Boundary


def entry_of(visit: Visit, log: ThreadLog, granted: tuple[str, ...]) -> Entry:
    """Return what an agent sees when it is entered, and put into its thread what is new.

    Raises:
        Exception: whatever a history function of the user raises.
    """
    _greet(visit, log)
    node, edge = visit.station.node, visit.edge
    assert isinstance(node, Agent)  # noqa: S101 - only agents have views
    owner = visit.token.frame.owner
    called = edge.name.kind == "delegate" and visit.token.frame.is_node and owner is not None
    history: History = node.history if edge.history is None else edge.history
    source = log
    if called and owner is not None:
        source = (owner.talk.log if owner.talk is not None else thread_above(owner.token)) or ThreadLog()
    items = tuple(source.items)
    crossing, positions = _crossing(items, history, log, visit.inbox)
    log.ids.update(call.id for message in crossing for call in message.calls)  # of the caller's thread too
    arrived = _arrivals(visit, log, crossing)
    if visit.token.note:
        arrived = (*arrived, ThreadMessage("user", visit.token.note, source="graphflow"))
        visit.token.note = ""
    view = _put_together(log, crossing, arrived, called=called, chosen=callable(history))
    size = sum(message.size for message in view)
    crossed = set(positions)
    if source is log and any(message is log.user for message in view):
        crossed.add(log.user_at)
    dropped = set(range(len(items))) - crossed
    boundary = Boundary(visit.path, edge.name, _ranges(crossed), _ranges(dropped), size, granted)
    return Entry(view, boundary)


def _crossing(items: Thread, history: History, log: ThreadLog, inbox: Inbox) -> tuple[Thread, tuple[int, ...]]:
    if history != "summary":
        return view_of(items, history)
    rest = _not_seen_anyway(items, log, inbox)
    if not rest:
        return (), ()
    crossing, _ = view_of(rest, history)
    return crossing, tuple(range(len(items)))


def _not_seen_anyway(items: Thread, log: ThreadLog, inbox: Inbox) -> Thread:
    """Leave out of a summary what stands in the view as it is: what the user said, and what arrives."""
    arriving = {log.finals[sent.source][0] for sent in inbox if log.finals.get(sent.source, ("", None))[1] is sent.value}
    kept: list[ThreadMessage] = []
    for message in reversed(items):
        if message is log.user:
            continue
        if message.role == "assistant" and not message.calls and message.source in arriving:
            arriving.remove(message.source)  # the answer; what it said before is news
            continue
        calls = tuple(call for call in message.calls if call.id != log.noted)
        kept.append(message if calls == message.calls else replace(message, calls=calls))
    return tuple(reversed(kept))


def _put_together(log: ThreadLog, crossing: Thread, arrived: Thread, *, called: bool, chosen: bool) -> Thread:
    """Join what crosses, what the user said and what arrived; a policy of the user's own says itself what the user said."""
    given = chosen and not called  # a callee's function looks at the thread of its caller
    asked = () if log.user is None or given or any(message is log.user for message in crossing) else (log.user,)
    view = (*crossing, *asked, *arrived) if called else (*asked, *crossing, *arrived)
    return view or (NOTHING_SAID,)


def _greet(visit: Visit, log: ThreadLog) -> None:
    """Put what the frame is asked into its thread, before its first agent speaks."""
    if log.user is not None:
        return
    frame = visit.token.frame
    brief = next((message.value for message in visit.inbox if isinstance(message.value, Brief)), None)
    asker = _asker(frame)
    if brief is not None:
        message = ThreadMessage("user", data("brief", asker, brief_text(brief)), source=asker)
    else:
        text = first_text(visit.token.context)
        if not text:
            return
        message = ThreadMessage("user", data("brief", asker, text), source=asker) if asker else ThreadMessage("user", text)
    log.user, log.user_at = message, len(log.items)
    log.items.append(message)


def _asker(frame: Frame) -> str:
    """Return the path of the visit that delegated to a frame; "" where the user speaks."""
    around: Frame | None = frame
    while around is not None and around.owner is not None:
        if around.is_node:
            return path_text(around.owner.path)
        around = around.owner.token.frame
    return ""


def brief_text(brief: BaseModel) -> str:
    """Write a brief for its reader, a line for each field that says something."""
    said = {name: getattr(brief, name) for name in type(brief).model_fields}
    return "\n".join(f"{name}: {_joined(value)}" for name, value in said.items() if value not in (None, "", ()))


def _joined(value: Any) -> str:
    if isinstance(value, tuple):
        items: tuple[Any, ...] = value
        return "; ".join(map(shown, items))
    return shown(value)


def first_text(context: Any) -> str:
    """Return what a context says first: its first field, if that is a text."""
    fields = type(context).model_fields
    name = next(iter(fields), None)
    if name is None or not takes_text(fields[name].annotation):
        return ""
    value = getattr(context, name)
    return value if isinstance(value, str) else ""


def _arrivals(visit: Visit, log: ThreadLog, crossing: Thread) -> Thread:
    """Return what arrived and does not stand in what crosses; what the thread does not have yet is put into it."""
    frame = visit.token.frame
    said = {message.source for message in crossing if message.role == "assistant"}
    calls = {call.id for message in crossing for call in message.calls}
    found: list[ThreadMessage] = []
    for message in visit.inbox:
        if isinstance(message.value, Brief):
            continue  # it is what the frame was asked
        label = path_text((*frame.path, Segment(message.source)))
        made = ThreadMessage("user", data(_kind(visit, message), label, shown(message.value)), source=label)
        if visit.edge.name.kind == "handoff" and message.source == visit.edge.name.source:
            if message.value in (None, "") or (log.noted and log.noted in calls):
                continue  # no note, or it stands in the call that crosses
            if log.noted:
                found.append(made)
                continue
        elif message.source in log.finals and log.finals[message.source][1] is message.value:
            if log.finals[message.source][0] not in said:
                found.append(made)
            continue
        found.append(made)
        log.items.append(made)
    return tuple(found)


def _kind(visit: Visit, message: Message) -> str:
    if visit.edge.name.kind == "handoff" and message.source == visit.edge.name.source:
        return "note"
    return "report" if isinstance(message.value, Report) else "message"


def _ranges(positions: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Write positions as ranges, both ends included: a record must not grow with the thread."""
    made: list[list[int]] = []
    for position in sorted(positions):
        if made and position == made[-1][1] + 1:
            made[-1][1] = position
        else:
            made.append([position, position])
    return tuple((first, last) for first, last in made)

