"""graphflow: teams of agents as a directed graph, drawn, proved and run."""

import importlib
from typing import TYPE_CHECKING

import graphflow.early  # noqa: F401 # pyright: ignore[reportUnusedImport]  # it hears a Ctrl-C while the rest is loaded
from graphflow.errors import GraphflowError as GraphflowError
from graphflow.graphs.graph import Graph as Graph
from graphflow.model.budget import Budget as Budget
from graphflow.model.context import Context as Context
from graphflow.model.context import add as add
from graphflow.model.context import append as append
from graphflow.model.context import extend as extend
from graphflow.model.context import union as union
from graphflow.model.contract import Approval as Approval
from graphflow.model.contract import Brief as Brief
from graphflow.model.contract import Reason as Reason
from graphflow.model.contract import Report as Report
from graphflow.model.frozen import FrozenDict as FrozenDict
from graphflow.model.frozen import Json as Json
from graphflow.model.outcome import NOTHING as NOTHING
from graphflow.model.outcome import Call as Call
from graphflow.model.outcome import Delegate as Delegate
from graphflow.model.outcome import Done as Done
from graphflow.model.outcome import Handoff as Handoff
from graphflow.model.outcome import Pause as Pause
from graphflow.model.outcome import Skip as Skip
from graphflow.model.outcome import Update as Update
from graphflow.model.state import Left as Left
from graphflow.model.state import State as State
from graphflow.model.thread import ThreadMessage as ThreadMessage
from graphflow.model.thread import ToolCall as ToolCall
from graphflow.model.thread import last as last
from graphflow.nodes.base import END as END
from graphflow.nodes.base import START as START
from graphflow.nodes.base import Node as Node
from graphflow.nodes.detect import no_progress as no_progress
from graphflow.nodes.detect import ping_pong as ping_pong
from graphflow.nodes.detect import repetition as repetition
from graphflow.nodes.edges import fork as fork
from graphflow.nodes.edges import on as on
from graphflow.nodes.edges import on_active as on_active
from graphflow.nodes.edges import when as when
from graphflow.nodes.function import Step as Step
from graphflow.nodes.function import node as node
from graphflow.nodes.human import Human as Human
from graphflow.nodes.join import ALL as ALL
from graphflow.nodes.join import ANY as ANY
from graphflow.nodes.join import STRICT as STRICT
from graphflow.nodes.join import Join as Join
from graphflow.nodes.join import first as first
from graphflow.nodes.join import quorum as quorum

if TYPE_CHECKING:
    from graphflow.errors import ModelRefused as ModelRefused
    from graphflow.errors import ModelUnavailable as ModelUnavailable
    from graphflow.graphs import strategies as strategies
    from graphflow.graphs import teams as teams
    from graphflow.model.secrets import secret as secret
    from graphflow.nodes.agent import Agent as Agent
    from graphflow.nodes.agent import Supervisor as Supervisor
    from graphflow.nodes.client import CallPiece as CallPiece
    from graphflow.nodes.client import ModelClient as ModelClient
    from graphflow.nodes.client import ModelReply as ModelReply
    from graphflow.nodes.client import ModelRequest as ModelRequest
    from graphflow.nodes.client import Price as Price
    from graphflow.nodes.client import ToolSpec as ToolSpec
    from graphflow.nodes.client import Usage as Usage
    from graphflow.nodes.providers.agents import agent_node as agent_node
    from graphflow.nodes.providers.model import ProviderModel as ProviderModel
    from graphflow.nodes.tools import AskUser as AskUser
    from graphflow.nodes.tools import Tool as Tool
    from graphflow.nodes.tools import ToolFailure as ToolFailure
    from graphflow.nodes.tools import ToolStep as ToolStep
    from graphflow.nodes.tools import tool as tool
    from graphflow.persistence.memory import MemoryJournal as MemoryJournal
    from graphflow.persistence.postgres import PostgresJournal as PostgresJournal
    from graphflow.persistence.sqlite import SqliteJournal as SqliteJournal
    from graphflow.runtime.handle import Run as Run
    from graphflow.runtime.result import Question as Question
    from graphflow.runtime.result import Result as Result
    from graphflow.runtime.result import Spending as Spending
    from graphflow.runtime.resuming import fork_run as fork_run
    from graphflow.runtime.resuming import reopen as reopen
    from graphflow.runtime.resuming import replay as replay
    from graphflow.runtime.resuming import resume as resume
    from graphflow.runtime.starting import run as run
    from graphflow.runtime.starting import run_sync as run_sync
    from graphflow.runtime.starting import start as start

