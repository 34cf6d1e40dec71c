"""The reference model and the random shapes are right: by hand on small graphs, by law on random ones."""

import os
import random
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.reference import Context, End, Inbox, Outcome, Visit, comparable, differences, run
from tests.shapes import (
    END,
    Act,
    Choose,
    Fork,
    Next,
    SeededScript,
    Shape,
    Statement,
    features,
    join_of,
    label,
    passes_rules,
    random_shape,
    region_of,
    scripted,
    shape,
    shapes,
)

SHAPES = 3000 if os.environ.get("GRAPHFLOW_FULL") else 150
SCHEDULES = 12
DONE = (End("completed"),)

DIAMOND: Mapping[str, Statement] = {"s": Fork(("a", "b")), "a": Next("j"), "b": Next("j"), "j": Next(END)}


def outcome(graph: Shape, acts: Mapping[tuple[str, int], Act] | None = None) -> Outcome:
    """What comes out under every schedule; one that cancels at once does nothing that it does not allow."""
    assert passes_rules(graph) == []
    script = scripted(acts or {})
    found = [run(graph, script, random.Random(seed)) for seed in range(SCHEDULES)]
    assert len({comparable(one) for one in found}) == 1
    for seed in range(SCHEDULES):
        assert differences(found[0], run(graph, script, random.Random(seed), cancel="now")) == []
    return found[0]


def inboxes(found: Outcome) -> dict[str, Inbox]:
    """What each visit got, by its label."""
    return {label(visit.node, visit.number): visit.inbox for visit in found.visits}


def got(*labels: str) -> Inbox:
    """The inbox with these outputs.

    >>> got("a#1")
    (('a', 'a#1'),)
    """
    return tuple((text.split("#")[0], text) for text in labels)


def writes(*fields: str) -> Act:
    """A visit that writes these fields."""
    return Act(writes=fields)


RAISES = Act(raises=True)
NONE = Act(case=None)


# --- By hand: merging ---


def test_sequence_runs_each_node_once() -> None:
    """A chain is one token: each node gets its predecessor's output and sees what was written before."""
    found = outcome(shape("a", {"a": Next("b"), "b": Next(END)}), {("a", 1): writes("log", "k0")})

    seen = Context(("a#1",), (("k0", "a#1"),))
    assert found.ends == DONE
    assert found.visits == (Visit("a", 1, (), Context()), Visit("b", 1, got("a#1"), seen))
    assert (found.context, found.arrived) == (seen, got("b#1"))


def test_diamond_runs_its_join_once() -> None:
    """The join gets both outputs in branch order, and the list field has both in branch order."""
    acts = {("b", 1): writes("log"), ("a", 1): writes("log"), ("j", 1): writes("log")}

    found = outcome(shape("s", DIAMOND), acts)

    assert inboxes(found) == {"s#1": (), "a#1": got("s#1"), "b#1": got("s#1"), "j#1": got("a#1", "b#1")}
    assert found.context == Context(("a#1", "b#1", "j#1"))


def test_unequal_branches_wait_at_the_join() -> None:
    """A node after branches of unequal length runs once, after the longer."""
    found = outcome(shape("s", {**DIAMOND, "b": Next("b2"), "b2": Next("j")}))

    assert inboxes(found)["j#1"] == got("a#1", "b2#1")


def test_inner_merge_takes_the_branches_that_can_come() -> None:
    """Branches x and y merge at m before z joins them at j."""
    graph = shape(
        "s",
        {
            "s": Fork(("x", "z", "y")),
            "x": Next("m"),
            "y": Next("m"),
            "m": Next("j"),
            "z": Next("j"),
            "j": Next(END),
        },
    )

    found = outcome(graph, {(node, 1): writes("log") for node in graph.nodes})

    assert inboxes(found)["m#1"] == got("x#1", "y#1")
    assert inboxes(found)["j#1"] == got("m#1", "z#1")
    assert found.context == Context(("s#1", "x#1", "y#1", "m#1", "z#1", "j#1"))


