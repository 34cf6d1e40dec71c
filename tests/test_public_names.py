"""The public names: a change here is a change of the promise."""

from __future__ import annotations

from types import ModuleType

import graphflow
import graphflow.lint
import graphflow.mcp
import graphflow.rehearsal
import graphflow.testing

PUBLIC = {
    "ALL", "ANY", "END", "NOTHING", "START", "STRICT", "Agent", "Approval", "AskUser", "Brief", "Budget", "Call",
    "CallPiece", "Context", "Delegate", "Done", "FrozenDict", "Graph", "GraphflowError", "Handoff", "Human", "Join",
    "Json", "Left", "MemoryJournal", "ModelClient", "ModelRefused", "ModelReply", "ModelUnavailable", "ModelRequest",
    "Node", "Pause", "PostgresJournal", "Price", "ProviderModel", "Question", "Reason", "Report", "Result", "Run",
    "Skip", "Spending", "SqliteJournal", "State", "Step", "Supervisor", "ThreadMessage", "Tool", "ToolCall",
    "ToolFailure", "ToolSpec", "ToolStep", "Update", "Usage", "add", "agent_node", "append", "extend", "first", "fork",
    "fork_run", "last", "no_progress", "node", "on", "on_active", "ping_pong", "quorum", "reopen", "repetition",
    "replay", "resume", "run", "run_sync", "secret", "start", "tool", "union", "when",
}  # fmt: skip

TESTING = {
    "Answer", "ManualClock", "MemoryJournal", "RuleModel", "ScriptedModel", "call", "canonical_trace", "fold_again",
    "journal_checks", "read_journal", "records_of", "replayed", "strategy_violations",
}  # fmt: skip


MCP = {"McpServer", "serve"}

TEAMS = {
    "Assignment", "Cited", "CitedReport", "Debate", "Drafts", "Effort", "EffortPolicy", "EffortReport", "Items", "Tier",
    "Verdict", "WorkBrief", "citation_pass", "debate", "evaluator_optimizer", "hierarchy", "map_reduce",
    "orchestrator_workers", "overlap",
}  # fmt: skip

LINT = {"CODES", "RULES", "Limits", "Rule", "Symptom", "lint"}

REHEARSAL = {
    "Choices", "Distribution", "End", "Exponential", "Fixed", "LogNormal", "Normal", "Recorded", "Recordings",
    "Rehearsal", "Sample", "Summary", "Uniform", "distribution", "plot", "recordings", "rehearse", "rehearse_sync",
}  # fmt: skip

MODULES = {"strategies", "teams"}
"""Modules that are reached as names of the package."""

STRATEGIES = {
    "Conversation", "Options", "Plan", "PlanStep", "PlannedTask", "Said", "StepBrief", "Task", "TeamReport", "Verdict",
    "handoff", "manual", "parallel", "plan_execute", "random", "round_robin", "router", "sequential", "swarm",
}  # fmt: skip


def names(module: object) -> set[str]:
    """Return what a module shows: no private names, no submodules."""
    shown = {name for name in dir(module) if not name.startswith("_")}
    return {name for name in shown if not isinstance(getattr(module, name), ModuleType)}


def test_the_names_of_the_package_are_these_and_no_others() -> None:
    """Whoever adds or takes away a public name changes this list on purpose."""
    assert names(graphflow) == PUBLIC
    assert set(graphflow.__all__) == PUBLIC | MODULES


def test_the_names_of_the_testing_package_are_these_and_no_others() -> None:
    """What users' tests import is as public as the rest."""
    assert names(graphflow.testing) == TESTING


def test_the_names_of_the_mcp_package_are_these_and_no_others() -> None:
    """What tool servers need of it is public, too."""
    assert names(graphflow.mcp) == MCP


def test_the_names_of_the_strategies_are_these_and_no_others() -> None:
    """The nine strategies, and what their members see and say."""
    assert set(graphflow.strategies.__all__) == STRATEGIES


def test_the_names_of_the_teams_are_these_and_no_others() -> None:
    """The ready-made teams, and what their members see and say."""
    assert set(graphflow.teams.__all__) == TEAMS


def test_the_names_of_lint_and_rehearsal_are_these_and_no_others() -> None:
    """What is looked for in a run, and what a rehearsal is told and says."""
    assert names(graphflow.lint) == LINT
    assert names(graphflow.rehearsal) == REHEARSAL


def test_every_public_name_says_what_it_is() -> None:
    """Every public class and function has a docstring."""
    shown = [getattr(graphflow, name) for name in PUBLIC]

    silent = [thing for thing in shown if callable(thing) and not thing.__doc__]

    assert silent == []
