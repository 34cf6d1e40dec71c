"""What traces of plan_execute must hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from graphflow.errors import ContractError
from graphflow.graphs.compiled import ChooseOut, NextOut
from graphflow.graphs.conversation import TeamReport
from graphflow.graphs.graph import Graph
from graphflow.graphs.planning import Finished, Plan, plan_problems, read_plan, verdict_of
from graphflow.model.contract import Report
from graphflow.model.ids import Path
from graphflow.model.outcome import Call, Delegate
from graphflow.testing.activation import UNTOLD, Activation, Visit, WrongShape, calls_of


@dataclass(frozen=True)
class _Parts:
    """The parts of a graph that plans, read from its edges."""

    planner: str
    execute: str
    workers: tuple[str, ...]
    replan: str
    max_replans: int | None
    verdict: str | None
    verify: str | None

    @classmethod
    def of(cls, graph: Graph[Any]) -> _Parts:
        """Find the parts.

        Raises:
            WrongShape: if nothing is planned in the graph.
        """
        start, stations = graph.compiled.start, graph.compiled.stations
        planner = start.edge.target if isinstance(start, NextOut) else None
        out = stations[planner].out if isinstance(planner, str) else None
        execute = out.edge.target if isinstance(out, NextOut) else None
        if not isinstance(planner, str) or not isinstance(execute, str):
            raise WrongShape("START does not lead to a planner and to who carries plans out")
        after, workers = stations[execute].out, tuple(stations[execute].delegates)
        if not isinstance(after, ChooseOut) or len(after.cases) != 1 or not workers:
            raise WrongShape(f"{execute!r} does not delegate, and lead back")
        again = after.cases[0]
        verdict = next(
            (
                name
                for name, station in stations.items()
                if name != execute
                and isinstance(station.out, ChooseOut)
                and station.out.cases[0].target == again.target
            ),
            None,
        )
        verify = None
        if verdict is not None and after.default is not None:
            verify = str(after.default.name.target)
        return cls(planner, execute, workers, str(again.name.target), again.max_hops, verdict, verify)


@dataclass(frozen=True, eq=False)
class _Round:
    """One visit of the node that carries plans out.

    Attributes:
        visit: the visit.
        plan: what was planned, or why it is no plan; None where the events do not tell.
        finished: what was finished before.
        calls: what was delegated.
        frames: of each delegated step where it began and ended, and its report.
    """

    visit: Visit
    plan: Plan | str | None
    finished: tuple[Finished, ...]
    calls: tuple[Call, ...]
    frames: dict[str, tuple[int, int | None, Any]]


def _rounds(seen: Activation, parts: _Parts) -> Iterator[_Round]:
    finished: tuple[Finished, ...] = ()
    for visit in seen.of(parts.execute):
        planners = [one for one in seen.of(parts.planner) if one.began < visit.began]
        value = seen.gave(planners[-1]) if planners else UNTOLD
        plan = visit.update.get("plan") if value is UNTOLD else read_plan(value)
        delegated = next((one for one in visit.outcomes.values() if isinstance(one, Delegate)), None)
        calls = delegated.calls if delegated is not None else ()
        frames = {_id(calls, path): (began, over, report) for began, over, path, report in calls_of(seen, visit)}
        yield _Round(visit, plan, finished, calls, frames)
        finished = (*finished, *visit.update.get("finished", ()))


def _id(calls: tuple[Call, ...], path: Path) -> str:
    place = path[-1].call
    return calls[place[1]].id if place is not None and place[1] < len(calls) else f"no step, {path[-1].name!r}"


def runs_no_bad_plan(seen: Activation) -> Iterator[str]:
    """Of a plan that cannot be right nothing is run; all that is wrong goes back."""
    parts = _Parts.of(seen.graph)
    for one in _rounds(seen, parts):
        if one.plan is None:
            continue
        wrong = (one.plan,) if isinstance(one.plan, str) else plan_problems(one.plan, parts.workers, one.finished)
        if wrong and (one.calls or one.frames):
            yield f"{one.visit} ran a plan that cannot be right: {wrong[0]}"
        elif wrong and one.visit.over is not None and one.visit.update.get("problems") != wrong:
            yield f"{one.visit} did not tell all that is wrong with the plan: {'; '.join(wrong)}"


def runs_what_is_planned(seen: Activation) -> Iterator[str]:
    """What is delegated are the steps that are not finished, each once, to whom the plan says."""
    for one in _rounds(seen, _Parts.of(seen.graph)):
        done = {found.step.id for found in one.finished}
        for call in one.calls:
            if call.id in done:
                yield f"{one.visit} ran the step {call.id!r} again, which is finished"
        if isinstance(one.plan, Plan) and one.calls:
            wanted = [(step.id, step.to) for step in one.plan.steps if step.id not in done]
            got = [(call.id, call.to) for call in one.calls if call.id not in done]
            if got != wanted:
                yield f"{one.visit} ran {got!r}, and the plan says {wanted!r}"


def waits_for_needs(seen: Activation) -> Iterator[str]:
    """No step begins before those that it needs have reported, nor where one of them has failed."""
    for one in _rounds(seen, _Parts.of(seen.graph)):
        steps = {step.id: step for step in one.plan.steps} if isinstance(one.plan, Plan) else {}
        done = {found.step.id for found in one.finished}
        for call in one.calls:
            began = one.frames.get(call.id)
            for need in steps[call.id].needs if call.id in steps else call.needs:
                if began is None or need in done:
                    continue
                _, over, report = one.frames.get(need, (0, None, None))
                if over is None or over > began[0]:
                    yield f"seq {began[0]}: the step {call.id!r} began before {need!r}, which it needs, had reported"
                elif isinstance(report, Report) and report.status == "failed":
                    yield f"seq {began[0]}: the step {call.id!r} began, and {need!r}, which it needs, has failed"


def plans_again_within_bounds(seen: Activation) -> Iterator[str]:
    """The planner plans again so often and no more; what went wrong leads back to it."""
    parts = _Parts.of(seen.graph)
    again = seen.of(parts.replan)
    if parts.max_replans is not None and len(again) > parts.max_replans:
        yield f"{again[parts.max_replans]} planned again, and that may be {parts.max_replans} times"
    for one in _rounds(seen, parts):
        failed = [name for name, (_, _, report) in one.frames.items() if _has_failed(report)]
        if failed and one.visit.over is not None and not one.visit.update.get("problems"):
            yield f"{one.visit} has forgotten that the step {failed[0]!r} went wrong"
        yield from _goes_back(seen, parts, one.visit, bool(failed or one.visit.update.get("problems")))
    for visit in seen.of(parts.verdict or ""):
        judges = [one for one in seen.of(parts.verify or "") if one.began < visit.began]
        verdict = _accepted(seen.gave(judges[-1])) if judges else None
        if verdict is not None:
            yield from _goes_back(seen, parts, visit, not verdict)


def _goes_back(seen: Activation, parts: _Parts, visit: Visit, wrong: bool) -> Iterator[str]:  # noqa: FBT001 - it is said
    left = [move for move in seen.moves if move.edge.source == visit.name and move.seq > (visit.over or visit.began)]
    if left and (left[0].edge.target == parts.replan) != wrong:
        why = "and nothing went wrong" if not wrong else "and something went wrong"
        yield f"seq {left[0].seq}: {visit} went on to {left[0].edge.target or 'END'!r}, {why}"


def _has_failed(report: Any) -> bool:
    return isinstance(report, Report) and report.status not in ("done", "partial")


def _accepted(value: Any) -> bool | None:
    try:
        return None if value is UNTOLD else verdict_of(value).accepted
    except ContractError:
        return None


def reports_in_the_plans_order(seen: Activation) -> Iterator[str]:
    """The joint report holds every step of the plan, in the plan's order."""
    parts = _Parts.of(seen.graph)
    for one in _rounds(seen, parts):
        report = seen.gave(one.visit)
        if isinstance(report, TeamReport) and isinstance(one.plan, Plan):
            wanted, got = [step.id for step in one.plan.steps], [said.speaker for said in report.said]
            if got != wanted:
                yield f"{one.visit} reports the steps {', '.join(got)}, and the plan has {', '.join(wanted)}"
            for said in report.said:
                came = one.frames.get(said.speaker)
                if came is not None and isinstance(came[2], Report) and came[2] != said.report:
                    yield f"{one.visit} reports {said.text!r} of the step {said.speaker!r}, which is not what came"


PLAN_EXECUTE = (
    runs_no_bad_plan, runs_what_is_planned, waits_for_needs, plans_again_within_bounds, reports_in_the_plans_order,
)  # fmt: skip
