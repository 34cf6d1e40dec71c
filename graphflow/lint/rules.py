"""The table of rules, and `lint`, which asks each of them about a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from graphflow.errors import UsageError
from graphflow.events import Event
from graphflow.graphs.graph import Graph
from graphflow.lint import misalignment, specification, team, verification
from graphflow.lint.symptom import Limits, Sign, Symptom
from graphflow.lint.trace import Trace, trace_of


class Rule(NamedTuple):
    """A rule: its code, the failure mode of MAST that it shows, and the function that looks for it."""

    code: str
    mode: str
    find: Callable[[Trace, Limits], Iterator[Sign]]


RULES: Final = (
    Rule("contract-broken", "1.1", specification.contract_broken),
    Rule("not-offered", "1.2", specification.not_offered),
    Rule("same-step-again", "1.3", specification.same_step_again),
    Rule("asked-again", "1.3", specification.asked_again),
    Rule("to-and-fro", "1.3", specification.to_and_fro),
    Rule("bare-handoff", "1.4", specification.bare_handoff),
    Rule("bound-for-an-end", "1.5", specification.bound_for_an_end),
    Rule("goes-on-without-news", "1.5", specification.goes_on_without_news),
    Rule("starts-over", "2.1", misalignment.starts_over),
    Rule("guessed", "2.2", misalignment.guessed),
    Rule("thin-brief", "2.2", misalignment.thin_brief),
    Rule("no-progress", "2.3", misalignment.no_progress),
    Rule("evidence-withheld", "2.4", misalignment.evidence_withheld),
    Rule("unused-report", "2.5", team.unused_report),
    Rule("question-ignored", "2.5", misalignment.question_ignored),
    Rule("says-one-does-another", "2.6", misalignment.says_one_does_another),
    Rule("action-not-taken", "2.6", misalignment.action_not_taken),
    Rule("loss-not-told", "3.1", verification.loss_not_told),
    Rule("unverified-end", "3.2", verification.unverified_end),
    Rule("unasked-verifier", "3.2", verification.unasked_verifier),
    Rule("uncited-claims", "3.2", team.uncited_claims),
    Rule("cites-nothing-known", "3.3", verification.cites_nothing_known),
    Rule("verifies-itself", "3.3", verification.verifies_itself),
    Rule("dangling-citations", "3.3", team.dangling_citations),
    Rule("overlapping-briefs", "", team.overlapping_briefs),
)

CODES: Final = tuple(rule.code for rule in RULES)


def lint(
    graph: Graph[Any], events: Iterable[Event], limits: Limits | None = None, *, only: Iterable[str] = ()
) -> tuple[Symptom, ...]:
    """Look for signs in the events of a run that its team did not work as it should.

    It is pure: nothing is called, and nothing is changed. The events may end anywhere, so that a run can be looked at
    while it goes on.

    Args:
        graph: the graph of the run.
        events: all of them from the beginning, as a listener hears them or as they are stored.
        limits: from how much on something is a symptom.
        only: codes of rules; none for all.

    Returns:
        The symptoms in the order of their events.

    Raises:
        UsageError: if there is no rule of some code.

    >>> from graphflow import END, START, Agent, Context, Graph, run_sync
    >>> from graphflow.testing import ScriptedModel, call
    >>> def look(at: str) -> str:
    ...     '''Look at something.'''
    ...     return "nothing new"
    >>> model = ScriptedModel(*[call("look", at="the door")] * 3, "It is closed.")
    >>> graph = Graph("g", START >> Agent("guard", model=model, tools=[look]) >> END, context=Context)
    >>> events = []
    >>> _ = run_sync(graph, Context(), listeners=[events.append])
    >>> print(lint(graph, events)[0].message)
    'guard' called look with the same arguments 3 times, and it brought the same each time.
    """
    wanted = (only,) if isinstance(only, str) else tuple(only)
    unknown = next((code for code in wanted if code not in CODES), None)
    if unknown is not None:
        msg = f"lint(only={unknown!r}): there is no such rule; the rules are {', '.join(CODES)}."
        raise UsageError(msg)
    trace = trace_of(graph, events)
    found = [
        Symptom(rule.code, rule.mode, *sign)
        for rule in RULES
        if not wanted or rule.code in wanted
        for sign in rule.find(trace, limits or Limits())
    ]
    return tuple(sorted(found, key=lambda symptom: symptom.seq))
