"""The order of the layers: a lower one never imports a higher one, and libraries stay where they belong."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.support import PACKAGE, ROOT

# From the lowest to the highest; the layers of one line are siblings, which do not see each other.
# `graphflow` itself is graphflow/__init__.py, which gathers the public names for users and the command line.
ORDER: Final = (
    ("errors", "early"),
    ("model",),
    ("events",),
    ("nodes",),
    ("graphs",),
    ("runtime", "persistence", "visualize", "lint"),
    ("engines", "mcp"),
    ("testing",),
    ("rehearsal",),
    ("inspector",),
    ("graphflow",),
    ("cli", "__main__"),
)
RANK: Final = {layer: rank for rank, layers in enumerate(ORDER) for layer in layers}

# Which layers may import a library. anyio is where something waits; a node may have to.
HOMES: Final = {
    "networkx": {"graphs"},
    "graphviz": {"visualize"},
    "graphviz_pure": {"visualize"},
    "anyio": {"nodes", "runtime", "persistence", "engines", "mcp", "testing", "rehearsal", "inspector", "cli"},
    "mcp": {"mcp"},
    "jsonschema": {"mcp"},
    "referencing": {"mcp"},
    "uvicorn": {"mcp"},
    "typer": {"cli"},
    "rich": {"visualize", "cli"},
    "psycopg": {"persistence"},
    "pydantic_ai": {"nodes"},
    "genai_prices": {"nodes"},
    "httpx2": {"nodes", "mcp"},
    "termaid": {"visualize", "cli"},
}

# A module that has grown past this does two things.
LONGEST: Final = 650

MODULES: Final = sorted(PACKAGE.rglob("*.py"))


class Import(NamedTuple):
    """One imported module, by its absolute name, and the line it stands on."""

    name: str
    line: int


def name_of(path: Path, root: Path = ROOT) -> str:
    """The dotted name of the module at `path`."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> str:
    """The layer a module of ours lies in: the second part of its name."""
    return module.split(".")[1] if "." in module else module


def imports(source: str, module: str, *, is_package: bool, known: frozenset[str]) -> Iterator[Import]:
    """Every import of a module, those in functions and under TYPE_CHECKING too.

    `from a import b` imports `a.b` where that is one of the `known` modules, else `a`.
    """
    for statement in ast.walk(ast.parse(source)):
        match statement:
            case ast.Import(names=names):
                yield from (Import(alias.name, statement.lineno) for alias in names)
            case ast.ImportFrom(module=base, names=names, level=level):
                parts = module.split(".")
                above = parts[: len(parts) - level + is_package] if level else []
                whole = ".".join([*above, *([base] if base else [])])
                for alias in names:
                    inner = f"{whole}.{alias.name}"
                    yield Import(inner if inner in known else whole, statement.lineno)
            case _:
                pass


def violations(source: str, module: str, *, is_package: bool, known: frozenset[str]) -> list[str]:
    """What is wrong with the imports of one module, a sentence for each."""
    layer = layer_of(module)
    if layer not in RANK:
        return [f"{module} lies in no known layer; give {layer!r} its place in ORDER (tests/test_layers.py)"]
    found: list[str] = []
    for name, line in imports(source, module, is_package=is_package, known=known):
        at = f"{module}:{line}: {layer!r} imports {name}"
        library = name.split(".")[0]
        if library != "graphflow":
            homes = HOMES.get(library)
            if homes is not None and layer not in homes:
                found.append(f"{at}, which belongs in {', '.join(sorted(homes))} alone")
            continue
        target = layer_of(name)
        if target == layer:
            continue
        if target not in RANK:
            found.append(f"{at}, which lies in no known layer")
        elif RANK[target] > RANK[layer]:
            found.append(f"{at}, a higher layer; let {layer!r} be given what it needs, or move it down")
        elif RANK[target] == RANK[layer]:
            found.append(f"{at}, a sibling; what both need belongs in a lower layer")
    return found


