"""A team reviews any folder: real files, no model, no key, no network.

    graphflow run examples/repo_review.py PATH          # or: python examples/repo_review.py PATH

Supervisors of supervisors: a director delegates to three leads, a lead shares its files out to crews, a crew reads
them in parallel. Reports come back with `path:line` as evidence; at the end each citation is checked once more.
"""

import ast
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
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
    Report,
    State,
    Step,
    Update,
    append,
    node,
    run_sync,
)

CREWS, CREW_FILES, MAX_BYTES, LISTED = 10, 100, 1_000_000, 3  # LISTED: findings of one kind that are shown
LEFT_OUT: Final = frozenset(
    ".git .hg .svn .venv .tox .nox .eggs .idea .hypothesis .mypy_cache .pytest_cache .ruff_cache __pycache__ "
    "node_modules site-packages".split()
)


class Unread(NamedTuple):
    """Something that nobody read, and why."""

    path: str
    reason: str
    count: int = 1


class Finding(NamedTuple):
    """One thing to look at; a test that names one of the words in `unless` settles it."""

    rule: str
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


# --- the team --------------------------------------------------------------------------------------------------------


@node
async def survey(state: State[Case], step: Step) -> Update:
    """List the files of the folder."""
    found = await step.effect("walk", walk, state.context.folder)
    return Update(root=found.root, files=found.files, unread=found.unread)


@node
def director(state: State[Case]) -> Delegate | None:
    """Give each lead the files that are its business; the reports come back into the context."""
    case = state.context
    if state.turn == 0:
        return Delegate(*(Call(desk, assignment(case, desk)) for desk in RULES))
    return None


@node
def lead(state: State[Desk]) -> Delegate | Review:
    """Share the files out to crews; when they are back, report the first findings of each kind."""
    job = state.context.job
    shares = [job.sources[at : at + CREW_FILES] for at in range(0, len(job.sources), CREW_FILES)]
    if shares and state.turn == 0:
        return Delegate(*(Call("crew", job.model_copy(update={"sources": share})) for share in shares))
    notes = merged(zip(shares, state.values, strict=False))
    named = set(notes.words)
    kept = sorted(
        (finding for finding in notes.findings if not named.intersection(finding.unless)),
        key=lambda finding: (-finding.size, finding.path, finding.line),
    )
    kinds = [[finding for finding in kept if finding.rule == rule] for rule in WHY]
    listed = tuple(finding for kind in kinds for finding in kind[:LISTED])
    return Review(
        finding=f"{counted(len(kept), 'finding')} in {counted(len(job.sources) - len(notes.unread), 'file')}",
        action_needed=f"Begin with {listed[0].path}:{listed[0].line}." if listed else None,
        evidence=tuple(dict.fromkeys(f"{finding.path}:{finding.line}" for finding in listed)),
        findings=listed,
        unread=notes.unread,
        more=tuple((kind[0].rule, len(kind) - LISTED) for kind in kinds if len(kind) > LISTED),
    )


@node
async def read(state: State[Desk], step: Step) -> Review:
    """Read one file and apply the desk's rules to it."""
    job = state.context.job
    return await step.effect("inspect", inspect, job.root, job.desk, state.inbox[0].value)


@node
def gather(state: State[Desk]) -> Review:
    """Put together what a crew found, in the order of its files."""
    return merged(zip(((path,) for path in state.context.job.sources), state.values, strict=True))


@node
async def check(state: State[Case], step: Step) -> Finding | None:
    """Check one citation: read its file again, and every test that could settle it."""
    desk, finding = state.inbox[0].value
    tests = tuple(path for path in state.context.files if finding.unless and is_test(path))
    return finding if await step.effect("verify", holds, state.context.root, desk, finding, tests) else None


