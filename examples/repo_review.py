"""A team reviews any folder: real files, no model, no key, no network.

    graphflow run examples/repo_review.py PATH          # or: python examples/repo_review.py PATH

Supervisors of supervisors: a director delegates to three leads, a lead shares its files out to crews, a crew
reads them in parallel. Reports come back with `path:line` as evidence; in the end each citation is checked.
"""

import ast
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote

from graphflow import (
    END,
    START,
    Brief,
    Budget,
    Call,
    Context,
    Delegate,
    Graph,
    Join,
    Report,
    State,
    Step,
    Update,
    append,
    node,
    run_sync,
)

CREWS, CREW_FILES, MAX_BYTES = 10, 100, 1_000_000
SHOWN, LISTED, TANGLED = 3, 10, 40  # findings of a kind, unread files of a reason, branches of a function
FREE: Final = Budget(model_calls=0, tool_calls=0)
WHY: Final = {  # what each kind is about and what to do, the heaviest first
    "does not parse": "Python cannot import this file. Correct it, or say which version it is for.",
    "merge conflict": "A merge was not finished. Keep one side.",
    "lost comparison": "The result is thrown away, so nothing can fail here. Assert it, or delete the line.",
    "dead assert": "The block ends when the error is raised, so this never runs. Move it out of the block.",
    "lost error": "Every error ends here without a word. Name those you expect, or say why in a comment.",
    "lost task": "Nothing keeps this task: it may vanish before it is done, its error too. Keep a reference.",
    "shared default": "All calls share this one value. Use None, and make a new one in the body.",
    "wrong default": "Callers believe the docstring. Correct the one of the two that is wrong.",
    "dead link": "It leads nowhere. Correct the path.",
    "doubled word": "A slip. Delete one of the two.",
    "undocumented": "Readers have to guess what these promise. Write a sentence for each.",
    "not named by a test": "Neither the module nor anything public in it. Begin with a test for this one.",
    "tangled": "More ways through than one can hold in mind. Take inner parts out and give them names.",
    "left behind": "Somebody meant to come back. Do it, or write an issue and name it here.",
}
BUSINESS: Final[dict[str, Callable[[str], bool]]] = {  # which files each desk reads
    "code": lambda path: not is_test(path) and not path.endswith((".md", ".rst")),
    "docs": lambda path: not is_test(path) and path.endswith((".md", ".rst", ".py")),
    "tests": lambda path: is_test(path) or path.endswith(".py"),
}


class Unread(NamedTuple):
    """Something that nobody read, and why."""

    path: str
    reason: str


class Finding(NamedTuple):
    """One thing to look at; a test that names one of the words in `unless` settles it."""

    kind: str
    path: str
    line: int
    quote: str
    says: str
    size: int
    unless: tuple[str, ...]


class Job(Brief):
    """What the director asks of a lead, and a lead of a crew; `sources` are the files."""

    desk: str
    root: str


class Review(Report):
    """What comes back: a report like any other, and what it is made from."""

    findings: tuple[Finding, ...] = ()
    unread: tuple[Unread, ...] = ()
    words: tuple[str, ...] = ()
    more: tuple[tuple[str, int], ...] = ()


class Desk(Context):
    """What a lead and its crews know."""

    job: Job


class Case(Context):
    """What the director knows; the first field is the command line's INPUT."""

    folder: str
    root: str = ""
    files: tuple[str, ...] = ()
    unread: tuple[Unread, ...] = ()
    reports: Annotated[tuple[Review | Report, ...], append] = ()


@node(costs=FREE)
async def survey(state: State[Case], step: Step) -> Update:
    """List the files of the folder."""
    found = await step.effect("walk", walk, state.context.folder)
    return Update(root=found.root, files=found.files, unread=found.unread)


@node
def director(state: State[Case]) -> Delegate | None:
    """Give each lead the files that are its business; the reports come back into the context."""
    case = state.context
    calls: list[Call] = []
    for desk, wanted in BUSINESS.items():
        files = tuple(filter(wanted, case.files))
        calls.append(Call(desk, Job(objective=f"Review the {desk}", desk=desk, root=case.root, sources=files)))
    return Delegate(*calls) if state.turn == 0 else None


