"""The pictures of the documentation, drawn from the very graphs that its pages and examples define.

`scripts/pictures` draws them again. Each ends with a digest of the text that it was drawn from, so that a test can
tell without a renderer whether it is still current; the image itself depends on the renderer's version.
"""

import contextlib
import hashlib
import importlib.util
import io
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from graphflow import Graph
from graphflow.events import Event
from graphflow.rehearsal import plot
from graphflow.visualize import to_dot, to_svg
from tests.support import ROOT
from tests.test_doc_snippets import module_named, snippets

FOLDER: Final = ROOT / "docs" / "pictures"


class Picture(NamedTuple):
    """A graph that a page or an example defines, and the events of a run of it, if one is laid over.

    Attributes:
        source: the page or example, from the root of the repository.
        graph: the variable that holds the graph.
        run: the variable that holds the events, or "".
    """

    source: str
    graph: str
    run: str = ""


PICTURES: Final = {
    "support.svg": Picture("README.md", "support"),
    "review_team.svg": Picture("examples/repo_review.py", "graph"),
    "loop_at_its_bound.svg": Picture("docs/bounds.md", "loop", "events"),
    "support_desk.svg": Picture("examples/support_desk.py", "graph"),
    "support_chat.svg": Picture("examples/support_desk.py", "chat"),
    "company.svg": Picture("examples/company.py", "graph"),
    "refunds.svg": Picture("examples/durable.py", "graph"),
    "firm.svg": Picture("docs/what-crosses.md", "firm"),
    "shared_budget.svg": Picture("docs/budgets.md", "shared", "events"),
    "newsroom.svg": Picture("examples/newsroom.py", "graph"),
    "strategy_handoff.svg": Picture("examples/strategies/handoff.py", "graph"),
    "strategy_router.svg": Picture("examples/strategies/router.py", "graph"),
    "strategy_sequential.svg": Picture("examples/strategies/sequential.py", "graph"),
    "strategy_parallel.svg": Picture("examples/strategies/parallel.py", "graph"),
    "strategy_swarm.svg": Picture("examples/strategies/swarm.py", "graph"),
    "strategy_round_robin.svg": Picture("examples/strategies/round_robin.py", "graph"),
    "strategy_random.svg": Picture("examples/strategies/random_draw.py", "graph"),
    "strategy_plan_execute.svg": Picture("examples/strategies/plan_execute.py", "graph"),
    "strategy_manual.svg": Picture("examples/strategies/manual.py", "graph"),
    "strategy_chaired.svg": Picture("examples/strategies/manual.py", "chaired"),
    "team_hierarchy.svg": Picture("docs/teams.md", "company"),
    "team_orchestrator.svg": Picture("docs/teams.md", "audit"),
}

PLOTS: Final = {"rehearsal.svg": Picture("docs/rehearsal.md", "found")}
"""Pictures of numbers: the variable holds a rehearsal. They need no renderer, so that the whole file is compared."""


def drawn_from(picture: Picture) -> tuple[Graph[Any], list[Event] | None]:
    """Run a page or an example, and return the graph and the events that it defines."""
    names = _names_of(picture.source)
    return names[picture.graph], names[picture.run] if picture.run else None


def plotted_from(picture: Picture) -> str:
    """Run a page, and return the plot of the rehearsal that it defines."""
    return plot(_names_of(picture.source)[picture.graph])


def _names_of(source: str) -> dict[str, Any]:
    """Run a page or an example in a folder of its own, since a page may write files, and return what it defines."""
    path = ROOT / source
    with module_named(f"pictures of {source}") as place, TemporaryDirectory() as folder, contextlib.chdir(folder):
        if path.suffix == ".py":
            return _names_of_example(path)
        for snippet in snippets(path.read_text("utf-8")):
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(snippet.code, source, "exec", dont_inherit=True), place.__dict__)
        return dict(place.__dict__)


def _names_of_example(path: Path) -> dict[str, Any]:
    """Import an example by its path, as the command line does."""
    spec = importlib.util.spec_from_file_location(f"pictured_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return vars(module)


def seal(graph: Graph[Any], run: Iterable[Event] | None) -> str:
    """Return the line that says what a picture was drawn from."""
    digest = hashlib.sha256(to_dot(graph, run=run).encode()).hexdigest()
    return f"<!-- drawn from {digest} -->"


def draw_all(folder: Path = FOLDER) -> None:
    """Draw every picture."""
    folder.mkdir(exist_ok=True)
    for name, picture in PICTURES.items():
        graph, run = drawn_from(picture)
        image = to_svg(graph, run=run)
        (folder / name).write_text(f"{image.rstrip()}\n{seal(graph, run)}\n", "utf-8")
    for name, picture in PLOTS.items():
        (folder / name).write_text(plotted_from(picture), "utf-8")