@node
def write(state: State[Case]) -> str:
    """Write the report, in Markdown."""
    case, verified = state.context, set(state.values)
    struck = len(citations(state)) - len(verified)
    lines = [
        f"# Review of {span(case.folder)}",
        "",
        f"{counted(len(verified), 'finding')} listed, each checked against",
    ]
    lines[-1] += f" its file once more; {struck} struck out. {counted(len(case.files), 'file')} looked at."
    unread = set(case.unread)
    for desk, review in zip(RULES, case.reports, strict=False):
        lines += ["", f"## {desk.capitalize()}: {review.finding or (review.reason and review.reason.text)}"]
        if isinstance(review, Review):
            lines += section(review, verified)
            unread.update(review.unread)
    reasons = sorted({found.reason for found in unread})
    lines += ["", "## Not read", ""] + ["Nothing was left out."] * (not reasons)
    for reason in reasons:
        group = sorted(found for found in unread if found.reason == reason)
        names = ", ".join(f"{span(at)}{f' ({count})' * (count > 1)}" for at, _, count in group[:10])
        rest = f" and {len(group) - 10} more" if len(group) > 10 else ""
        lines.append(f"- {sum(found.count for found in group)} × {reason}: {names}{rest}")
    return "\n".join(lines) + "\n"


def sources(state: State[Desk]) -> tuple[str, ...]:
    """A lane for each file of a crew."""
    return state.context.job.sources


def citations(state: State[Case]) -> tuple[tuple[str, Finding], ...]:
    """A lane for each citation of a lead."""
    found = zip(RULES, state.context.reports, strict=False)
    return tuple(
        (desk, each) for desk, review in found if isinstance(review, Review) for each in review.findings
    )


def take_job(state: State[Any]) -> Desk:
    """What a lead and a crew begin with: the brief that they were given."""
    return Desk.model_validate({"job": state.brief})


def desk(name: str) -> Graph[Desk]:
    """A lead with its crews: a team, and one node of the director's team."""
    crews = lead.delegates(crew, max_hops=CREWS, brief=Job, report=Review)
    return Graph(name, START >> lead, crews, lead >> END, context=Desk, enter=take_job, output=Review)


# --- what the effects do outside -------------------------------------------------------------------------------------


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
            unread.append(Unread(here or ".", f"folder that cannot be opened: {error.strerror}"))
            continue
        for entry in entries:
            if reason := why_not(entry, root):
                unread.append(
                    Unread(os.fsencode(here + entry.name).decode(errors="backslashreplace"), reason)
                )
            else:
                (todo if entry.is_dir() else files).append(here + entry.name + "/" * entry.is_dir())
    files.sort(key=lambda path: (path.count("/"), path))
    limit = CREWS * CREW_FILES
    beyond = Counter(f"{PurePosixPath(path).parent}/" for path in files[limit:])
    unread += [Unread(at, f"over the limit of {limit} files", count) for at, count in beyond.items()]
    return Case(folder=folder, root=str(root), files=tuple(files[:limit]), unread=tuple(sorted(unread)))


def why_not(entry: os.DirEntry[str], root: Path) -> str:
    """Say why something in a folder is not read, or "" if it is."""
    try:
        entry.name.encode()
        if entry.is_symlink():
            inside = Path(entry.path).resolve(strict=True).is_relative_to(root)
            return f"symbolic link {'within' if inside else 'out of'} the folder"
        if entry.is_dir() and (entry.name in LEFT_OUT or Path(entry.path, "pyvenv.cfg").is_file()):
            return "folder that is left out, with all that is in it"
        return "" if entry.is_dir() or entry.is_file() else "neither a file nor a folder"
    except UnicodeError:
        return "its name is not UTF-8"
    except (OSError, RuntimeError):
        return "symbolic link to nothing"


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
    warnings.filterwarnings("ignore", module="<under review>")  # what the parser says of it is not about us
    try:
        tree = ast.parse(text if path.endswith(".py") else "", "<under review>")
    except SyntaxError as error:
        return Source(root, path, text.split("\n"), [], error)
    return Source(root, path, text.split("\n"), list(ast.walk(tree)))


def inspect(root: str, desk: str, path: str) -> Review:
    """Read a file and apply the rules of a desk to it."""
    found: dict[Finding, None] = {}  # a set that keeps its order
    try:
        source = open_source(root, path)
        unless = (PurePosixPath(path).stem, *(one.name for one in public(source))) if desk == "tests" else ()
        for rule, line, says, size in RULES[desk](source):
            quote = source.lines[line - 1].strip()[:160]
            found[Finding(rule, path, line, quote, says, size, unless if rule == "untested" else ())] = None
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        reason = REASONS.get(type(error)) or getattr(error, "strerror", None) or str(error)
        return Review(finding=path, unread=(Unread(path, reason),))
    words = re.findall(r"[^\W\d]\w{2,}", "\n".join(source.lines)) if is_test(path) else ()
    return Review(finding=path, findings=tuple(found), words=tuple(sorted(set(words))))