@node
def lead(state: State[Desk]) -> Delegate | Review:
    """Share the files out to crews; when they are back, report the first findings of each kind."""
    job = state.context.job
    shares = [job.sources[at : at + CREW_FILES] for at in range(0, len(job.sources), CREW_FILES)]
    if shares and state.turn == 0:
        return Delegate(*(Call("crew", job.model_copy(update={"sources": share})) for share in shares))
    notes = merged(state.values)
    named = set(notes.words)
    kept = [finding for finding in notes.findings if named.isdisjoint(finding.unless)]
    kept.sort(key=lambda finding: (-finding.size, finding.path, finding.line))
    kinds = [[finding for finding in kept if finding.kind == kind] for kind in WHY]
    shown = tuple(finding for kind in kinds for finding in kind[:SHOWN])
    return Review(
        finding=f"{counted(len(kept), 'finding')} in {counted(len(job.sources) - len(notes.unread), 'file')}",
        evidence=tuple(dict.fromkeys(f"{finding.path}:{finding.line}" for finding in shown)),
        findings=shown,
        unread=notes.unread,
        more=tuple((kind[0].kind, len(kind) - SHOWN) for kind in kinds if len(kind) > SHOWN),
    )


@node(costs=FREE)
async def read(state: State[Desk], step: Step) -> Review:
    """Read one file and apply the desk's rules to it."""
    job = state.context.job
    return await step.effect("inspect", inspect, job.root, job.desk, state.inbox[0].value)


@node(costs=FREE)
async def check(state: State[Case], step: Step) -> Finding | None:
    """Check one citation: read its file again, and every test that could settle it."""
    desk, finding = state.inbox[0].value
    tests = tuple(path for path in state.context.files if finding.unless and is_test(path))
    return finding if await step.effect("verify", holds, state.context.root, desk, finding, tests) else None


@node
def write(state: State[Case]) -> str:
    """Write the report, in Markdown."""
    case, verified = state.context, {value for value in state.values if isinstance(value, Finding)}
    struck = len(citations(state)) - len(verified)
    lines = [
        f"# Review of {span(case.folder)}\n",
        f"{counted(len(verified), 'finding')} shown, each checked once more; {struck} struck out.",
    ]
    unread = set(case.unread)
    for desk, report in zip(BUSINESS, case.reports, strict=True):
        lines.append(f"\n## {desk.capitalize()}: {report.reason.text if report.reason else report.finding}")
        if isinstance(report, Review):
            lines += section(report, verified)
            unread.update(report.unread)
    lines.append("\n## Not read\n" if unread else "\nEvery file was read.")
    for reason in sorted({found.reason for found in unread}):
        names = [span(found.path) for found in sorted(unread) if found.reason == reason]
        rest = [f"{len(names) - LISTED:,} more"] if names[LISTED:] else []
        lines.append(f"- {reason}, {len(names):,} in all: {', '.join(names[:LISTED] + rest)}")
    return "\n".join(lines)


def section(review: Review, verified: set[Finding]) -> Iterator[str]:
    """Write the part of one lead."""
    more = dict(review.more)
    for kind, why in WHY.items():
        if found := [finding for finding in review.findings if finding.kind == kind and finding in verified]:
            yield f"\n### {kind.capitalize()}\n\n{why}\n"
            for _, path, line, quote, says, *_ in found:
                yield f"- {span(f'{path}:{line}')}{says and ': '}{says}\n  {span(quote)}"
            if kind in more:
                yield f"- and {more[kind]:,} more like these"


def files(state: State[Desk]) -> tuple[str, ...]:
    """A lane for each file of a crew."""
    return state.context.job.sources


def citations(state: State[Case]) -> tuple[tuple[str, Finding], ...]:
    """A lane for each citation of a lead."""
    reports = zip(BUSINESS, state.context.reports, strict=True)
    return tuple((desk, each) for desk, one in reports if isinstance(one, Review) for each in one.findings)


def take_job(state: State[Any]) -> Desk:
    """What a lead and a crew begin with: the brief that they were given."""
    return Desk.model_validate({"job": state.brief})


def merged(reviews: tuple[Any, ...]) -> Review:
    """Put together what several brought back; one that failed says where it stood in the run."""
    good = [one for one in reviews if isinstance(one, Review)]
    failed = [Unread(one.reason.path, one.reason.text) for one in reviews if isinstance(one, Report) and one.reason]
    return Review(
        finding=f"{len(good)} parts",
        findings=tuple(found for one in good for found in one.findings),
        unread=(*failed, *(found for one in good for found in one.unread)),
        words=tuple(sorted({word for one in good for word in one.words})),
    )