def test_chained_joins_keep_all_values() -> None:
    """Two forks one after the other, the first join being the second fork."""
    graph = shape("s", {**DIAMOND, "j": Fork(("c", "d")), "c": Next("k"), "d": Next("k"), "k": Next(END)})

    found = outcome(graph, {("a", 1): writes("k0"), ("c", 1): writes("k0")})

    assert inboxes(found)["k#1"] == got("c#1", "d#1")
    assert found.context == Context((), (("k0", "c#1"),))


def test_loop_inside_a_branch_runs_alone() -> None:
    """A loop in one branch turns while the other waits; its head merges nothing but its own token."""
    graph = shape("s", {**DIAMOND, "b": Next("c"), "c": Choose(("b",), "j")})

    found = outcome(graph, {("c", 3): NONE})

    assert inboxes(found)["b#3"] == got("c#2")
    assert inboxes(found)["j#1"] == got("a#1", "c#3")


def test_loop_head_merges_the_branches_that_enter_it() -> None:
    """Two branches that enter one loop go round it as one token."""
    graph = shape(
        "s",
        {
            "s": Fork(("a", "b", "j")),
            "a": Next("h"),
            "b": Next("h"),
            "h": Choose(("h",), "j"),
            "j": Next(END),
        },
    )

    found = outcome(graph, {("h", 2): NONE})

    assert inboxes(found)["h#1"] == got("a#1", "b#1")
    assert inboxes(found)["j#1"] == got("h#2", "s#1")


def test_fork_inside_a_loop_opens_a_scope_each_time() -> None:
    """Each round forks and joins anew, and visits count on."""
    found = outcome(shape("s", {**DIAMOND, "j": Choose(("s",), END)}), {("j", 2): NONE})

    assert inboxes(found)["s#2"] == got("j#1")
    assert inboxes(found)["j#2"] == got("a#2", "b#2")


def test_branch_may_be_the_join() -> None:
    """A branch that leads straight to the join brings the fork's output."""
    found = outcome(shape("s", {"s": Fork(("j", "a")), "a": Next("j"), "j": Next(END)}))

    assert inboxes(found)["j#1"] == got("s#1", "a#1")


def test_nested_forks_close_at_one_node() -> None:
    """Scopes that close at one node close inside-out, and the node runs once."""
    graph = shape(
        "s",
        {
            "s": Fork(("f", "z")),
            "f": Fork(("x", "y")),
            "x": Next("j"),
            "y": Next("j"),
            "z": Next("j"),
            "j": Next(END),
        },
    )

    found = outcome(graph, {(node, 1): writes("log") for node in "fxyz"})

    assert (join_of(graph, "s"), join_of(graph, "f")) == ("j", "j")
    assert inboxes(found)["j#1"] == got("x#1", "y#1", "z#1")
    assert found.context == Context(("f#1", "x#1", "y#1", "z#1"))


def test_branch_sees_its_own_updates_only() -> None:
    """Inside a scope a token sees the fork's context and its own updates."""
    graph = shape("s", {**DIAMOND, "a": Next("a2"), "a2": Next("j")})

    found = outcome(graph, {("s", 1): writes("k0"), ("a", 1): writes("k1"), ("b", 1): writes("k2")})

    seen = {visit.node: visit.seen for visit in found.visits}
    assert seen["a2"] == Context((), (("k0", "s#1"), ("k1", "a#1")))
    assert seen["j"] == Context((), (("k0", "s#1"), ("k1", "a#1"), ("k2", "b#1")))


# --- By hand: branches that are skipped or die ---


def test_skipped_branch_is_not_waited_for() -> None:
    """A conditional branch that is not taken leaves no entry at the join."""
    graph = shape("s", {**DIAMOND, "s": Fork(("a", "b"), frozenset("b"))})

    found = outcome(graph, {("s", 1): Act(skips=frozenset("b"))})

    assert found.skipped == {("s", 1, "b")}
    assert inboxes(found) == {"s#1": (), "a#1": got("s#1"), "j#1": got("a#1")}


def test_fork_without_a_taken_branch_ends_its_token() -> None:
    """All branches skipped: the join is skipped and the run has no way on."""
    graph = shape("s", {**DIAMOND, "s": Fork(("a", "b"), frozenset("ab"))})

    found = outcome(graph, {("s", 1): Act(skips=frozenset("ab"))})

    assert found.ends == (End("no_route", ("s",)),)
    assert found.skipped_joins == {("s", 1, "j")}