def holds(root: str, desk: str, finding: Finding, tests: tuple[str, ...]) -> bool:
    """Tell whether a finding is there when its file is read again, and no test settles it."""
    words = {word for test in tests for word in inspect(root, "docs", test).words}
    return finding in inspect(root, desk, finding.path).findings and words.isdisjoint(finding.unless)


# --- the rules of each desk: kind of finding, line, what is there, and how much of it ---------------------------------

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Hits: TypeAlias = Iterator[tuple[str, int, str, int]]
REASONS: Final = {
    UnicodeDecodeError: "not UTF-8",
    RecursionError: "nested too deeply",
    MemoryError: "nested too deeply",
}
BRANCHES: Final = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.BoolOp,
    ast.match_case,
)
MARKER: Final = re.compile(r"(?:#|//|/\*|<!--|;)[^'\"`]*\b(?:TO[D]O|FIX[M]E)\b(?!\s*\()(?!.*(?:#\d|://))")
TASKS: Final = ("create_task", "ensure_future")
LITERAL: Final = r"(None|True|False|'[\w-]*'|\"[\w-]*\"|-?(?:0|[1-9]\d*)(?:\.\d+)?)(?!\w|\.\w|[\^*/%])"
PARAMETER: Final = re.compile(
    rf"\s*(?::param )?(\w+) ?:(?:.*\b[Dd]efaults?(?: to| is|\s*[=:])?\s*{LITERAL})?"
)
DOUBLED: Final = re.compile(
    r"(?<![\w.'`-])(the|an|of|to|is|and|or|for|with|be|are|this|from|by|on|it|as) \1(?![\w'`-])"
)
LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s#?:]+)[^):]*\)|(?:image|figure|include)::\s+([^\s:]+)$")
WHY: Final = {  # the heaviest kind first
    "does not parse": "Python cannot import this file. Correct it, or say which version it is for.",
    "merge conflict": "A merge was not finished. Keep one side.",
    "lost comparison": "The result is thrown away, so nothing can fail here. Assert it, or delete the line.",
    "dead assert": "The block ends when the error is raised, so this never runs. Move it out of the block.",
    "lost error": "Every error ends here without a word. Name those that you expect, or say why in a comment.",
    "lost task": "Nothing keeps this task: it may vanish before it is done, its error with it. Keep a reference.",
    "shared default": "All calls share this one value. Use None, and make a new one in the body.",
    "literal identity": "`is` asks for the same object, not for an equal one. Write `==`.",
    "evaluated code": "Whoever controls this text controls the program. Call what is meant, or parse it.",
    "wrong default": "Callers believe the docstring. Correct the one of the two that is wrong.",
    "dead link": "It leads nowhere. Correct the path.",
    "doubled word": "A slip. Delete one of the two.",
    "undocumented": "Readers have to guess what these promise. Write a sentence for each.",
    "untested": "No test in this folder names this module or anything public in it. Begin with a test for this one.",
    "unexplained skip": "Nobody will know when it can run again. Give a reason.",
    "sleep": "It is slow, and still fails on a busy machine. Wait for the event, or use a clock of your own.",
    "tangled": "More ways through than one can hold in mind or test. Take inner parts out and give them names.",
    "left behind": "Somebody meant to come back. Do it, or write an issue and name it here.",
}


def shared(source: Source) -> Hits:
    """What is wrong in a text of any kind, and in Python of any kind."""
    if source.error is not None:
        version = f"Python {sys.version_info.major}.{sys.version_info.minor}"
        yield (
            "does not parse",
            min(source.error.lineno or 1, len(source.lines)),
            f"{version}: {source.error.msg}",
            0,
        )
    for number, line in enumerate(source.lines, 1):
        if line.startswith(("<<<<<<< ", ">>>>>>> ")):
            yield "merge conflict", number, "", 0
    guarded = {part for block in source.nodes if isinstance(block, ast.With) for part in ast.walk(block)}
    for part in source.nodes:
        match part:
            case ast.Expr(value=ast.Compare()) if part not in guarded:
                yield "lost comparison", part.lineno, "", 0
            case ast.With(items=[item], body=[_, *late]) if "raises(" in ast.unparse(item):
                for line in late:
                    if isinstance(line, ast.Assert):
                        yield "dead assert", line.lineno, "", 0
            case ast.Compare(
                ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=str() | bytes() | float())]
            ):
                yield "literal identity", part.lineno, "", 0
            case _:
                pass