def team(name: str) -> Graph[Desk]:
    """A lead with its crews: a team, and one node of the director's team."""
    crews = lead.delegates(crew, max_hops=CREWS, brief=Job, report=Review)
    return Graph(name, START >> lead, crews, lead >> END, context=Desk, enter=take_job, output=Review)


gather = Join("gather", reduce=merged)
lanes = START.map(read, over=files, join=gather, max_items=CREW_FILES, failure="collect")
crew = Graph("crew", lanes, gather >> END, context=Desk, enter=take_job, output=Review)
leads = (team("code"), team("docs"), team("tests"))
graph = Graph(
    "repo_review",
    START >> survey >> director,
    director.delegates(*leads, max_hops=1, brief=Job, report=Review, into="reports"),
    director.map(check, over=citations, join=write, max_items=SHOWN * len(WHY) * len(leads), failure="collect"),
    write >> END,
    context=Case,
    output=str,
    budget=Budget(node_runs=4_000, seconds=300),
    max_depth=2,
)


# --- what the effects do outside -----------------------------------------------------------------------------


def walk(folder: str) -> Case:
    """List the files of a folder, the outermost first, and what will not be read.

    Raises:
        FileNotFoundError: if there is no such folder or file.
    """
    root = Path(folder).resolve()
    if root.is_file():
        return Case(folder=folder, root=str(root.parent), files=(root.name,))
    if not root.is_dir():
        raise FileNotFoundError(f"{folder!r} is neither a folder nor a file; name one that is there.")
    files: list[str] = []
    unread: list[Unread] = []
    todo = [""]
    while todo:
        here = todo.pop()
        try:
            entries = list(os.scandir(root / here))
        except OSError as error:
            unread.append(Unread(here or ".", f"folder that cannot be opened ({error.strerror})"))
            continue
        for entry in entries:
            path = here + os.fsencode(entry.name).decode(errors="backslashreplace")
            if reason := why_not(entry, root):
                unread.append(Unread(path, reason))
            else:
                (todo if entry.is_dir() else files).append(path + "/" * entry.is_dir())
    files.sort(key=lambda path: (path.count("/"), path))
    limit = CREWS * CREW_FILES
    unread += [Unread(path, f"over the limit of {limit:,} files") for path in files[limit:]]
    return Case(folder=folder, root=str(root), files=tuple(files[:limit]), unread=tuple(sorted(unread)))


def why_not(entry: os.DirEntry[str], root: Path) -> str:
    """Say why something in a folder is not read, or "" if it is."""
    if entry.name != os.fsencode(entry.name).decode(errors="replace"):
        return "its name is not UTF-8"
    if entry.is_symlink():
        target = Path(os.path.realpath(entry.path))
        where = "within" if target.is_relative_to(root) else "out of"
        return f"symbolic link {where} the folder" if os.path.lexists(target) else "symbolic link to nothing"
    if entry.is_dir():
        hidden = entry.name.startswith(".") or entry.name in ("__pycache__", "node_modules", "site-packages")
        return "folder that is left out" if hidden or os.path.lexists(f"{entry.path}/pyvenv.cfg") else ""
    return "" if entry.is_file() else "neither a file nor a folder"


class Source(NamedTuple):
    """A file under review, with the nodes of its syntax tree where it is Python."""

    root: str
    path: str
    lines: list[str]
    nodes: list[ast.AST]
    error: SyntaxError | None = None


def open_source(root: str, path: str) -> Source:
    """Read a text file, never more of it than allowed, and parse it if it is Python.

    Raises:
        OSError, ValueError, RecursionError, MemoryError: if that cannot be done.
    """
    with Path(root, path).open("rb") as opened:
        data = opened.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES or b"\0" in data:
        raise ValueError(f"larger than {MAX_BYTES:,} bytes" if len(data) > MAX_BYTES else "binary")
    text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    warnings.filterwarnings("ignore", module="<reviewed>")  # what the parser remarks is not about this program
    try:
        with PARSING:
            tree = ast.parse(text if path.endswith(".py") else "", "<reviewed>")
    except SyntaxError as error:
        return Source(root, path, text.split("\n"), [], error)
    return Source(root, path, text.split("\n"), list(ast.walk(tree)))


