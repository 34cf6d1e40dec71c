"""What a run leaves behind: nothing that has to wait for the garbage collector."""

import gc

from graphflow import END, START, Agent, Budget, Context, Graph, Join, State, Supervisor, node, run
from graphflow.testing import ScriptedModel, call


class Question(Context):
    """What is asked."""

    text: str


@node
async def look(state: State[Question]) -> str:
    """Say what was asked."""
    return state.context.text


async def _left_by(graph: Graph[Question]) -> list[str]:
    """Run a graph; return the classes of ours of which something waits for the garbage collector then.

    The connections of tool servers are left out: those of earlier tests end in threads of their own, at any time.
    """
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        result = await run(graph, Question(text="What is new?"))
        assert result.status == "completed", result
        del result
        gc.collect()
        classes: set[type[object]] = {type(found) for found in gc.garbage}
        ours = {kind for kind in classes if kind.__module__.startswith("graphflow.")}
        return sorted(kind.__name__ for kind in ours if not kind.__module__.startswith("graphflow.mcp."))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def test_a_team_leaves_nothing() -> None:
    """What agents have said to each other goes with the result that holds it."""
    lead = Supervisor("lead", model=ScriptedModel([call("ask_desk", objective="Look.")], "Nothing."))
    desk = Agent("desk", model=ScriptedModel("Nothing is new."))
    graph = Graph(
        "team", START >> lead >> END, lead.delegates(desk, max_hops=1), context=Question, budget=Budget(model_calls=5)
    )

    assert await _left_by(graph) == []


async def test_branches_and_inner_graphs_leave_nothing() -> None:
    """Scopes and frames go when they have closed."""
    inner = Graph("inner", START >> look.named("inside") >> END, context=Question)
    join = Join("join", reduce=len)
    graph = Graph("outer", START >> (look, inner) >> join >> END, context=Question)

    assert await _left_by(graph) == []