def code_rules(source: Source) -> Hits:
    """What is wrong with code."""
    yield from shared(source)
    for number, line in enumerate(source.lines, 1):
        if MARKER.search(line):
            yield "left behind", number, "", 0
    for part in source.nodes:
        match part:
            case ast.ExceptHandler(
                type=None | ast.Name(id="Exception" | "BaseException"), body=[ast.Pass() | ast.Continue()]
            ) if "#" not in "".join(source.lines[part.lineno - 1 : part.end_lineno]):
                yield "lost error", part.lineno, "", 0
            case ast.Expr(value=ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name))) if name in TASKS:
                yield "lost task", part.lineno, "", 0
            case ast.arguments(defaults=defaults, kw_defaults=others):
                for default in (*defaults, *others):
                    if isinstance(default, ast.List | ast.Dict | ast.Set):
                        yield "shared default", default.lineno, "", 0
            case ast.Call(func=ast.Name(id="eval" | "exec"), args=[argument, *_]) if not isinstance(
                argument, ast.Constant
            ):
                yield "evaluated code", part.lineno, "", 0
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                branches = sum(isinstance(inner, BRANCHES) for inner in ast.walk(part))
                if branches > 30:
                    yield "tangled", part.lineno, f"`{name}` branches {branches} times", branches
            case _:
                pass


def docs_rules(source: Source) -> Hits:
    """What is wrong with docstrings and pages."""
    if not source.path.endswith(".py"):
        yield from shared(source)
    for part in source.nodes:
        if isinstance(part, Function):
            yield from wrong_defaults(source, part)
    for number, line in prose(source):
        if found := DOUBLED.search(line):
            yield "doubled word", number, f"“{found[0]}”", 0
        for link in LINK.finditer(line) if not source.path.endswith(".py") else ():
            target = unquote(link[1] or link[2])
            if not os.path.lexists(Path(source.root, source.path).parent / target) and not target.startswith(
                "/"
            ):
                yield "dead link", number, f"there is no {span(target)}", 0
    missing = [
        one for one in public(source) if ast.get_docstring(one) is None and not one.name.startswith("pytest_")
    ]
    if "/_" not in f"/{source.path}".replace("__init__", "") and 2 < len(missing) > len(public(source)) / 2:
        count = f"this and others, {len(missing)} of {len(public(source))} public names of the module"
        yield "undocumented", missing[0].lineno, count, len(missing)


def wrong_defaults(source: Source, function: Function) -> Hits:
    """Where a docstring names another default than its function has."""
    match function.body[0]:
        case ast.Expr(value=ast.Constant(value=str())) as text:
            named = [*function.args.posonlyargs, *function.args.args]
            pairs = [*zip(named[::-1], function.args.defaults[::-1], strict=False)]
            pairs += zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
            real = {one.arg: default.value for one, default in pairs if isinstance(default, ast.Constant)}
            for number in range(text.lineno, (text.end_lineno or text.lineno) + 1):
                said = PARAMETER.match(source.lines[number - 1])
                if (
                    said
                    and said[2]
                    and (value := real.get(said[1])) is not None
                    and value != ast.literal_eval(said[2])
                ):
                    yield (
                        "wrong default",
                        number,
                        f"`{said[1]}` of `{function.name}` is {value!r} by default",
                        0,
                    )
        case _:
            pass


def prose(source: Source) -> Iterator[tuple[int, str]]:
    """The lines that are documentation: docstrings of Python, and pages without their code."""
    texts = [
        part for part in source.nodes if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)
    ]
    inside = {number for part in texts for number in range(part.lineno, (part.end_lineno or part.lineno) + 1)}
    fenced = False
    for number, line in enumerate(source.lines, 1):
        fenced ^= line.lstrip().startswith(("```", "~~~"))
        if number in inside or not (source.path.endswith(".py") or fenced or line.startswith("    ")):
            yield number, line