def inspect(root: str, desk: str, path: str) -> Review:
    """Read a file and apply the rules of a desk to it."""
    found: dict[Finding, None] = {}  # a set that keeps its order
    try:
        source = open_source(root, path)
        names = (PurePosixPath(path).stem, *(one.name for one in public(source)))
        for kind, line, says, size in RULES[desk](source):
            quote = source.lines[line - 1].strip()[:160]
            found[Finding(kind, path, line, quote, says, size, names if kind == "not named by a test" else ())] = None
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        reason = REASONS.get(type(error)) or getattr(error, "strerror", None) or str(error)
        return Review(finding=path, unread=(Unread(path, reason),))
    words = re.findall(r"[^\W\d]\w{2,}", "\n".join(source.lines)) if is_test(path) else ()
    return Review(finding=path, findings=tuple(found), words=tuple(sorted(set(words))))


def holds(root: str, desk: str, finding: Finding, tests: tuple[str, ...]) -> bool:
    """Tell whether a finding is there when its file is read again, and no test settles it."""
    words = {word for test in tests for word in inspect(root, "docs", test).words}
    return finding in inspect(root, desk, finding.path).findings and words.isdisjoint(finding.unless)


# --- the rules: kind of finding, line, what is there, how much of it -----------------------------------------

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Hits: TypeAlias = Iterator[tuple[str, int, str, int]]
PARSING: Final = threading.Lock()  # CPython 3.11 counts the depth of a parse for all threads at once
DEEP: Final = "nested too deeply to be parsed"
REASONS: Final[dict[type, str]] = {UnicodeDecodeError: "not UTF-8", RecursionError: DEEP, MemoryError: DEEP}
RAISES: Final = re.compile(r"(pytest\.|self\.)?(raises|assertRaises)\((?!AssertionError)")
BRANCHES: Final = (ast.If, ast.IfExp, ast.For, ast.While, ast.ExceptHandler, ast.BoolOp, ast.match_case)
MARKER: Final = re.compile(r"[^'\"`]*(?:#|//|/\*|<!--|;)[^'\"`]*\b(?:TO[D]O|FIX[M]E)\b(?!\s*\()(?!.*(?:#\d|://))")
LITERAL: Final = r"(None|True|False|'[\w-]*'|\"[\w-]*\"|-?(?:0|[1-9]\d*)(?:\.\d+)?)(?!\w|\.\w|[\^*/%])"
PROMISE: Final = re.compile(rf"\s*(?::param )?(\w+) ?:.*\b[Dd]efaults?(?: to| is|\s*[=:])?\s*{LITERAL}")
ONCE: Final = "the|an|of|to|is|and|or|for|with|be|are|this|from|by|on|it|as"
DOUBLED: Final = re.compile(rf"(?<![\w.'`-])({ONCE}) \1(?![\w'`-])")
LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s#?:]+)[^):]*\)|(?:image|figure|include)::\s+([^\s:]+)$")


def any_file(source: Source) -> Hits:
    """What can be wrong with any text and any Python."""
    if source.error is not None:
        yield "does not parse", min(source.error.lineno or 1, len(source.lines)), span(source.error.msg), 0
    for number, line in enumerate(source.lines, 1):
        if line.startswith(("<<<<<<< ", ">>>>>>> ")):
            yield "merge conflict", number, "", 0
    blocks = [part for part in source.nodes if isinstance(part, ast.With | ast.Try)]
    guarded = {inner for block in blocks for inner in ast.walk(block)}
    for part in source.nodes:
        if isinstance(part, ast.Expr) and isinstance(part.value, ast.Compare) and part not in guarded:
            yield "lost comparison", part.lineno, "", 0
        elif isinstance(part, ast.With) and RAISES.match(ast.unparse(part.items[0])):
            for late in part.body[1:]:
                if isinstance(late, ast.Assert) and not any(isinstance(one, ast.Call) for one in ast.walk(late)):
                    yield "dead assert", late.lineno, "", 0


def code_rules(source: Source) -> Hits:
    """What can be wrong with code."""
    yield from any_file(source)
    yield from (("left behind", at, "", 0) for at, line in enumerate(source.lines, 1) if MARKER.match(line))
    for part in source.nodes:
        if isinstance(part, ast.ExceptHandler) and all(isinstance(one, ast.Pass) for one in part.body):
            told = "#" in "".join(source.lines[part.lineno - 1 : part.end_lineno])
            if not told and (part.type is None or ast.unparse(part.type) in ("Exception", "BaseException")):
                yield "lost error", part.lineno, "", 0
        elif isinstance(part, ast.Expr) and isinstance(part.value, ast.Call):
            if ast.unparse(part.value.func).endswith(("create_task", "ensure_future")):
                yield "lost task", part.lineno, "", 0
        elif isinstance(part, Function):
            for default in (*part.args.defaults, *part.args.kw_defaults):
                if isinstance(default, ast.List | ast.Dict | ast.Set):
                    yield "shared default", default.lineno, f"{span(part.name)} has it", 0
            branches = sum(isinstance(inner, BRANCHES) for inner in ast.walk(part))
            if branches > TANGLED:
                yield "tangled", part.lineno, f"{span(part.name)} branches {branches} times", branches