def test_all_branches_dead_skip_the_join() -> None:
    """If every branch died the enclosing token dies; the last nodes are named in branch order."""
    graph = shape("s", {**DIAMOND, "a": Choose(("j",)), "b": Choose(("j",))})

    found = outcome(graph, {("a", 1): NONE, ("b", 1): NONE})

    assert found.ends == (End("no_route", ("a", "b")),)
    assert found.skipped_joins == {("s", 1, "j")}
    assert "j#1" not in inboxes(found)


def test_dead_branch_blocks_nothing_and_brings_nothing() -> None:
    """Beside a live branch a dead one is gone, with its updates."""
    graph = shape("s", {**DIAMOND, "a": Choose(("j",))})

    found = outcome(graph, {("a", 1): Act(case=None, writes=("k0",)), ("b", 1): writes("k0")})

    assert found.ends == DONE
    assert found.dead == {("a", 1)}
    assert inboxes(found)["j#1"] == got("b#1")
    assert found.context == Context((), (("k0", "b#1"),))


def test_dead_inner_scope_is_a_dead_branch() -> None:
    """An inner fork whose branches all died counts as one dead branch of the outer fork."""
    graph = shape("s", {**DIAMOND, "a": Fork(("x", "y")), "x": Choose(("j",)), "y": Choose(("j",))})

    found = outcome(graph, {("x", 1): NONE, ("y", 1): NONE})

    assert found.ends == DONE
    assert inboxes(found)["j#1"] == got("b#1")


def test_node_without_a_statement_ends_its_token() -> None:
    """A node with only an error edge goes nowhere unless it fails."""
    found = outcome(shape("a", {}, {"a": END}))

    assert found.ends == (End("no_route", ("a",)),)
    assert found.corners == {"no-route-at-error-edge"}


# --- By hand: conflicts and failures ---


def test_two_writers_of_a_plain_field_are_a_conflict() -> None:
    """The merging node is blamed before it runs, and none of the branches' updates are kept."""
    found = outcome(shape("s", DIAMOND), {("a", 1): writes("k0", "log"), ("b", 1): writes("k0")})

    assert found.ends == (End("conflict", ("j",), ("k0",)),)
    assert found.context == Context()
    assert "j#1" not in inboxes(found)


def test_inner_merge_has_the_same_conflict_rule() -> None:
    """A conflict at an inner merge fails the merged branch; with collect the join still runs."""
    graph = shape(
        "s",
        {
            "s": Fork(("x", "y", "z"), failure="collect"),
            "x": Next("m"),
            "y": Next("m"),
            "m": Next("j"),
            "z": Next("j"),
            "j": Next(END),
        },
    )

    found = outcome(graph, {("x", 1): writes("k0"), ("y", 1): writes("k0"), ("z", 1): writes("k0")})

    assert found.ends == (End("partial"),)
    assert inboxes(found)["j#1"] == (("failed", "m"), *got("z#1"))
    assert found.context == Context((), (("k0", "z#1"),))


def test_error_edge_takes_a_conflict() -> None:
    """The token goes on from the merging node, which did not run, without the branches' updates."""
    graph = shape("s", {**DIAMOND, "h": Next(END)}, {"j": "h"})

    found = outcome(graph, {("a", 1): writes("k0"), ("b", 1): writes("k0")})

    assert found.ends == DONE
    assert found.corners == {"conflict-handled"}
    assert inboxes(found)["h#1"] == (("failed", "j"),)
    assert found.context == Context()


@pytest.mark.parametrize("failure", ["collect", "fail_fast"])
def test_conflict_at_a_shared_join_is_a_failure_of_the_outer_branch(failure: str) -> None:
    """The inner scope's conflict goes to the outer fork's policy, not to the error edge beyond it."""
    graph = shape(
        "s",
        {
            "s": Fork(("f", "z"), failure="collect" if failure == "collect" else "fail_fast"),
            "f": Fork(("x", "y")),
            "x": Next("j"),
            "y": Next("j"),
            "z": Next("j"),
            "j": Next(END),
        },
        {"j": END},
    )

    found = outcome(graph, {("x", 1): writes("k1"), ("y", 1): writes("k1")})

    assert found.corners == {"conflict-before-merge"}
    if failure == "collect":
        assert inboxes(found)["j#1"] == (("failed", "j"), *got("z#1"))
    else:
        assert found.ends == (End("conflict", ("j",), ("k1",)),)