def tests_rules(source: Source) -> Hits:
    """What is wrong with tests, and which modules have none."""
    if not is_test(source.path):
        for first in public(source)[:1]:
            yield (
                "untested",
                first.lineno,
                f"{counted(len(public(source)), 'public name')} here",
                len(public(source)),
            )
        return
    yield from shared(source)
    for part in source.nodes:
        match part:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="time"), attr="sleep")):
                yield "sleep", part.lineno, "", 0
            case ast.FunctionDef(decorator_list=marks) | ast.ClassDef(decorator_list=marks):
                for mark in marks:
                    if ast.unparse(mark).removesuffix("()") in (
                        "pytest.mark.skip",
                        "pytest.mark.xfail",
                        "unittest.skip",
                    ):
                        yield "unexplained skip", mark.lineno, "", 0
            case _:
                pass


def public(source: Source) -> list[Function | ast.ClassDef]:
    """The functions and classes that a module offers."""
    body = source.nodes[0].body if source.nodes and isinstance(source.nodes[0], ast.Module) else []
    return [one for one in body if isinstance(one, Function | ast.ClassDef) and not one.name.startswith("_")]


# --- small words -----------------------------------------------------------------------------------------------------


def is_test(path: str) -> bool:
    """Tell whether a file belongs to the tests."""
    at = PurePosixPath(path)
    named = at.name == "conftest.py" or at.stem.startswith("test_") or at.stem.endswith("_test")
    return named or not {"test", "tests"}.isdisjoint(at.parts[:-1])


def assignment(case: Case, desk: str) -> Job:
    """The job of a lead: tests read tests and, for what they leave out, all modules; docs read pages and docstrings."""
    wanted = {
        "code": lambda path: not is_test(path) and not path.endswith((".md", ".rst")),
        "docs": lambda path: not is_test(path) and path.endswith((".md", ".rst", ".py")),
        "tests": lambda path: is_test(path) or path.endswith(".py"),
    }[desk]
    files = tuple(filter(wanted, case.files))
    return Job(objective=f"Review the {desk} of {case.root}", desk=desk, root=case.root, sources=files)


def merged(parts: Iterable[tuple[tuple[str, ...], Any]]) -> Review:
    """Put reviews together; where a reader failed, its files are unread."""
    done = [(paths, part) for paths, part in parts]
    good = [part for _, part in done if isinstance(part, Review)]
    failed = [
        Unread(at, part.reason.text) for paths, part in done if not isinstance(part, Review) for at in paths
    ]
    return Review(
        finding="merged",
        findings=tuple(found for part in good for found in part.findings),
        unread=(*(found for part in good for found in part.unread), *failed),
        words=tuple(sorted({word for part in good for word in part.words})),
    )


def counted(count: int, noun: str) -> str:
    """Write a number of things."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def span(text: str) -> str:
    """Show a text as code in one line, whatever is in it."""
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    fence = "`" * (max(map(len, re.findall("`+", shown)), default=0) + 1)
    pad = " " * (len(fence) > 1 or not shown.strip())
    return f"{fence}{pad}{shown}{pad}{fence}"


def section(review: Review, verified: set[object]) -> Iterator[str]:
    """The part of the report for one lead."""
    more = dict(review.more)
    for rule in WHY:
        kept = [found for found in review.findings if found.rule == rule and found in verified]
        if kept:
            yield from ("", f"### {rule.capitalize()}", "", WHY[rule], "")
            for found in kept:
                yield f"- {span(f'{found.path}:{found.line}')}{found.says and ': '}{found.says}"
                yield f"  {span(found.quote)}"
            if rule in more:
                yield f"- and {more[rule]:,} more like these"


RULES: Final[dict[str, Callable[[Source], Hits]]] = {
    "code": code_rules,
    "docs": docs_rules,
    "tests": tests_rules,
}

crew = Graph(
    "crew",
    START.map(read, over=sources, join=gather, max_items=CREW_FILES, failure="collect"),
    gather >> END,
    context=Desk,
    enter=take_job,
    output=Review,
)
code, docs, tests = desk("code"), desk("docs"), desk("tests")
graph = Graph(
    "repo_review",
    START >> survey >> director,
    director.delegates(code, docs, tests, max_hops=1, brief=Job, report=Review, into="reports"),
    director.map(
        check, over=citations, join=write, max_items=LISTED * len(WHY) * len(RULES), failure="collect"
    ),
    write >> END,
    context=Case,
    output=str,
    budget=Budget(node_runs=4_000, seconds=300),
    max_depth=2,
)

if __name__ == "__main__":
    print(run_sync(graph, Case(folder=sys.argv[1])).output)