def docs_rules(source: Source) -> Hits:
    """What can be wrong with pages and docstrings."""
    python = source.path.endswith(".py")
    if not python:
        yield from any_file(source)
    for function in (part for part in source.nodes if isinstance(part, Function) and ast.get_docstring(part)):
        yield from wrong_defaults(source, function)
    for number, line in prose(source):
        if found := DOUBLED.search(line):
            yield "doubled word", number, f"“{found[0]}”", 0
        for link in () if python else LINK.finditer(re.sub("`[^`]*`", "", line)):
            target = Path(source.root, source.path).parent / unquote(link[1] or link[2])
            if not os.path.lexists(target) and not (link[1] or link[2]).startswith("/"):
                yield "dead link", number, "", 0
    offered = public(source)
    silent = [one for one in offered if ast.get_docstring(one) is None and not one.name.startswith("pytest_")]
    if len(silent) > max(2, len(offered) / 2) and "/_" not in f"/{source.path}":
        says = f"this and others, {len(silent)} of {len(offered)} public names of the module"
        yield "undocumented", silent[0].lineno, says, len(silent)


def wrong_defaults(source: Source, function: Function) -> Hits:
    """Where a docstring names another default than its function has."""
    takes, text = function.args, function.body[0]
    pairs = [*zip([*takes.posonlyargs, *takes.args][::-1], takes.defaults[::-1], strict=False)]
    real = {one.arg: default for one, default in [*pairs, *zip(takes.kwonlyargs, takes.kw_defaults, strict=True)]}
    for number in range(text.lineno, (text.end_lineno or 0) + 1):
        if said := PROMISE.match(source.lines[number - 1]):
            default = real.get(said[1])
            if isinstance(default, ast.Constant) and default.value not in (None, ast.literal_eval(said[2])):
                yield "wrong default", number, f"in {span(function.name)} it is {span(repr(default.value))}", 0


def prose(source: Source) -> Iterator[tuple[int, str]]:
    """The lines that are documentation: docstrings of Python, and pages without their code."""
    texts = [part for part in source.nodes if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)]
    inside = {number for part in texts for number in range(part.lineno, (part.end_lineno or 0) + 1)}
    fenced = False
    for number, line in enumerate(source.lines, 1):
        fenced ^= line.lstrip().startswith(("```", "~~~"))
        if number in inside or not (source.path.endswith(".py") or fenced or line.startswith("    ")):
            yield number, line


def tests_rules(source: Source) -> Hits:
    """What can be wrong with tests, and which modules have none."""
    if is_test(source.path):
        yield from any_file(source)
    elif offered := public(source):
        size = len(offered)
        yield "not named by a test", offered[0].lineno, f"{counted(size, 'public name')} in the module", size


def public(source: Source) -> list[Function | ast.ClassDef]:
    """The functions and classes that a module offers."""
    body = source.nodes[0].body if source.nodes and isinstance(source.nodes[0], ast.Module) else []
    return [one for one in body if isinstance(one, Function | ast.ClassDef) and not one.name.startswith("_")]


def is_test(path: str) -> bool:
    """Tell whether a file belongs to the tests."""
    at = PurePosixPath(path)
    named = at.stem.startswith("test_") or at.stem.endswith("_test") or at.stem == "conftest"
    return named or not {"test", "tests"}.isdisjoint(at.parts[:-1])


def counted(count: int, noun: str) -> str:
    """Write a number of things."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def span(text: str) -> str:
    """Show a text as code in one line, whatever is in it."""
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    fence = "`" * (max(map(len, re.findall("`+", shown)), default=0) + 1)
    pad = " " * (not shown or shown.strip("` ") != shown)
    return f"{fence}{pad}{shown}{pad}{fence}"


RULES: Final[dict[str, Callable[[Source], Hits]]] = {"code": code_rules, "docs": docs_rules, "tests": tests_rules}

if __name__ == "__main__":
    try:
        print(run_sync(graph, Case(folder=sys.argv[1] if sys.argv[1:] else ".")).output)
    except FileNotFoundError as error:
        sys.exit(str(error))
