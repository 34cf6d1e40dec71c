"""What an agent sees when it is entered: what of the thread crosses, what the user said, and what arrived.

A message is in a thread once. What arrives from another agent of the same thread is there already; what arrives from
elsewhere, such as the output of a function, is put into the thread by the first agent that sees it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from pydantic import BaseModel

from graphflow.events import Boundary
from graphflow.graphs.compiled import Edge
from graphflow.model.context import question_of
from graphflow.model.contract import Brief, Report
from graphflow.model.cutting import most, shown_within, within
from graphflow.model.ids import Segment, path_text
from graphflow.model.secrets import veiled
from graphflow.model.state import Message
from graphflow.model.thread import (
    DATA_CAP,
    LABEL_CAP,
    History,
    Last,
    Thread,
    ThreadMessage,
    capped,
    data,
    paired,
    shown,
    size_of,
    spoken,
    summary,
    words_of,
)
from graphflow.nodes.agent import Agent
from graphflow.runtime.core import thread_above
from graphflow.runtime.tables import Frame, Inbox, ThreadLog, Visit

Ranges = tuple[tuple[int, int], ...]

_ROOM = 2 * LABEL_CAP
"""What delimiters, a label and the count of what was left out take beside a text that has been cut already."""

NOTHING_SAID = ThreadMessage("user", "Begin.")
"""What an agent is told when nobody has said anything: a model needs something to answer."""


def entry_of(visit: Visit, log: ThreadLog, granted: tuple[str, ...]) -> tuple[Thread, Boundary]:
    """Return what an agent sees when it is entered, and the record of it; put into its thread what is new.

    Raises:
        Exception: whatever a history function of the user raises.
    """
    if log.user is None and not log.told:
        greet(visit, log)
    edge, token = visit.edge, visit.token
    frame = token.frame
    caller = frame.owner if frame.is_node and edge.name.kind == "delegate" else None
    history: History = edge.history if edge.history is not None else _own_policy(visit, log)
    source = log
    if caller is not None:
        source = log_of(caller) or ThreadLog()
    crossing: Thread = ()
    positions: tuple[int, ...] = ()
    known = len(source.items)
    if history != "note" and known:
        crossing, positions = crossing_of(tuple(source.items), history, log, visit.inbox)
        log.ids.update(call.id for message in crossing for call in message.calls)  # of the caller's thread too
    arrived = _arrivals(visit, log, crossing) if visit.inbox else ()
    if token.note:
        arrived = (*arrived, spoken("user", token.note, source="graphflow"))
        token.note = ""
    if crossing:
        crossing = tuple(
            message if size_of(message) <= DATA_CAP or message is log.user else _shortened(message)
            for message in crossing
        )
    given = caller is None and callable(history)  # a function says itself what crosses; a callee's looks at its caller
    if log.user is None or crossing or positions or arrived or given:
        after = caller is not None or log.user_at == known - 1  # what was asked comes behind what was said before it
        view = put_together(log, crossing, arrived, after=after, given=given)
        crossed = [*positions]
        if source is log and log.user_at not in crossed and holds(view, log.user):
            crossed.append(log.user_at)
        ranges, size = ranges_of(crossed), sum(map(size_of, view))
    else:  # it sees what it is asked, and nothing else
        view, size = (log.user,), size_of(log.user)
        ranges = ((log.user_at, log.user_at),) if source is log else ()
    return view, Boundary(visit.path, edge.name, ranges, between(ranges, known), size, granted)


def log_of(caller: Visit) -> ThreadLog | None:
    """Return the thread of a caller, if there is one yet."""
    return caller.talk.log if caller.talk is not None else thread_above(caller.token)


def _shortened(message: ThreadMessage) -> ThreadMessage:
    """Return a message that crosses within the cap; arguments that cannot be cut become an object that says so."""
    calls = tuple(
        call
        if len(call.arguments) <= DATA_CAP
        else replace(call, arguments=within(call.arguments) or _left_out(len(call.arguments)))
        for call in message.calls
    )
    text = message.text
    if not (text.startswith("<") and len(text) <= DATA_CAP + _ROOM):
        text = within(text) or capped(text)
    return replace(message, text=text, calls=calls)


def _left_out(size: int) -> str:
    return json.dumps({"left out": f"{size} characters"})


def _own_policy(visit: Visit, log: ThreadLog) -> History:
    """Return the policy of an agent where the edge has none; by default it knows its own chat."""
    edge, node = visit.edge, visit.station.node
    assert isinstance(node, Agent)  # noqa: S101 - only agents have views
    if node.history is not None:
        return node.history
    return "full" if continues(edge, log) else "note"


def continues(edge: Edge, log: ThreadLog) -> bool:
    """Tell whether an edge leads to who begins in a thread in which something was said before."""
    return edge.name.source is None and edge.name.kind != "escalate" and (log.user_at > 0 or log.begun > 0)


def crossing_of(items: Thread, history: History, log: ThreadLog, inbox: Inbox) -> tuple[Thread, tuple[int, ...]]:
    """Apply a policy other than "note" to a thread.

    Returns:
        What crosses, in order, every call with its one result; and the positions of the messages that do. A summary
        is a message of its own, and stands for every position.

    Raises:
        TypeError: if a function gave something that is no message of a thread.
    """
    everything = tuple(range(len(items)))
    if history == "full":
        return paired(items), everything
    if history == "summary":
        rest = _not_seen_anyway(items, log, inbox)
        if not rest:
            return (), ()
        return (spoken("user", data("summary", "thread", summary(rest)), source="thread"),), everything
    if isinstance(history, Last):  # what the user said crosses anyway
        others = [index for index in everything if items[index] is not log.user][-history.count :]
        return paired(items[index] for index in others), tuple(others)
    assert callable(history)  # noqa: S101 - the others are handled above
    chosen = tuple(history(items))
    wrong: list[object] = [message for message in chosen if not _is_message(message)]
    if wrong:
        msg = f"history={history!r} gave {wrong[0]!r}: it returns messages of the thread, changed ones too."
        raise TypeError(msg)
    kept = {id(message) for message in chosen}
    return paired(chosen), tuple(index for index in everything if id(items[index]) in kept)


def _is_message(found: object) -> bool:
    if not isinstance(found, ThreadMessage):
        return False
    role, text = cast("tuple[object, object]", (found.role, found.text))
    return role in ("user", "assistant", "tool") and isinstance(text, str)


def _not_seen_anyway(items: Thread, log: ThreadLog, inbox: Inbox) -> Thread:
    """Leave out of a summary what stands in the view as it is: what the user said, and what arrives."""
    arriving = {
        log.finals[sent.source][0] for sent in inbox if log.finals.get(sent.source, ("", None))[1] is sent.value
    }
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


def put_together(log: ThreadLog, crossing: Thread, arrived: Thread, *, after: bool, given: bool) -> Thread:
    """Join what crosses, what the user said and what arrived."""
    asked = () if log.user is None or given or (crossing and holds(crossing, log.user)) else (log.user,)
    view = (*crossing, *asked, *arrived) if after else (*asked, *crossing, *arrived)
    return view or (NOTHING_SAID,)


def holds(messages: Thread, wanted: ThreadMessage | None) -> bool:
    """Tell whether a message itself stands among others, not only one that equals it."""
    return id(wanted) in map(id, messages)


def greet(visit: Visit, log: ThreadLog) -> None:
    """Put what the frame is asked into its thread, before its first agent speaks."""
    frame = visit.token.frame
    asker = _asker(frame)
    for arrived in visit.inbox:
        if isinstance(arrived.value, Brief):
            message = spoken("user", data("brief", asker, brief_text(arrived.value)), (), "", False, asker)  # noqa: FBT003 - as the fields
            break
    else:
        text = question_of(visit.token.context)
        if not text:
            return
        if _came_in(frame, text):  # another node has said it, and no user
            assert frame.owner is not None  # noqa: S101 - it came in
            label = _sender(frame.owner, frame.owner.inbox[0])
            message = spoken("user", data("message", label, text), source=label)
        else:
            message = spoken("user", data("brief", asker, text), source=asker) if asker else spoken("user", text)
    log.user, log.user_at = message, len(log.items)
    log.items.append(message)


def _came_in(frame: Frame, text: str) -> bool:
    """Tell whether what a nested graph is asked is what arrived at it: it began with a context made of that."""
    owner = frame.owner
    if owner is None or frame.is_node or owner.edge.name.kind == "delegate" or not owner.inbox:
        return False
    graph, outer = frame.tables.graph, owner.token.frame.tables.graph
    if graph.enter is None and graph.context is outer.context:  # it went on with the context around it
        return False
    return all(words_of(message.value) in text for message in owner.inbox)


def _sender(visit: Visit, message: Message) -> str:
    """Return the path of the node that an item of an inbox comes from; into a nested graph it comes from outside."""
    while visit.edge.name.source is None and visit.token.frame.owner is not None:
        visit = visit.token.frame.owner
    return path_text((*visit.token.frame.path, Segment(message.source)))


def _asker(frame: Frame) -> str:
    """Return the path of the visit that delegated to a frame; "" where the user speaks."""
    around = frame
    while around.owner is not None:
        if around.is_node:
            owner = around.owner
            return path_text(owner.path) if owner.talk is None else owner.talk.source
        around = around.owner.token.frame
    return ""


def brief_text(brief: BaseModel) -> str:
    """Write a brief for its reader, a line for each field that says something; the longest are cut where it must be."""
    parts = [
        (name, value if isinstance(value, str) else _joined(value))
        for name, value in (brief if type(brief) is Brief else veiled(brief)).__dict__.items()
        if value or value not in ("", (), None)
    ]
    text = "\n".join([f"{name}: {value}" for name, value in parts])
    if len(text) <= DATA_CAP:
        return text

    def written(longest: int) -> str:
        return "\n".join([f"{name}: {capped(value, longest)}" for name, value in parts])

    return most(written, DATA_CAP, 0, DATA_CAP) or text


def _joined(value: Any) -> str:
    return "; ".join(map(shown, cast("tuple[Any, ...]", value))) if isinstance(value, tuple) else shown(value)


def _arrivals(visit: Visit, log: ThreadLog, crossing: Thread) -> Thread:
    """Return what arrived and does not stand in what crosses; what the thread does not have yet is put into it."""
    inbox = [message for message in visit.inbox if not isinstance(message.value, Brief)]  # what the frame was asked
    if not inbox:
        return ()
    frame = visit.token.frame
    if visit.edge.name.source is None and log.user is not None and _came_in(frame, question_of(visit.token.context)):
        return ()  # it is what the frame was asked
    said = {message.source for message in crossing if message.role == "assistant"}
    calls = {call.id for message in crossing for call in message.calls}
    found: list[ThreadMessage] = []
    for message in inbox:
        label = _sender(visit, message)
        noted = _is_note(visit, message, log)
        kind = "note" if noted else "report" if isinstance(message.value, Report) else "message"
        made = spoken("user", data(kind, label, shown_within(message.value)), source=label)
        if noted:
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


def _is_note(visit: Visit, message: Message, log: ThreadLog) -> bool:
    """Tell whether something that arrived is the note of a handoff, or of one to the graph in which a visit begins."""
    edge, owner = visit.edge, visit.token.frame.owner
    while log.begun and edge.name.source is None and owner is not None:
        edge, owner = owner.edge, owner.token.frame.owner
    return edge.name.kind == "handoff" and message.source == edge.name.source


def ranges_of(positions: Sequence[int]) -> Ranges:
    """Write positions as ranges, both ends included: a record must not grow with the thread."""
    if len(positions) <= 1:
        return tuple([(position, position) for position in positions])
    made: list[list[int]] = []
    for position in sorted(positions):
        if made and position == made[-1][1] + 1:
            made[-1][1] = position
        else:
            made.append([position, position])
    return tuple((first, last) for first, last in made)


def between(ranges: Ranges, count: int) -> Ranges:
    """Return the ranges of the positions below `count` that lie in none of some ranges."""
    made: list[tuple[int, int]] = []
    start = 0
    for first, last in ranges:
        if first > start:
            made.append((start, first - 1))
        start = last + 1
    if start < count:
        made.append((start, count - 1))
    return tuple(made)
