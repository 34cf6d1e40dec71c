"""Plans: work in steps that need each other's results, checked before anything of it runs.

A planner writes a `Plan`; `Execute` delegates its steps, those that do not need each other side by side; what went
wrong goes back to the planner, and what is finished is never done again.
"""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from graphflow.errors import ContractError, UsageError
from graphflow.graphs.arguments import gives_none_of
from graphflow.graphs.conversation import Said, Task, TeamReport, joint_report
from graphflow.graphs.look import a_cycle, knots
from graphflow.model.budget import Budget
from graphflow.model.context import extend
from graphflow.model.contract import Brief, Report
from graphflow.model.frozen import FrozenDict, Json
from graphflow.model.outcome import Call, Delegate, Done, Update
from graphflow.model.state import State
from graphflow.model.telling import value_text
from graphflow.model.thread import words_of
from graphflow.nodes.agent import Agent
from graphflow.nodes.base import Node
from graphflow.nodes.function import FunctionNode, Step, is_async
from graphflow.nodes.tools import AskUser, Tool, as_tool


class PlanStep(BaseModel):
    """One step of a plan.

    Attributes:
        id: what other steps call it by.
        to: the worker, or the tool, that does it.
        objective: what is wanted of a worker.
        arguments: what a tool is called with.
        needs: the ids of the steps whose results it needs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    id: str
    to: str
    objective: str = ""
    arguments: FrozenDict[str, Json] = FrozenDict()
    needs: tuple[str, ...] = ()


class Plan(BaseModel):
    """What a planner writes.

    Attributes:
        steps: in any order; a step starts when those that it needs have reported.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    steps: tuple[PlanStep, ...]


class Finished(BaseModel):
    """A step that was done.

    Attributes:
        step: the step.
        report: what came of it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    step: PlanStep
    report: Report


class StepBrief(Brief):
    """What the worker of a step is asked.

    Attributes:
        arguments: what a tool is called with.
        results: what the steps before found that this one needs.
    """

    arguments: FrozenDict[str, Json] = FrozenDict()
    results: tuple[str, ...] = ()


class Verdict(BaseModel):
    """What somebody who verifies says: whether it is accepted, and why not.

    Attributes:
        accepted: whether it is good enough.
        why: what is missing, for the one who does it again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    accepted: bool
    why: str = ""


class PlannedTask(Task):
    """A task that is done by a plan.

    Attributes:
        plan: the plan that is carried out.
        finished: the steps that are done, those of earlier plans too.
        problems: why the planner has to plan again.
    """

    plan: Plan | None = None
    finished: Annotated[tuple[Finished, ...], extend] = ()
    problems: tuple[str, ...] = ()


def plan_problems(plan: Plan, workers: Iterable[str], finished: Sequence[Finished] = ()) -> tuple[str, ...]:
    """Return everything that is wrong with a plan, in words for its planner.

    Args:
        plan: the plan.
        workers: the names of those who may do a step, tools among them.
        finished: the steps that are done already; their ids may be needed, and stand for the same step only.

    >>> plan_problems(Plan(steps=(PlanStep(id="a", to="nobody", objective="x", needs=("a",)),)), ["billing"])
    ("step 'a' goes to 'nobody', which is none of 'billing'", "step 'a' needs itself")
    """
    known = tuple(workers)
    if not plan.steps:
        return ("the plan has no step",)
    done = {one.step.id: one.step for one in finished}
    ids = [step.id for step in plan.steps]
    found = [f"two steps have the id {double!r}" for double, often in Counter(ids).items() if often > 1]
    for step in plan.steps:
        found += _step_problems(step, known, {*ids, *done})
        if step.id in done and (step.to, step.objective, step.arguments) != _work(done[step.id]):
            found.append(f"step {step.id!r} is finished already; other work needs another id")
    pairs = [(need, step.id) for step in plan.steps for need in step.needs if need != step.id]
    for knot in knots(pairs):
        cycle = a_cycle(knot, pairs)
        found.append(f"steps need each other in a circle: {' → '.join(map(repr, (*cycle, cycle[0])))}")
    return tuple(found)


def _step_problems(step: PlanStep, workers: tuple[str, ...], ids: set[str]) -> Iterator[str]:
    if not step.id.strip():
        yield f"a step for {step.to!r} has no id"
    if step.to not in workers:
        yield f"step {step.id!r} goes to {step.to!r}, which is none of {', '.join(map(repr, workers))}"
    if not step.objective.strip() and not step.arguments:
        yield f"step {step.id!r} has no work: it needs an objective, or arguments for a tool"
    for need in step.needs:
        if need == step.id:
            yield f"step {step.id!r} needs itself"
        elif need not in ids:
            yield f"step {step.id!r} needs {need!r}, which is no step"
    if len(set(step.needs)) < len(step.needs):
        yield f"step {step.id!r} needs the same step twice"


def _work(step: PlanStep) -> tuple[str, str, FrozenDict[str, Json]]:
    return (step.to, step.objective, step.arguments)


