"""TARGET: the graph that a command is about, as `path.py[:name]` or `package.module[:name]`."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from graphflow.cli.faults import described, frame_lines, place, users_frames
from graphflow.errors import DefinitionError, TargetError
from graphflow.graphs.graph import Graph
from graphflow.graphs.look import nested_graphs

DEFAULT: Final = "graph"
"""The variable that is taken where no name is given."""

FORMS: Final = "write path.py, path.py:name or package.module:name"


def load_graph(target: str) -> Graph[Any]:
    """Load the graph that a target names. The file or module is executed.

    Without a name it is the variable `graph`, else the only graph there, or the one in which all others stand.

    Raises:
        TargetError: if there is none, or what is loaded fails; the message says where.
    """
    return load(target)[0]


def load(target: str) -> tuple[Graph[Any], ModuleType]:
    """Load the graph that a target names, and return with it the module that it stands in.

    Raises:
        TargetError: if there is none, or what is loaded fails.
    """
    path, name = split_file(target)
    if path is not None:
        module = _run_file(path)
        return find_graph(module, name, str(path)), module
    where, name = _split_module(target)
    module = _import(where, target)
    return find_graph(module, name, where), module


def split_file(target: str) -> tuple[Path | None, str | None]:
    """Split a target that names a file into the file and the name of the graph; no file means a module.

    A colon separates only where a name follows it and a file stands before it, so any path can be written.

    Raises:
        TargetError: if it can only mean a file, and there is none.
    """
    head, colon, name = target.rpartition(":")
    whole, before = Path(target), Path(head)
    if _is_file(whole):
        return whole, None
    if colon and name.isidentifier() and _is_file(before):
        return before, name
    if colon and _is_file(before):
        msg = f"{target!r}: after the colon stands {name!r}, which is no name of a variable; {FORMS}."
        raise TargetError(msg)
    wanted = head if colon and name.isidentifier() else target
    if not all(part.isidentifier() for part in wanted.split(".")) and _is_folder(Path(wanted)):
        msg = f"{wanted!r} is a folder; name a Python file in it: {FORMS}."
        raise TargetError(msg)
    if wanted.endswith(".py") or "/" in wanted or "\\" in wanted:
        msg = f"there is no file {wanted!r}; {FORMS}."
        raise TargetError(msg)
    return None, None


def _is_file(path: Path) -> bool:
    try:
        return path.exists() and not path.is_dir()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _split_module(target: str) -> tuple[str, str | None]:
    module, colon, name = target.partition(":")
    parts = [*module.split("."), *([name] if colon else [])]
    if not all(part.isidentifier() for part in parts):
        msg = f"{target!r} is neither a file nor a module; {FORMS}."
        raise TargetError(msg)
    return module, name if colon else None


def _run_file(path: Path) -> ModuleType:
    """Execute a file as `python path` would: its folder comes first where modules are looked for."""
    folder = str(path.resolve().parent)
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
    stem = path.stem
    name = stem if stem.isidentifier() and stem not in sys.modules else f"_target_{stem}"
    loader = SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None:
        msg = f"{str(path)!r} cannot be loaded as Python; {FORMS}."
        raise TargetError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # annotations that are text are looked up there
    try:
        loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the user's file may do anything
        sys.modules.pop(name, None)
        raise TargetError(_blame(error, str(path), str(path))) from error
    return module


def _import(module: str, target: str) -> ModuleType:
    here = str(Path.cwd())
    if sys.path[:1] != [here]:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    except KeyboardInterrupt:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            msg = f"{target!r} is neither a file nor a module: {error}; {FORMS}."
            raise TargetError(msg) from error
        raise TargetError(_blame(error, module, None)) from error
    except BaseException as error:
        raise TargetError(_blame(error, module, None)) from error


def _blame(error: BaseException, what: str, file: str | None) -> str:
    """Say why a file or module cannot be loaded, with the user's own line."""
    if isinstance(error, SyntaxError) and error.lineno is not None and error.filename is not None:
        shown = [f"{what!r} cannot be loaded: {type(error).__name__}: {error.msg}"]
        line = (error.text or "").strip()
        shown.append(f"  {place(error.filename, error.lineno)}{': ' if line else ''}{line}")
        return "\n".join(shown)
    if isinstance(error, OSError) and not users_frames(error):
        return f"{what!r} cannot be read: {error.strerror or type(error).__name__}."
    if isinstance(error, SystemExit):
        hint = 'Put what shall not happen on loading below `if __name__ == "__main__":`.'
        lines = [f"{what!r} wanted to leave Python while it was loaded ({described(error)}). {hint}"]
    else:
        lines = [f"{what!r} cannot be loaded: {described(error)}"]
    lines += frame_lines(error)
    relative = isinstance(error, ImportError) and "relative import" in str(error)
    if relative and file is not None:
        lines.append("A file inside a package is named as a module: package.module:name.")
    return "\n".join(lines)


def find_graph(module: ModuleType, name: str | None, where: str) -> Graph[Any]:
    """Find a graph in a module.

    Raises:
        TargetError: if it is not there, or no graph, or not the only one.
    """
    graphs = graphs_in(module)
    if name is not None:
        return _named(module, name, where, graphs)
    if DEFAULT in graphs:
        return graphs[DEFAULT]
    distinct = {id(graph): key for key, graph in reversed(graphs.items())}
    if len(distinct) == 1:
        return next(iter(graphs.values()))
    outer = _around_all(list({id(graph): graph for graph in graphs.values()}.values()))
    if outer is not None:
        return outer
    if not distinct:
        msg = f"{where!r} defines no Graph: bind one to the variable {DEFAULT!r}, or name it: {where}:name."
        raise TargetError(msg)
    listed = ", ".join(f"{where}:{key}" for key in sorted(distinct.values()))
    msg = f"{where!r} defines {len(distinct)} graphs and none of them is called {DEFAULT!r}; name one: {listed}."
    raise TargetError(msg)


def _around_all(graphs: Sequence[Graph[Any]]) -> Graph[Any] | None:
    """Return the graph in which all others stand, if there is one."""
    inside = {id(inner) for graph in graphs for inner in nested_graphs(graph) if inner is not graph}
    outer = [graph for graph in graphs if id(graph) not in inside]
    return outer[0] if len(outer) == 1 else None


def graphs_in(module: ModuleType) -> dict[str, Graph[Any]]:
    """Return the graphs among the variables of a module, by name; private ones only if there is no other."""
    # By type(...): a lazy object may do anything when it is asked for its class.
    found = {key: value for key, value in vars(module).items() if issubclass(type(value), Graph)}
    public = {key: value for key, value in found.items() if not key.startswith("_")}
    return public or found


def _named(module: ModuleType, name: str, where: str, graphs: dict[str, Graph[Any]]) -> Graph[Any]:
    try:
        value: object = getattr(module, name)
    except AttributeError:
        known = ", ".join(graphs) or "none"
        near = difflib.get_close_matches(name, graphs, n=1)
        guess = f" Did you mean {where}:{near[0]}?" if near else ""
        msg = f"{where!r} has no variable {name!r}; its graphs: {known}.{guess}"
        raise TargetError(msg) from None
    except DefinitionError as error:
        raise TargetError(str(error)) from error
    if isinstance(value, Graph):
        return value  # pyright: ignore[reportUnknownVariableType]  # a graph of any context
    known = ", ".join(graphs) or "none"
    msg = f"{where}:{name} is no Graph but of class {type(value).__name__}; the graphs there: {known}."
    raise TargetError(msg)