def test_conflict_before_an_inner_merge_fails_one_branch() -> None:
    """A scope closes with a conflict at a node where other branches of the outer scope still merge."""
    graph = shape(
        "s",
        {
            "s": Fork(("f", "z", "w"), failure="collect"),
            "f": Fork(("x", "y")),
            "x": Next("m"),
            "y": Next("m"),
            "z": Next("m"),
            "m": Next("j"),
            "w": Next("j"),
            "j": Next(END),
        },
    )

    found = outcome(graph, {("x", 1): writes("k1"), ("y", 1): writes("k1")})

    assert found.corners == {"conflict-before-merge"}
    assert inboxes(found)["m#1"] == got("z#1")
    assert inboxes(found)["j#1"] == (("failed", "m"), *got("m#1", "w#1"))


def test_collect_puts_the_failure_into_the_join() -> None:
    """The join runs with the failure in its branch's place, and the run is at most partial."""
    graph = shape("s", {**DIAMOND, "s": Fork(("a", "b"), failure="collect"), "a": Next("a2"), "a2": Next("j")})

    found = outcome(graph, {("a", 1): writes("k0"), ("a2", 1): RAISES, ("b", 1): writes("k0")})

    assert found.ends == (End("partial"),)
    assert inboxes(found)["j#1"] == (("failed", "a2"), *got("b#1"))
    assert found.context == Context((), (("k0", "b#1"),))


def test_join_runs_when_all_branches_failed() -> None:
    """A collected failure is an arrival: only if every branch died is the join skipped."""
    graph = shape("s", {**DIAMOND, "s": Fork(("a", "b"), failure="collect"), "b": Choose(("j",))})

    found = outcome(graph, {("a", 1): RAISES, ("b", 1): NONE})

    assert found.ends == (End("partial"),)
    assert inboxes(found)["j#1"] == (("failed", "a"),)


def test_fail_fast_fails_the_run() -> None:
    """The join does not run; which siblings did is timing."""
    graph = shape("s", {**DIAMOND, "b": Next("b2"), "b2": Next("j")})

    found = outcome(graph, {("a", 1): RAISES})

    assert found.ends == (End("failed", ("a",)),)
    assert found.maybe == {("a", 1), ("b", 1), ("b2", 1)}
    assert "j#1" not in inboxes(found)
    script = scripted({("a", 1): RAISES})
    lengths = {len(run(graph, script, random.Random(n), cancel="now").visits) for n in range(50)}
    assert lengths == {3, 4}


def test_fail_fast_may_blame_any_branch_that_fails() -> None:
    """Each failure that does not need another's end may be the first."""
    graph = shape("s", {**DIAMOND, "s": Fork(("a", "b", "c")), "c": Next("m"), "b": Next("m"), "m": Next("j")})

    found = outcome(graph, {("a", 1): RAISES, ("b", 1): RAISES, ("m", 1): RAISES})

    assert found.ends == (End("failed", ("a",)), End("failed", ("b",)))


def test_failure_passes_outward_to_a_fork_that_collects() -> None:
    """An inner fail_fast scope is one failed branch of the outer scope."""
    graph = shape(
        "s",
        {
            "s": Fork(("f", "z"), failure="collect"),
            "f": Fork(("x", "y")),
            "x": Next("k"),
            "y": Next("k"),
            "k": Next("j"),
            "z": Next("j"),
            "j": Next(END),
        },
    )

    one = outcome(graph, {("x", 1): RAISES})
    two = outcome(graph, {("x", 1): RAISES, ("y", 1): RAISES})

    assert (one.ends, two.ends) == ((End("partial"),), (End("partial"),))
    assert inboxes(one)["j#1"] == (("failed", "x"), *got("z#1"))
    assert inboxes(two)["j#1"] == (("failed", "x|y"), *got("z#1"))


