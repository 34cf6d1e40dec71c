"""What nobody can make a team of is refused when it is made, by one error in the words of the call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from graphflow import Agent, Context, Graph, Human, Report, State, node
from graphflow.errors import UsageError
from graphflow.graphs import strategies, teams
from graphflow.graphs.teams import EffortPolicy, Items, Tier
from graphflow.nodes.base import Node
from graphflow.testing import RuleModel
from graphflow.visualize import to_mermaid
from tests.teams.helpers import ANYBODY, one, played, says

A, B, C = says("a", "-"), says("b", "-"), says("c", True)
MODEL: Final = RuleModel(otherwise="-")

Makes = Callable[..., Graph[Any]]


def hierarchy(team: Any = None, **options: Any) -> Graph[Any]:
    """One supervisor, and one below."""
    more: dict[str, Any] = {"model": MODEL, **options}
    return teams.hierarchy("t", {"chief": ["desk"]} if team is None else team, **more)


def orchestrator_workers(*workers: Any, **options: Any) -> Graph[Any]:
    """A lead that is an agent."""
    return teams.orchestrator_workers("t", options.pop("lead", one("lead")), *workers, **options)


def parts_of(_: State[Any]) -> tuple[str, ...]:
    """Two parts."""
    return ("x", "y")


def map_reduce(worker: Any = A, **options: Any) -> Graph[Any]:
    """Two parts."""
    return teams.map_reduce("t", options.pop("split", parts_of), worker, **options)


def debate(*debaters: Any, **options: Any) -> Graph[Any]:
    """A debate before a judge."""
    more: dict[str, Any] = {"judge": C, **options}
    return teams.debate("t", *debaters, **more)


def evaluator_optimizer(author: Any = A, verifier: Any = C, **options: Any) -> Graph[Any]:
    """Somebody who writes, and somebody who accepts it."""
    return teams.evaluator_optimizer("t", author, verifier, **options)


def citation_pass(author: Any = A, citer: Any = None, **options: Any) -> Graph[Any]:
    """Somebody who writes."""
    return teams.citation_pass("t", author, citer, **options)


EVERY: Final[dict[str, Makes]] = {
    "hierarchy": hierarchy, "orchestrator_workers": orchestrator_workers, "map_reduce": map_reduce, "debate": debate,
    "evaluator_optimizer": evaluator_optimizer, "citation_pass": citation_pass,
}  # fmt: skip


class Question(strategies.Conversation):
    """A context that none of these teams is at home in."""


class Late(Context):
    """A context whose task stands second."""

    count: int = 0
    task: str = ""


async def later(_: Any) -> Any:
    """Take a while."""


Row = tuple[Makes, tuple[Any, ...], dict[str, Any], str]

BOUNDS: Final[tuple[Row, ...]] = tuple(
    (make, args, {bound: value}, f"{bound}={value!r}: a whole number of at least {least} is needed.")
    for make, args, bound, least in (
        (hierarchy, (), "max_calls", 1), (hierarchy, (), "max_turns", 1), (map_reduce, (), "max_items", 1),
        (debate, (A, B), "rounds", 1), (evaluator_optimizer, (), "max_rounds", 1),
        (citation_pass, (), "max_repairs", 0),
    )
    for value in (None, "4", least - 1, 2.5, True)
)  # fmt: skip

GIVEN: Final[tuple[Row, ...]] = (
    (hierarchy, (), {"model": "gpt-5"}, "a provider and its model are needed, as 'openai:gpt-5'."),
    (hierarchy, (), {"modle": "x:y"}, "modle='x:y': hierarchy has no such argument; did you mean model=?"),
    (orchestrator_workers, (), {}, "workers: at least one is needed, and there is none; give more."),
    (orchestrator_workers, (A,), {"lead": "b"}, "lead='b': a node is needed, not str."),
    (orchestrator_workers, (A,), {"lead": strategies.sequential("s", B)}, "a graph has nobody that delegates from out"),
    (
        orchestrator_workers,
        (A,),
        {"policy": {"simple": 1}},
        "policy={'simple': 1}: an EffortPolicy is needed, or None.",
    ),
    (orchestrator_workers, (A,), {"tier": "wide"}, "tier='wide': a function from the state to a name, or a node whose"),
    (orchestrator_workers, (A,), {"tier": later}, "tier=<function later>: it is called where nothing can be awaited"),
    (map_reduce, (), {"split": ("x", "y")}, "split=('x', 'y'): a function from the state to a sequence of items"),
    (map_reduce, (), {"split": later}, "split=<function later>: it is called where nothing can be awaited"),
    (map_reduce, (lambda: "x",), {}, "worker=<function <lambda>>: a node is needed, not function; a lambda has"),
    (map_reduce, (), {"reduce": "join"}, "reduce='join': a node is needed, not str."),
    (map_reduce, (), {"failure": "ignore"}, "failure='ignore': 'fail_fast' or 'collect' is needed."),
    (debate, (A,), {}, "debaters: at least two are needed, and there is only 'a'; give more."),
    (debate, ([A, B],), {}, "a node is needed, not list; unpack it with a *, as *members."),
    (debate, (A, B), {"judge": "c"}, "judge='c': a node is needed, not str."),
    (debate, (A, B), {"round": 3}, "round=3: debate has no such argument; did you mean rounds=?"),
    (
        evaluator_optimizer,
        (),
        {"verifier": one("v")},
        "what it gives does not say whether it accepts; give it output=V",
    ),
    (evaluator_optimizer, (), {"verifier": Human("v", schema=str)}, "it has to give True or False, a Verdict, or"),
    (citation_pass, (), {"evidence": "log-7"}, "evidence='log-7': a list of ids is needed."),
    (citation_pass, (), {"evidence": [7]}, "evidence=(7,): a list of ids is needed, and each is a text."),
    (citation_pass, (), {"least": 90}, "least=90: a share from 0 to 1 is needed."),
    (citation_pass, (), {"coverage": 90}, "coverage=90: citation_pass has no such argument; it takes author, citer"),
    (citation_pass, (), {"citer": "b"}, "citer='b': a node is needed, not str."),
)

CONTEXTS: Final[tuple[Row, ...]] = (
    (
        orchestrator_workers,
        (A,),
        {"context": Question},
        "derived from teams.Effort; write class Question(teams.Effort).",
    ),
    (debate, (A, B), {"context": Question}, "derived from teams.Debate; write class Question(teams.Debate)."),
    (evaluator_optimizer, (), {"context": Question}, "derived from teams.Drafts; write class Question(teams.Drafts)."),
    (citation_pass, (), {"context": Question}, "derived from teams.Cited; write class Question(teams.Cited)."),
    (debate, (A, B), {"context": strategies.Task}, "teams.Debate; derive one from that, or leave context= out."),
    (map_reduce, (), {"context": dict}, "context=dict: map_reduce needs a class derived from graphflow.Context"),
    (hierarchy, (), {"context": Late}, "'count' takes no text: inside another team the task would be lost"),
    (map_reduce, (), {"context": Late}, "'count' takes no text: inside another team the task would be lost"),
)


@pytest.mark.parametrize(("make", "args", "options", "words"), [*BOUNDS, *GIVEN, *CONTEXTS])
def test_what_makes_no_sense_is_refused(
    make: Makes, args: tuple[Any, ...], options: dict[str, Any], words: str
) -> None:
    """The error names the call, what was given, and the one rule that it breaks."""
    call = next(name for name, known in EVERY.items() if known is make)

    with pytest.raises(UsageError) as told:
        make(*args, **options)

    assert str(told.value).startswith(f"{call}('t'): ")
    assert words in str(told.value)
    assert " at 0x" not in str(told.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Tier("", 1, 1), "Tier(''): a name is needed"),
        (lambda: Tier("x", 0, 1), "Tier('x'): workers=0: a whole number of at least 1 is needed."),
        (lambda: Tier("x", 1, -1), "Tier('x'): calls=-1: a whole number of at least 0 is needed."),
        (lambda: Tier("x", 1, 1, tokens=0), "Tier('x'): tokens=0: a whole number of at least 1 is needed."),
        (lambda: Tier("x", 1, 1, least_workers=2), "least_workers=2, workers=1: the least is more than the most."),
        (lambda: Tier("x", 1, 1, least_calls=2), "least_calls=2, calls=1: the least is more than the most."),
        (lambda: EffortPolicy(()), "EffortPolicy: tiers=(): a list of tiers is needed, at least one"),
        (lambda: EffortPolicy((Tier("x", 1, 1), Tier("x", 2, 2))), "two tiers are called 'x'; give one another name."),
        (
            lambda: EffortPolicy(fallback="x"),
            "fallback='x': it is one of the tiers, 'simple', 'comparison', 'complex'.",
        ),
    ],
)
def test_effort_that_makes_no_sense_is_refused(make: Callable[[], object], words: str) -> None:
    """Each rule of a tier and of a policy has an error of its own."""
    with pytest.raises(UsageError) as told:
        make()

    assert words in str(told.value)


@pytest.mark.parametrize("verifier", [one("v", output=bool), one("v", output=Report), Human("v"), says("v", True)])
def test_who_may_give_a_verdict_is_taken(verifier: Node[Any]) -> None:
    """True or False, a report, and whoever does not say what they give."""
    assert evaluator_optimizer(verifier=verifier).name == "t"


@pytest.mark.parametrize("parts", ["abc", b"x", None, 7, {"x": 1}, {"x"}, Report(finding="x, y")])
async def test_a_split_that_gives_no_sequence_fails_by_its_name(parts: Any) -> None:
    """A text is one thing and not a part for each letter; what has no order, or no items, is none either."""

    def split(_: State[Any]) -> Any:
        return parts

    found = await played(map_reduce(split=split))

    assert found.result.status == "failed"
    assert found.result.reason is not None
    assert "map_reduce('t'): split gave " in found.result.reason.text
    assert "a sequence of items is needed, as a list or a tuple." in found.result.reason.text


def counting() -> Iterator[str]:
    """Give two parts, one after the other."""
    yield "x"
    yield "y"


@pytest.mark.parametrize("kind", ["list", "items", "generator"])
async def test_a_split_may_give_any_sequence(kind: str) -> None:
    """A list, items, and what gives them one after the other."""
    heard: list[Any] = []

    def split(_: State[Any]) -> Any:
        return {"list": ["x", "y"], "items": Items(items=("x", "y"))}.get(kind, counting())

    @node(name="w")
    async def hears(state: State[Any]) -> str:
        heard.append(state.values[0])
        return "Done."

    found = await played(map_reduce(hears, split=split))

    assert found.result.status == "completed"
    assert heard == ["x", "y"]


def other_parts(_: State[Any]) -> tuple[str, ...]:
    """Three."""
    return ("x", "y", "z")


def test_a_split_is_part_of_what_a_graph_is() -> None:
    """Its name is drawn, and another one makes another graph."""
    graph, other = map_reduce(split=parts_of), map_reduce(split=other_parts)

    assert "each of parts_of" in to_mermaid(graph)
    assert graph.fingerprint() != other.fingerprint()


@pytest.mark.parametrize("kind", [*EVERY])
def test_a_team_has_a_name(kind: str) -> None:
    """A name that was forgotten is told in the words of the call."""
    make: Any = getattr(teams, kind)
    first: Any = Agent("first", model=ANYBODY)
    args: dict[str, tuple[Any, ...]] = {"hierarchy": ({"chief": ["desk"]},), "map_reduce": (parts_of, A)}
    more = {"judge": C} if kind == "debate" else {}

    with pytest.raises(UsageError, match=rf"{kind}\(<Agent 'first'>, \.\.\.\): the name of the team comes first"):
        make(first, *args.get(kind, (A, B)), **more)