def read_plan(value: Any) -> Plan | str:
    """Return what a planner gave as a plan, or why it is none."""
    try:
        if isinstance(value, Report):
            value = value.finding
        if isinstance(value, str):
            return Plan.model_validate_json(value)
        return value if isinstance(value, Plan) else Plan.model_validate(value)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, one['loc'])) or 'it'}: {one['msg'][:1].lower()}{one['msg'][1:]}"
            for one in error.errors(include_url=False)[:5]
        )
        return f"it is no plan ({wrong})"


@dataclass(frozen=True)
class Execute:
    """Check a plan, and delegate the steps that are not done yet.

    Attributes:
        workers: the names of those who may do a step.
    """

    workers: tuple[str, ...]

    async def __call__(self, state: State[PlannedTask]) -> Done | Delegate:
        """Delegate what is to be done; once it is reported, note what is finished and what is not."""
        if state.turn > 0:
            return self._collected(state)
        plan = read_plan(state.inbox[0].value if state.inbox else None)
        finished = state.context.finished
        problems = (plan,) if isinstance(plan, str) else plan_problems(plan, self.workers, finished)
        if isinstance(plan, str) or problems:
            return Done(_listed(problems), update=Update(problems=problems))
        done = {one.step.id: one.report for one in finished}
        calls = [_call(step, done) for step in plan.steps if step.id not in done]
        update = Update(plan=plan, problems=())
        if not calls:
            return Done(plan_report(plan, finished), update=update)
        return Delegate(*calls, update=update)

    @staticmethod
    def _collected(state: State[PlannedTask]) -> Done:
        plan, before = state.context.plan, state.context.finished
        assert plan is not None  # noqa: S101 - the turn before wrote it
        done = {one.step.id for one in before}
        steps = [step for step in plan.steps if step.id not in done]
        reports = [(step, report) for step, report in zip(steps, state.values, strict=True)]
        new = tuple(Finished(step=s, report=r) for s, r in reports if r.status in ("done", "partial"))
        failed = tuple(
            f"step {s.id!r} of {s.to!r} has {'failed' if r.status == 'failed' else 'an open question'}: {_why(r)}"
            for s, r in reports
            if r.status not in ("done", "partial")
        )
        update = Update(finished=new, problems=failed)
        return Done(_listed(failed) if failed else plan_report(plan, (*before, *new)), update=update)


def _call(step: PlanStep, done: dict[str, Report]) -> Call:
    """Return the call of a step; what it needs of earlier plans stands in its brief, the rest arrives as reports."""
    results = tuple(f"[{need}]: {words_of(done[need])}" for need in step.needs if need in done)
    objective = "\n".join((step.objective or f"Call {step.to}.", *results))
    brief = StepBrief(objective=objective, arguments=step.arguments, results=results)
    return Call(step.to, brief, id=step.id, needs=tuple(need for need in step.needs if need not in done))


def _why(report: Report) -> str:
    return report.reason.text if report.reason is not None else words_of(report)


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def plan_report(plan: Plan, finished: Sequence[Finished]) -> TeamReport:
    """Return the joint report of a plan's steps, in the order of the plan."""
    reports = {one.step.id: one.report for one in finished}
    return joint_report([Said(speaker=step.id, report=reports[step.id]) for step in plan.steps if step.id in reports])


_LONGEST: Final = 500
"""How many letters of what went wrong stand in a reason; the context has all."""


@dataclass(frozen=True)
class NeedsPlan:
    """Whether something went wrong that the planner has to know."""

    @property
    def label(self) -> str:
        """How the edge to the planner is drawn."""
        return "needs_a_plan"

    def __call__(self, state: State[PlannedTask]) -> bool:
        """Look at what is noted."""
        return bool(state.context.problems)

    @staticmethod
    def why(context: PlannedTask) -> str:
        """Say what went wrong, for the reason where a bound refuses another plan."""
        said = "; ".join(context.problems)
        said = said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"
        return f"wrong with the last plan: {said}"


needs_a_plan: Final = NeedsPlan()


async def replan(state: State[PlannedTask]) -> str:
    """Tell the planner what went wrong, and what need not be done again."""
    finished = [f"{one.step.id!r}: {words_of(one.report)}" for one in state.context.finished]
    parts = ["Write another plan. This one did not do:", _listed(state.context.problems)]
    if finished:
        parts += ["These steps are finished and are not done again; others may need them:", _listed(finished)]
    return "\n".join(parts)


def verdict_of(value: Any) -> Verdict:
    """Return what somebody who verifies gave as a verdict: True or False, a `Verdict`, or a report.

    Raises:
        ContractError: if it is nothing of these: a text alone does not say whether it accepts.

    >>> verdict_of(Report(finding="All right.")).accepted
    True
    """
    if isinstance(value, Verdict):
        return value
    if isinstance(value, bool):
        return Verdict(accepted=value, why="" if value else "it was not accepted")
    if isinstance(value, Report):
        return Verdict(accepted=value.status == "done", why=_why(value))
    msg = (
        f"{value_text(value)} is no verdict: True or False, a Verdict, or a Report is needed; an Agent gets "
        f"output=Verdict."
    )
    raise ContractError(msg)