def test_visits_after_a_cancelled_scope_are_timing() -> None:
    """A loop that enters a cancelled scope's nodes again counts visits that timing decided."""
    graph = shape(
        "s",
        {
            "s": Fork(("f", "z"), failure="collect"),
            "f": Fork(("x", "y")),
            "x": Next("k"),
            "y": Next("k"),
            "k": Next("j"),
            "z": Next("j"),
            "j": Choose(("s",), END),
        },
    )

    found = outcome(graph, {("x", 1): RAISES, ("j", 2): NONE})

    assert found.timing
    assert comparable(found) == ("timing",)


def test_error_edge_takes_a_failure_first() -> None:
    """A handled failure is none: the token goes on with the updates that it had."""
    graph = shape("s", {**DIAMOND, "a": Next("a2"), "a2": Next("j"), "h": Next("j")}, {"a2": "h"})

    found = outcome(graph, {("a", 1): writes("k0"), ("a2", 1): Act(raises=True, writes=("k1",))})

    assert found.ends == DONE
    assert inboxes(found)["h#1"] == (("failed", "a2"),)
    assert inboxes(found)["j#1"] == got("h#1", "b#1")
    assert found.context == Context((), (("k0", "a#1"),))


def test_failure_outside_of_any_fork_fails_the_run() -> None:
    """With no error edge and no fork around it a failure goes straight up."""
    found = outcome(shape("a", {"a": Next(END)}), {("a", 1): RAISES})

    assert found.ends == (End("failed", ("a",)),)


# --- The rules ---


@pytest.mark.parametrize(
    ("statements", "errors", "broken"),
    [
        (DIAMOND, {}, []),
        ({"s": Next(END), "x": Next(END)}, {}, ["unreachable x"]),
        ({"s": Choose(("x",), END)}, {}, ["no-end x"]),
        ({**DIAMOND, "a": Next(END)}, {}, ["end-needs-join s"]),
        (DIAMOND, {"a": END}, ["end-needs-join s"]),
        (DIAMOND, {"s": END}, []),  # the fork's own error edge does not count
        (DIAMOND, {"s": "a"}, []),
        ({**DIAMOND, "j": Choose(("a",), END)}, {}, ["side-entry s"]),
        ({**DIAMOND, "a": Choose(("s",), "j")}, {}, ["fork-reentry s", "side-entry s"]),
        ({**DIAMOND, "a": Choose(("b",), "j"), "b": Choose(("a",), "j")}, {}, ["loop-entry s"]),
        ({**DIAMOND, "b": Choose(("c",), "j"), "c": Choose(("b",), "j")}, {}, []),
        # A loop within a loop, entered at two nodes from the outer one's head.
        (
            {**DIAMOND, "b": Choose(("c", "d"), "j"), "c": Choose(("d",), "b"), "d": Choose(("c",), "b")},
            {},
            ["loop-entry s"],
        ),
        # The same entered at one node.
        ({**DIAMOND, "b": Choose(("c",), "j"), "c": Choose(("d",), "b"), "d": Choose(("c",), "b")}, {}, []),
    ],
)
def test_rules(statements: Mapping[str, Statement], errors: Mapping[str, str], broken: list[str]) -> None:
    """Each rule finds the smallest shape that breaks it, and lets its neighbours pass."""
    assert passes_rules(shape("s", statements, errors)) == broken


def test_entry_inside_a_region_is_a_side_entry() -> None:
    """START is not the fork."""
    graph = shape("a", {**DIAMOND, "j": Choose(("s",), END)})

    assert passes_rules(graph) == ["side-entry s"]


def test_join_is_found() -> None:
    """The first node that every path passes, over choose and error edges, and not a later one."""
    graph = shape("s", {**DIAMOND, "a": Choose(("b", "c")), "c": Next("j"), "j": Next("k"), "k": Next(END)}, {"c": "k"})

    assert join_of(graph, "s") == "k"
    assert region_of(graph, "s") == {"a", "b", "c", "j"}


def test_join_is_none_where_a_branch_cannot_end() -> None:
    """The rule about END says so; there is nothing to find."""
    assert join_of(shape("s", {"s": Fork(("a", "b")), "a": Next("b")}), "s") is None


# --- Comparing ---