KNOWN: Final = frozenset(map(name_of, MODULES))


@pytest.mark.parametrize("path", [pytest.param(path, id=name_of(path)) for path in MODULES])
def test_imports_point_downwards(path: Path) -> None:
    """No module imports a higher layer, a sibling, or a library that belongs elsewhere."""
    found = violations(path.read_text("utf-8"), name_of(path), is_package=path.name == "__init__.py", known=KNOWN)

    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", [pytest.param(path, id=name_of(path)) for path in MODULES])
def test_modules_stay_short(path: Path) -> None:
    """No module has grown past what can be read in one sitting."""
    lines = len(path.read_text("utf-8").splitlines())

    assert lines <= LONGEST, f"{name_of(path)} has {lines} lines, more than {LONGEST}: split it"


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        pytest.param("graphflow.model.a", "from graphflow.errors import X", None, id="down"),
        pytest.param("graphflow.model.a", "from graphflow.model.b import X", None, id="same layer"),
        pytest.param("graphflow.model.a", "from .b import X", None, id="relative, same layer"),
        pytest.param("graphflow.model.a", "from .. import nodes", "a higher layer", id="relative, up"),
        pytest.param("graphflow.model.a", "import graphflow", "a higher layer", id="the top"),
        pytest.param("graphflow.cli.a", "from graphflow import run", None, id="the top from the cli"),
        pytest.param("graphflow", "from graphflow.cli import main", "a higher layer", id="cli from the top"),
        pytest.param("graphflow.runtime.a", "import graphflow.persistence.b", "a sibling", id="sibling"),
        pytest.param("graphflow.model.a", "def f():\n from graphflow import events", "higher", id="local"),
        pytest.param("graphflow.model.a", "if TYPE_CHECKING:\n import graphflow.cli", "higher", id="typing"),
        pytest.param("graphflow.graphs.a", "import networkx as nx", None, id="library at home"),
        pytest.param("graphflow.runtime.a", "from networkx.algorithms import dag", "belongs", id="library"),
        pytest.param("graphflow.helpers", "", "no known layer", id="new module"),
        pytest.param("graphflow.nodes.a", "import graphflow.helpers", "no known layer", id="new target"),
    ],
)
def test_violations_are_found(module: str, source: str, complaint: str | None) -> None:
    """The rules themselves, on modules of one import."""
    known = frozenset({"graphflow.nodes", "graphflow.events", "graphflow.model", "graphflow.model.b"})

    found = violations(source, module, is_package=module == "graphflow", known=known)

    if complaint is None:
        assert found == []
    else:
        assert len(found) == 1
        assert complaint in found[0]


def test_importing_graphflow_loads_no_heavy_library() -> None:
    """`import graphflow` in a fresh process stays quick, and needs no extra."""
    heavy = sorted({"networkx", "graphviz", *HOMES} - {"anyio"})
    program = f"import sys, graphflow; print(*sorted(set({heavy!r}) & set(sys.modules)))"

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)

    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout.split() == []


def test_what_is_declared_for_another_part_names_the_module_that_has_it() -> None:
    """The fold, the runner and the recorder call each other by methods that one of their parts has; each says which."""
    runtime = PACKAGE / "runtime"
    methods: dict[str, set[str]] = {}
    for path in runtime.glob("*.py"):
        methods[path.stem] = {
            found.name
            for found in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef)
        }

    wrong = [
        f"{path.stem}.{found.name} says {named}"
        for path in runtime.glob("*.py")
        for found in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(found, ast.FunctionDef)
        and ast.unparse(found.body[-1]) == "raise NotImplementedError"
        and found.name not in methods.get(named := _named_at_the_end(ast.get_docstring(found) or ""), set())
    ]

    assert wrong == []


def _named_at_the_end(docstring: str) -> str:
    """Return the module that a docstring's first line names in brackets."""
    return docstring.partition("\n")[0].rpartition("(")[2].rstrip(").")