def checked_planner(where: str, planner: Node[Any]) -> None:
    """Refuse a planner of which it is known that it gives no plan.

    Raises:
        UsageError: saying what to give it.
    """
    text = () if isinstance(planner, Agent) else (str,)
    if gives_none_of(planner, Plan, Report, dict, *text):
        hint = "give it output=Plan" if isinstance(planner, Agent) else "it has to give a Plan"
        msg = f"{where}: planner={value_text(planner)}: what it gives is no plan; {hint}."
        raise UsageError(msg)


def checked_verifier(where: str, argument: str, verifier: Node[Any] | None) -> None:
    """Refuse who verifies where it is known that they give no verdict.

    Raises:
        UsageError: saying what to give them.
    """
    if verifier is not None and gives_none_of(verifier, bool, Verdict, Report):
        agent = isinstance(verifier, Agent)
        hint = "give it output=Verdict" if agent else "it has to give True or False, a Verdict, or a Report"
        msg = f"{where}: {argument}={value_text(verifier)}: what it gives does not say whether it accepts; {hint}."
        raise UsageError(msg)


async def judge(state: State[PlannedTask]) -> Done:
    """Take the verdict on a plan's results: they are the output, or its planner has to know why not."""
    verdict = verdict_of(state.inbox[0].value if state.inbox else None)
    plan = state.context.plan
    assert plan is not None  # noqa: S101 - somebody verified its results
    if verdict.accepted:
        return Done(plan_report(plan, state.context.finished))
    why = f"the results were not accepted: {verdict.why}"
    return Done(why, update=Update(problems=(why,)))


# --- tools as workers ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunTool:
    """Call a tool with the arguments of a step.

    Attributes:
        tool: the tool.
    """

    tool: Tool

    async def __call__(self, state: State[PlannedTask], step: Step) -> Report:
        """Check the arguments, and do it once."""
        brief = next((m.value for m in state.inbox if isinstance(m.value, StepBrief)), None)
        given = json.dumps(_as_json(brief.arguments if brief is not None else {}))
        arguments = self.tool.arguments(given)
        fn = self.tool.fn
        done: Any = (
            await step.effect(self.tool.name, _Named(fn).awaited, arguments, cost=_ONE)
            if is_async(fn)
            else await step.effect(self.tool.name, _Named(fn).called, arguments, cost=_ONE)
        )
        text = words_of(done)
        return Report(finding=text if text.strip() else f"{self.tool.name} gave nothing.")


_ONE = Budget(tool_calls=1)


@dataclass(frozen=True)
class _Named:
    """A function that is called with its arguments by name."""

    fn: Any

    def called(self, arguments: dict[str, Any]) -> Any:
        return self.fn(**arguments)

    async def awaited(self, arguments: dict[str, Any]) -> Any:
        made = self.fn(**arguments)
        return await made if inspect.isawaitable(made) else made


def _as_json(value: Any) -> Any:
    if isinstance(value, FrozenDict):
        return {key: _as_json(item) for key, item in cast("FrozenDict[str, Any]", value).items()}
    if isinstance(value, dict | tuple | list):
        items = cast("Any", value)
        return {k: _as_json(v) for k, v in items.items()} if isinstance(value, dict) else [_as_json(v) for v in items]
    return value


def tool_workers(where: str, tools: Sequence[object]) -> tuple[FunctionNode[Any], ...]:
    """Return a node for each tool, which calls it with the arguments of a step.

    Raises:
        UsageError: if one is no tool, or needs an agent: its step, its questions, or a person's approval.
    """
    try:
        return tuple(tool_worker(as_tool(found)) for found in tools)
    except UsageError as error:
        msg = f"{where}: tools: {error}"
        raise UsageError(msg) from None


def tool_worker(tool: Tool | AskUser) -> FunctionNode[Any]:
    """Return a node that calls a tool with the arguments of a step.

    Raises:
        UsageError: if the tool needs an agent: its step, its questions, or a person's approval.
    """
    if isinstance(tool, AskUser):
        msg = f"the tool {tool.name!r} asks a person for an agent; make the person a worker, with Human(...)."
        raise UsageError(msg)
    for wanted, what in ((tool.step, "takes a ToolStep"), (tool.approval or None, "needs approval")):
        if wanted is not None:
            msg = f"the tool {tool.name!r} {what}, and a step of a plan cannot give that; put it into an Agent."
            raise UsageError(msg)
    return FunctionNode[Any](
        fn=RunTool(tool),
        name=tool.name,
        description=tool.description,
        irreversible=tool.effect == "irreversible",
        retries=tool.retries,
        timeout=tool.timeout,
        costs=_ONE,
        version=tool.version,
    )