def test_differences_name_all_that_is_wrong() -> None:
    """Every part of an outcome that is compared shows up when it differs."""
    graph = shape("s", {**DIAMOND, "s": Fork(("a", "b", "c"), frozenset("bc")), "c": Next("j")})
    expected = outcome(graph, {("s", 1): Act(skips=frozenset("b"))})
    actual = Outcome(
        ends=(End("partial"),),
        visits=(
            Visit("s", 1, ()),
            Visit("a", 1, got("s#1"), Context(("x",))),
            Visit("a", 1, got("s#1")),
            Visit("b", 1, ()),
            Visit("j", 1, got("a#1")),
        ),
        skipped=frozenset({("s", 1, "c")}),
        context=Context(("x",)),
        arrived=got("a#1"),
    )

    found = differences(expected, actual)

    assert [line.split("(")[0].split(",")[0].strip() for line in found] == [
        "ended End",
        "final context Context",
        "",
        "a#1 ran 2 times",
        "c#1 did not run",
        "Visit",
        "b#1 ran",
        "Visit",
        "",
        "",
    ]
    assert found[-2:] == ["('s', 1, 'c') skipped", "('s', 1, 'b') not skipped"]
    assert differences(expected, expected) == []


# --- Laws on random shapes ---

SHARES: Mapping[str, int] = {
    # Of the shapes, in % of 4,000 of 9 nodes on average:
    "fork": 88,
    "nested fork": 37,
    "inner merge": 57,
    "loop inside a fork": 30,
    "fork inside a loop": 31,
    "branch is the join": 61,
    "conditional branch": 60,
    "collect": 56,
    "shared join": 13,
    "error edge in a fork": 52,
    # Of their runs, with a script each and 6 visits on average:
    "skipped": 21,
    "dead": 26,
    "maybe": 9,
    "completed": 57,
    "partial": 7,
    "failed": 23,
    "conflict": 2,
    "no_route": 11,
}
"""How often something interesting occurs; half of it is required."""


def all_outcomes(graph: Shape, seed: int) -> list[Outcome]:
    """The outcome of each schedule of a seeded script."""
    script = SeededScript(graph, seed)
    return [run(graph, script, random.Random(schedule)) for schedule in range(SCHEDULES)]


@settings(
    max_examples=SHAPES // 3,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(shapes(), st.integers(0, 10**6))
def test_no_schedule_stalls_or_differs(graph: Shape, seed: int) -> None:
    """A shape that passes the rules comes out the same under every schedule."""
    found = all_outcomes(graph, seed)

    assert len({comparable(one) for one in found}) == 1
    assert all(end.kind != "stalled" for one in found for end in one.ends)


def test_random_shapes_are_interesting_and_obey() -> None:
    """The same law on seeded shapes, and one schedule that cancels at once does nothing that may not happen.

    The shares of what is interesting stand in `SHARES`.
    """
    rng = random.Random(20)
    seen: Counter[str] = Counter()
    for number in range(SHAPES):
        graph = random_shape(rng)
        found = all_outcomes(graph, number)
        script = SeededScript(graph, number)
        assert len({comparable(one) for one in found}) == 1, (graph, number)
        for schedule in range(SCHEDULES):
            actual = run(graph, script, random.Random(schedule), cancel="now")
            assert differences(found[0], actual) == [], (graph, number, schedule)
        seen.update(features(graph))
        seen.update({end.kind for end in found[0].ends})
        seen.update(name for name in ("dead", "maybe", "skipped") if getattr(found[0], name))
    assert not seen["stalled"]
    assert {name for name, share in SHARES.items() if seen[name] * 100 < share / 2 * SHAPES} == set()


@pytest.mark.parametrize(
    ("rule", "seed", "stalls"),
    [
        ("side-entry", 904, False),
        ("loop-entry", 692, True),
    ],
)
def test_rules_are_needed(rule: str, seed: int, *, stalls: bool) -> None:
    """Without `side-entry` schedules differ; without `loop-entry` tokens wait for each other for ever."""
    graph = random_shape(random.Random(seed), breaking=rule)

    found = all_outcomes(graph, seed)

    assert {problem.split()[0] for problem in passes_rules(graph)} == {rule}
    assert any(one.ends[0].kind == "stalled" for one in found) == stalls
    assert (len({comparable(one) for one in found}) > 1) == (not stalls)