__all__ = (
    "ALL",
    "ANY",
    "END",
    "NOTHING",
    "START",
    "STRICT",
    "Agent",
    "Approval",
    "AskUser",
    "Brief",
    "Budget",
    "Call",
    "CallPiece",
    "Context",
    "Delegate",
    "Done",
    "FrozenDict",
    "Graph",
    "GraphflowError",
    "Handoff",
    "Human",
    "Join",
    "Json",
    "Left",
    "MemoryJournal",
    "ModelClient",
    "ModelRefused",
    "ModelReply",
    "ModelRequest",
    "ModelUnavailable",
    "Node",
    "Pause",
    "PostgresJournal",
    "Price",
    "ProviderModel",
    "Question",
    "Reason",
    "Report",
    "Result",
    "Run",
    "Skip",
    "Spending",
    "SqliteJournal",
    "State",
    "Step",
    "Supervisor",
    "ThreadMessage",
    "Tool",
    "ToolCall",
    "ToolFailure",
    "ToolSpec",
    "ToolStep",
    "Update",
    "Usage",
    "add",
    "agent_node",
    "append",
    "extend",
    "first",
    "fork",
    "fork_run",
    "last",
    "no_progress",
    "node",
    "on",
    "on_active",
    "ping_pong",
    "quorum",
    "reopen",
    "repetition",
    "replay",
    "resume",
    "run",
    "run_sync",
    "secret",
    "start",
    "strategies",
    "teams",
    "tool",
    "union",
    "when",
)  # fmt: skip

_LATER = {
    **dict.fromkeys(("Agent", "Supervisor"), "nodes.agent"),
    **dict.fromkeys(
        ("CallPiece", "ModelClient", "ModelReply", "ModelRequest", "Price", "ToolSpec", "Usage"), "nodes.client"
    ),
    **dict.fromkeys(("ModelRefused", "ModelUnavailable"), "errors"),
    **dict.fromkeys(("ProviderModel",), "nodes.providers.model"),
    **dict.fromkeys(("agent_node",), "nodes.providers.agents"),
    **dict.fromkeys(("strategies",), "graphs.strategies"),
    **dict.fromkeys(("teams",), "graphs.teams"),
    **dict.fromkeys(("AskUser", "Tool", "ToolFailure", "ToolStep", "tool"), "nodes.tools"),
    **dict.fromkeys(("MemoryJournal",), "persistence.memory"),
    **dict.fromkeys(("PostgresJournal",), "persistence.postgres"),
    **dict.fromkeys(("SqliteJournal",), "persistence.sqlite"),
    **dict.fromkeys(("Run",), "runtime.handle"),
    **dict.fromkeys(("fork_run", "reopen", "replay", "resume"), "runtime.resuming"),
    **dict.fromkeys(("run", "run_sync", "start"), "runtime.starting"),
    **dict.fromkeys(("secret",), "model.secrets"),
    **dict.fromkeys(("Question", "Result", "Spending"), "runtime.result"),
}


def __getattr__(name: str) -> object:
    """Load agents when somebody makes one, and what runs a graph when somebody runs one: a program starts sooner."""
    if name not in _LATER:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    module = importlib.import_module(f"graphflow.{_LATER[name]}")
    found: object = module if _LATER[name].endswith(f".{name}") else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List the names that are loaded later too."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
