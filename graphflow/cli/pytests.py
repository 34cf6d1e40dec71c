"""`graphflow runs pytest`: a stored run becomes a test of its graph."""

from __future__ import annotations

import os
import pprint
import re
from pathlib import Path
from typing import Any, Final

import anyio

from graphflow.cli.exchange import lines_of, stored_rows, write_file
from graphflow.cli.faults import BadUse
from graphflow.cli.inputs import name_and_variable, secrets_from
from graphflow.cli.models import NATIVE
from graphflow.cli.printing import Screen, quoted
from graphflow.cli.resuming import Again, folded_run
from graphflow.cli.store import opened
from graphflow.cli.target import split_file
from graphflow.cli.targets import Noted, graph_of, required
from graphflow.errors import NodeFailed
from graphflow.model.ids import parse_path
from graphflow.model.outcome import NOTHING
from graphflow.runtime.stored import Folded
from graphflow.testing.stored import plain
from graphflow.visualize.text import shown, visible

WIDE: Final = 100

_HEAD: Final = '''\
"""A run of the graph {graph}, played again as it was stored: its effects are recorded, so nothing is called.

Written by `graphflow runs pytest`. Where the graph is meant to decide otherwise now, write it again.
"""

from pathlib import Path

{imports}

HERE = Path(__file__).parent
STORED = HERE / {stored}
{bound}
'''

_FOLDS: Final = '''

def test_the_graph_draws_the_same_decisions() -> None:
    """Folding the recorded facts again gives what was decided then."""
    fold_again(GRAPH, rows_in(STORED)[1]{secrets})
'''

_RESULT: Final = '''

def test_the_run_ends_as_it_did() -> None:
    """The result that is worked out from what is recorded is the one of then."""
    result = replayed(GRAPH, STORED{secrets})

    assert result.status == {status}
    assert plain(result.output) == {output}
'''

_RAISED: Final = '''

def test_the_run_fails_as_it_did() -> None:
    """The error of a node's body that ended the run is the one of then."""
    with pytest.raises(NodeFailed) as caught:
        replayed(GRAPH, STORED{secrets})

    assert (caught.value.path, caught.value.error_type) == ({path}, {error_type})
'''


def pytest_command(screen: Screen, again: Again, output: str | None, *, json: bool) -> int:
    """Write a test that plays a stored run again, with the rows of the run beside it.

    Raises:
        BadUse: if a file cannot be written.
        TargetError: if the graph cannot be loaded.
        JournalError: if the run does not fold to what is stored: such a test would fail.
    """
    secrets = secrets_from(again.secrets)
    with opened(again.store) as store:
        run, rows = anyio.run(stored_rows, store, again.run)
        graph, noted = graph_of(required(store.targets, run, again.graph))
        folded = anyio.run(folded_run, graph, run, store, "compatible", secrets)
    name = output or f"test_{_word(graph.name)}_{_word(run)[:8]}.py"
    if not name.endswith(".py"):
        raise BadUse(f"-o {name}: a test is a file whose name ends with .py.")
    stored = str(Path(name).with_suffix(".jsonl"))
    text = text_of_test(name, graph.name, noted, folded, again.secrets)
    write_file(stored, "".join(f"{line}\n" for line in lines_of(run, rows)))
    write_file(name, text)
    if json:
        screen.document({"run": run, "test": name, "rows": stored})
    else:
        screen.out.line(f"{visible(name)}\n{visible(stored)}")
        screen.say(f"to run it: python -m pytest {quoted(name)}")
    return 0


def _word(text: str) -> str:
    return re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower() or "run"


