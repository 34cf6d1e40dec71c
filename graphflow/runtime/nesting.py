"""Threads of graphs inside graphs: with what one begins, and how what was answered last gets into the thread around it.

A nested graph's thread starts with its view, which an edge with `history=` decides, and in the next message of a chat
the place at START. What it answers is one message of the thread around it.
"""

from __future__ import annotations

from typing import Any

from graphflow.events import Boundary
from graphflow.graphs.compiled import Compiled, Station, out_edges
from graphflow.graphs.graph import Graph
from graphflow.model.context import question_of
from graphflow.model.contract import Report
from graphflow.model.cutting import shown_within
from graphflow.model.ids import Segment, path_text
from graphflow.model.outcome import NOTHING
from graphflow.model.state import Message
from graphflow.model.thread import History, Thread, data, size_of, spoken
from graphflow.nodes.agent import Agent
from graphflow.runtime.core import thread_above, thread_of
from graphflow.runtime.tables import Frame, Inbox, ThreadLog, Token, Visit
from graphflow.runtime.views import (
    NOTHING_SAID,
    between,
    continues,
    crossing_of,
    greet,
    holds,
    log_of,
    put_together,
    ranges_of,
)


def has_views(tables: Compiled, *, chat: bool) -> bool:
    """Tell whether more than what arrives can cross to a graph in a graph, or does as the next message of a chat.

    It holds from edition 1 on: a run that was stored before graphs had views goes on without.
    """
    if chat:
        first = [tables.stations[edge.target].node for edge in out_edges(tables.start) if isinstance(edge.target, str)]
        if any(isinstance(node, Graph) and node.enter is None for node in first):
            return True
    if tables.views is None:
        inner = {name: found for name, station in tables.stations.items() if (found := _tables(station)) is not None}
        tables.views = any(
            edge.history not in (None, "note") and edge.target in inner for edge in tables.edges()
        ) or any(has_views(found, chat=False) for found in inner.values())
    return tables.views


# --- with what a nested graph begins ---------------------------------------------------------------------------------


def begun_with(visit: Visit, graph: Graph[Any], *, shared: bool) -> tuple[ThreadLog, Boundary] | None:
    """Return the thread that a nested graph begins with, and the record of it; None where nothing crosses to it.

    Args:
        visit: that of the graph.
        graph: the graph.
        shared: whether it goes on with the context around it, and so with what the user said.

    Raises:
        Exception: whatever a history function of the user raises.
    """
    history = visit.edge.history
    if history == "note":
        return None
    caller = visit.token.frame.owner if visit.edge.name.kind == "delegate" else None
    source = thread_above(visit.token) if caller is None else log_of(caller)
    if source is None or not source.items:
        return None
    if history is None:
        if not _begins(visit, graph):
            return None
        history, source = "full", thread_of(visit.token)
    view, crossed = _view(visit, source, history, called=caller is not None)
    log = ThreadLog(list(view), {call.id for message in view for call in message.calls}, begun=len(view))
    if source.noted and source.noted in log.ids:
        log.noted = source.noted
    if shared and caller is None:
        _goes_on(log, source, told=callable(history))
    ranges = ranges_of(crossed)
    dropped = between(ranges, len(source.items))
    return log, Boundary(visit.path, visit.edge.name, ranges, dropped, sum(map(size_of, view)))


def _begins(visit: Visit, graph: Graph[Any]) -> bool:
    """Tell whether a graph begins the next message of a chat, and does not say itself what it begins with."""
    if visit.edge.name.source is not None or graph.enter is not None:
        return False
    log = thread_of(visit.token)
    if log.user is None and not log.told:
        greet(visit, log)  # what the user says now belongs to the conversation
    return continues(visit.edge, log)


def _view(visit: Visit, source: ThreadLog, history: History, *, called: bool) -> tuple[Thread, list[int]]:
    """Return what crosses, as an agent would see it without what arrives, and the positions of it."""
    items = tuple(source.items)
    crossing, positions = crossing_of(items, history, ThreadLog() if called else source, visit.inbox)
    if history != "summary":  # a result without its call does not cross, and a summary stands for all
        there = set(map(id, crossing))
        positions = tuple(at for at in positions if items[at].role != "tool" or id(items[at]) in there)
    if called:
        return crossing, [*positions]
    after = source.user_at == len(items) - 1
    view = put_together(source, crossing, (), after=after, given=callable(history))
    if view == (NOTHING_SAID,):
        return (), []
    crossed = [*positions]
    if source.user_at not in crossed and holds(view, source.user):
        crossed.append(source.user_at)
    return view, crossed


def _goes_on(log: ThreadLog, source: ThreadLog, *, told: bool) -> None:
    """Let what the user has said in the thread around be what the user has said in this one."""
    for position, message in enumerate(log.items):
        if message is source.user or (told and message.role == "user" and not message.source):
            log.user, log.user_at = message, position
    log.told = told


# --- what was answered last ------------------------------------------------------------------------------------------


def note_answer(frame: Frame, token: Token, inbox: Inbox, output: object) -> None:
    """Put what has reached the END of a run into its thread, unless the agent that said it has done so.

    A graph in which no agent is has no thread.
    """
    log = frame.thread
    if log is None:
        if not speaks(frame.tables):
            return
        log = frame.thread = ThreadLog()
    graph = frame.tables.graph
    if graph.leave is None:
        said = [message for message in inbox if not _is_nothing(message.value)]
    else:
        known = any(value is output for _, value in log.finals.values())
        said = [] if known or _is_nothing(output) else [Message(graph.name, output)]
    new = [message for message in said if log.finals.get(message.source, ("", NOTHING))[1] is not message.value]
    if new and log.user is None and not log.told and (asked := question_of(token.context)):
        log.user, log.user_at = spoken("user", asked), len(log.items)
        log.items.append(log.user)
    for message in new:
        label = path_text((*frame.path, Segment(message.source)))
        kind = "report" if isinstance(message.value, Report) else "message"
        log.items.append(spoken("user", data(kind, label, shown_within(message.value)), source=label))
    if len(inbox) == 1:
        station = frame.tables.stations.get(inbox[0].source)
        if station is not None and (inner := _tables(station)) is not None and speaks(inner):
            log.active = station.name


def _is_nothing(value: object) -> bool:
    return value is None or value is NOTHING or (isinstance(value, str) and not value)


def speaks(tables: Compiled) -> bool:
    """Tell whether an agent is somewhere in a graph, or in a graph inside it."""
    if tables.speaks is None:
        stations = tables.stations.values()
        inner = [found for found in map(_tables, stations) if found is not None]
        tables.speaks = any(isinstance(station.node, Agent) for station in stations) or any(map(speaks, inner))
    return tables.speaks


def _tables(station: Station) -> Compiled | None:
    """Return the tables of a station that is a graph."""
    node: Any = station.node
    tables: Compiled | None = node.compiled if isinstance(node, Graph) else None
    return tables