def text_of_test(name: str, graph: str, noted: Noted, folded: Folded, secrets: tuple[str, ...]) -> str:
    """Return the text of a test of a stored run.

    Args:
        name: the file that it will stand in.
        graph: the name of the graph.
        noted: what the graph is loaded by.
        folded: the run.
        secrets: where its secrets come from, as `FIELD=VARIABLE`.
    """
    given = f", secrets={_secrets(secrets)}" if secrets else ""
    ended, raised = folded.fold.ended, _raised(folded)
    parts = [_FOLDS.format(secrets=given)]
    if raised is not None:
        parts.append(_RAISED.format(secrets=given, path=_text(raised.path), error_type=_text(raised.error_type)))
    elif ended is not None:
        output = None if folded.fold.output is NOTHING else plain(folded.fold.output)
        parts.append(_RESULT.format(secrets=given, status=_text(ended.status), output=_literal(output)))
    body = "".join(parts)
    bound = _bound(name, noted)
    imports = _imports(body, bound)
    stored = _text(Path(name).with_suffix(".jsonl").name)
    return _HEAD.format(graph=_in_docstring(graph), imports=imports, stored=stored, bound=bound) + body


def _raised(folded: Folded) -> NodeFailed | None:
    """Return the error of a body that ended a run."""
    ended = folded.fold.ended
    if ended is None or ended.status != "failed" or ended.reason is None:
        return None
    found = folded.errors.get(parse_path(ended.reason.path))
    return found if isinstance(found, NodeFailed) and found.error_type == ended.reason.error_type else None


def _in_docstring(text: str) -> str:
    return shown(text).replace("\\", "\\\\").replace('"', "'")


def _text(value: str) -> str:
    """Return a text as Python, in the quotes that formatters use."""
    text = repr(value)
    return f'"{text[1:-1]}"' if text[0] == "'" and '"' not in value else text


def _literal(value: Any) -> str:
    """Return a value as Python that stands behind `assert ... ==`."""
    if isinstance(value, str):
        return _text(value)
    return pprint.pformat(value, width=WIDE, sort_dicts=False).replace("\n", "\n    ")


def _secrets(items: tuple[str, ...]) -> str:
    pairs = map(name_and_variable, items)
    return "{" + ", ".join(f"{_text(name)}: os.environ[{_text(variable)}]" for name, variable in pairs) + "}"


def _imports(body: str, bound: str) -> str:
    """Return the imports that a test needs, in the order of the style guides."""
    public, others = (
        ", ".join(name for name in names if f"{name}(" in body)
        for names in (("fold_again", "replayed"), ("plain", "rows_in"))
    )
    lines = [
        *["import os\n"] * ("os.environ" in body),
        *["import pytest\n"] * ("pytest.raises" in body),
        *["from graphflow import ProviderModel"] * ("ProviderModel" in bound),
        *["from graphflow.cli.inputs import tightened"] * ("tightened" in bound),
        "from graphflow.cli.target import load_graph",
        *["from graphflow.errors import NodeFailed"] * ("NodeFailed" in body),
        *[f"from graphflow.testing import {public}"] * bool(public),
        *[f"from graphflow.testing.stored import {others}"] * bool(others),
    ]
    return "\n".join(lines)


def _bound(name: str, noted: Noted) -> str:
    """Return how the test comes to its graph: a file is found from the test's own folder."""
    file, variable = split_file(noted.target)
    if file is None:
        target = _text(noted.target)
    else:
        place = Path(os.path.relpath(file.resolve(), Path(name).resolve().parent)).as_posix()
        target = f"str(HERE / {_text(place)})" + (f" + {_text(f':{variable}')}" if variable else "")
    loaded = f"load_graph({target})"
    if noted.max_depth is not None:
        loaded = f"tightened({loaded}, {noted.max_depth})"
    if noted.model is None:
        return f"GRAPH = {loaded}"
    asked = [_text(noted.model.name)]
    if noted.model.base_url is not None:
        asked.append(f"base_url={_text(noted.model.base_url)}")
    native = NATIVE[noted.model.decision]
    if native is not None:
        asked.append(f"native_tools={native}")
    model = f"MODEL = ProviderModel({', '.join(asked)})  # what is stored is read as its replies; it is not asked"
    return f"{model}\nGRAPH = {loaded}.with_model(MODEL)"
