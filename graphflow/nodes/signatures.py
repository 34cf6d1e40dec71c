"""What a model must know of a function to call it: parameters from its signature and docstring, and their values."""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from graphflow.errors import UsageError
from graphflow.model.hiding import HidingSchema
from graphflow.model.secrets import holds_secret, secret_fields
from graphflow.model.telling import value_text

_HALF: Final = 900  # characters of what is wrong, and as many of what is wanted
_SHOWN: Final = 8  # complaints in one text
_DEPTH: Final = 3  # of nested objects that are spelled out
_VALUE_CAP: Final = 60


class Parameters:
    """What a function takes from a model.

    Attributes:
        home: the function whose annotations and docstring count.
        json: the JSON schema, as text, as it is known by.
        shown: the same as a model sees it, without defaults that are secrets.
        hidden: the names of those that are marked as secrets.
        step: the name of the parameter that takes what is injected, or None.
        unbound: whether the function is a method that still needs its object.
    """

    __slots__ = ("_model", "_schema", "hidden", "home", "json", "shown", "step", "unbound")

    def __init__(self, home: Any, model: type[BaseModel], step: str | None, *, unbound: bool) -> None:
        """Write down the schema."""
        self.home, self.step, self.unbound = home, step, unbound
        self._model, self._schema = model, _schema(model)
        self.json = self.shown = json.dumps(self._schema, ensure_ascii=False)
        self.hidden = frozenset(model.model_fields[name].alias or name for name in secret_fields(model))
        if holds_secret(model):
            self.shown = json.dumps(_schema(model, _HidingSchema), ensure_ascii=False)

    def read(self, name: str, text: str, *, whole: bool = False) -> dict[str, Any]:
        """Read arguments from a text that may be anything.

        Args:
            name: what the tool is called.
            text: the arguments.
            whole: whether defaults that are secrets are told, as in runs of older editions.

        Raises:
            ValueError: naming the tool, what is wrong with each argument, and what is wanted.
        """
        try:
            given = text if text.strip() else "{}"
            return self._fitting(given, _check_json(given))
        except ValidationError as error:
            raise self._refused(name, whole, _complaints(error)) from None
        except json.JSONDecodeError as error:
            near = _brief(text[max(error.pos - 20, 0) : error.pos + 20])
            wrong = f"they are no JSON: {error.msg.removesuffix(' at')} at character {error.pos}, near {near}"
            raise self._refused(name, whole, [wrong]) from None
        except Misfits as error:
            raise self._refused(name, whole, error.wrong) from None
        except RecursionError:  # of a validator
            raise self._refused(name, whole, ["they are nested too deeply"]) from None
        except Exception as error:  # a validator of the user may raise anything
            kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
            raise self._refused(name, whole, [f"{kind}{error}"]) from error

    def _fitting(self, text: str, found: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - a given schema takes it
        """Return the arguments, as text and as plain JSON, as the function takes them."""
        made = self._model.model_validate_json(text)
        return {info.alias or field: made.__dict__[field] for field, info in self._model.model_fields.items()}

    def _refused(self, name: str, whole: bool, wrong: Sequence[str]) -> ValueError:  # noqa: FBT001 - private
        schema = self._schema if whole or self.shown is self.json else json.loads(self.shown)
        shown = [*wrong[:_SHOWN], *([f"and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else [])]
        said = _cut(" ".join("; ".join(shown).split()), _HALF)
        wanted = _cut(_object_text(schema, schema.get("$defs", {}), _DEPTH), _HALF)
        text = f"the arguments of {name!r} do not fit: {said}. Wanted: {wanted}."
        return ValueError(text.encode("utf-8", "backslashreplace").decode())


class Misfits(Exception):
    """What is wrong with arguments, a text for each complaint."""

    def __init__(self, wrong: Sequence[str]) -> None:
        """Keep the complaints."""
        self.wrong = wrong
        super().__init__("; ".join(wrong))


# --- what a model wrote ----------------------------------------------------------------------------------------------


def _check_json(text: str) -> dict[str, Any]:
    """Read an object, and refuse what means nothing or two things: NaN, infinity, a name that comes twice.

    Raises:
        ValueError: saying so.
    """
    check_depth(text)
    found = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number, parse_float=_finite, parse_int=_whole)
    if not isinstance(found, dict):
        kind = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}.get(
            cast("Any", type(found)), "a number"
        )
        msg = f"they are {kind}, not an object"
        raise ValueError(msg)  # noqa: TRY004 - it is the text that is wrong
    return cast("dict[str, Any]", found)


DEEPEST: Final = 100
"""How many arrays and objects of a model's JSON may stand inside each other."""

_TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)


def check_depth(text: str) -> None:
    """Refuse JSON that is nested deeper than a fixed limit.

    Python's own limit is what is left of the stack, which another process, and another thread, has more or less of:
    what is decided by it is decided otherwise when a run is folded again.

    Raises:
        ValueError: if it is nested too deeply.
    """
    if text.count("[") + text.count("{") <= DEEPEST:
        return
    depth = 0
    for found in _TOKENS.finditer(text):
        mark = found[0]
        depth += (mark in "[{") - (mark in "]}")
        if depth > DEEPEST:
            msg = "they are nested too deeply"
            raise ValueError(msg)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            msg = f"{_brief(key)} is given twice"
            raise ValueError(msg)
        found[key] = value
    return found


def _no_number(text: str) -> float:
    msg = f"{text} is no JSON number"
    raise ValueError(msg)


def _finite(text: str) -> float:
    return found if math.isfinite(found := float(text)) else _no_number(_cut(text, _VALUE_CAP))


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:  # Python has a limit, and tells the reader how to raise it
        msg = f"a number of {len(text)} digits is too long"
        raise ValueError(msg) from None


def _complaints(error: ValidationError) -> list[str]:
    found: list[str] = []
    for one in error.errors(include_url=False, include_context=False):
        where = f"{_cut(_place(one['loc']), 2 * _VALUE_CAP)}: " if one["loc"] else ""
        match one["type"]:
            case "missing":
                found.append(f"{where}is missing")
            case "extra_forbidden":
                found.append(f"{where}is not known")
            case "json_invalid" | "string_unicode":
                found.append(f"they are no JSON: {one['msg'].removeprefix('Invalid JSON: ')}")
            case _:
                found.append(f"{where}{_cut(one['msg'], 300)} (given {_brief(one['input'])})")
    return found


def _place(steps: tuple[int | str, ...]) -> str:
    """Write where in the arguments something is; names that are odd are quoted."""
    found = ""
    for step in steps:
        if isinstance(step, int):
            found += f"[{step}]"
        else:
            found += f"{'.' if found else ''}{step if step.isprintable() else json.dumps(step)}"
    return found


def _brief(value: Any) -> str:
    """Write a value that may be long, or no JSON, as a short text."""
    return _cut(json.dumps(value, default=lambda odd: type(odd).__name__), _VALUE_CAP)


def _cut(text: str, cap: int) -> str:
    return text if len(text) <= cap else f"{text[: cap - 1]}…"


def _object_text(schema: Mapping[str, Any], known: Mapping[str, Any], depth: int) -> str:
    required = schema.get("required", ())
    parts: list[str] = []
    for name, part in schema.get("properties", {}).items():
        default = f"default {_brief(part['default'])}" if isinstance(part, Mapping) and "default" in part else ""
        more = "required" if name in required else default
        parts.append(f"{json.dumps(name)}: {_type_text(part, known, depth)}{f' ({more})' if more else ''}")
    return "{" + ", ".join(parts) + "}"


def _type_text(given: Any, known: Mapping[str, Any], depth: int) -> str:
    if not isinstance(given, Mapping):  # a schema may be True: anything
        return "any JSON"
    schema = cast("Mapping[str, Any]", given)
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        # One less, for a definition may lead to itself.
        return _type_text(known[name], known, depth - ("$ref" in known[name])) if name in known and depth > 0 else name
    if "enum" in schema:
        return " or ".join(_brief(value) for value in schema["enum"])
    if "const" in schema:
        return _brief(schema["const"])
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return " or ".join(dict.fromkeys(_type_text(part, known, depth - 1) for part in schema[choice]))
    kind = schema.get("type", "any JSON")
    if kind == "array" and schema.get("items") and depth > 0:
        return f"array of {_type_text(schema['items'], known, depth - 1)}"
    if kind == "object" and schema.get("properties") and depth > 0:
        return _object_text(schema, known, depth - 1)
    kind = " or ".join(map(str, cast("list[Any]", kind))) if isinstance(kind, list) else str(kind)
    return f"{kind} ({schema['format']})" if "format" in schema else kind


# --- the schema ------------------------------------------------------------------------------------------------------


class _Schema(GenerateJsonSchema):
    """Without the titles that only repeat names; a default that is no JSON is left out, and not warned of."""

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic calls it so
        """Leave the titles of fields out."""
        return False

    def encode_default(self, dft: Any) -> Any:
        """Put the items of a set in an order, for its own is that of their hashes."""
        found = super().encode_default(dft)
        return sorted(found, key=json.dumps) if isinstance(dft, (set, frozenset)) else found


class _HidingSchema(HidingSchema, _Schema):
    """The same without defaults that are secrets."""


def _schema(model: type[BaseModel], generator: type[GenerateJsonSchema] = _Schema) -> dict[str, Any]:
    found = model.model_json_schema(schema_generator=generator)
    for name, part in {**found.get("$defs", {}), found.get("title", ""): found}.items():
        if part.get("title") == name:
            del part["title"]
    return {"type": "object", "properties": {}, **found}


# --- the signature ---------------------------------------------------------------------------------------------------


def home_of(fn: Any) -> Any:
    """Return the function whose annotations and docstring count for a callable."""
    while isinstance(fn, functools.partial):
        fn = cast("functools.partial[Any]", fn).func
    fn = fn if inspect.isroutine(fn) else getattr(cast("Any", type(fn)), "__call__", fn)  # noqa: B004 - the method is wanted
    return inspect.unwrap(getattr(fn, "__func__", fn))


def parameters_of(fn: Any, name: str, injected: type, *, static: bool = False) -> Parameters:
    """Read a function's signature and docstring.

    Args:
        fn: the function.
        name: the tool's name, for errors.
        injected: the parameter with this annotation is not the model's.
        static: whether it is a function though it stands in a class.

    Raises:
        UsageError: if it cannot be called by keyword with JSON values, naming the parameter.
    """
    home = home_of(fn)
    if any(is_kind(one) for one in (fn, home) for is_kind in (inspect.isasyncgenfunction, inspect.isgeneratorfunction)):
        msg = f"tool {name!r}: its function is a generator; a tool returns one value, and step.emit(...) says more."
        raise UsageError(msg)
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError) as error:
        msg = f"tool {name!r}: nothing is known of the parameters of {value_text(fn)} ({error}); wrap it in a function."
        raise UsageError(msg) from error
    parameters = list(signature.parameters.values())
    unbound = not static and _needs_object(fn, name, parameters)
    fixed = cast("functools.partial[Any]", fn).keywords if isinstance(fn, functools.partial) else {}
    described = descriptions(inspect.getdoc(home) or "")
    around = _names_around(home)
    step: str | None = None
    fields: dict[str, Any] = {}
    for parameter in parameters[unbound:]:
        if parameter.name in fixed:
            continue
        annotation = _annotation(parameter, name, home, around, injected)
        if _is_injected(annotation, injected):
            if step is not None:
                msg = f"tool {name!r}: {step!r} and {parameter.name!r} are both a {injected.__name__}; one is enough."
                raise UsageError(msg)
            step = parameter.name
        else:
            fields[f"a{len(fields)}"] = _field(parameter, annotation, described.get(parameter.name))
    return Parameters(home, _model(name, fields, injected), step, unbound=unbound)


def _is_injected(annotation: Any, injected: type) -> bool:
    several = typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated)
    return annotation is injected or (several and injected in typing.get_args(annotation))


def _needs_object(fn: Any, name: str, parameters: list[inspect.Parameter]) -> bool:
    """Tell whether a function is a method without its object: `self` comes first, and has no annotation."""
    if not inspect.isfunction(fn) or not parameters or parameters[0].annotation is not inspect.Parameter.empty:
        return False
    if parameters[0].name == "self":
        return True
    outer = fn.__qualname__.rpartition(".")[0]
    if outer and not outer.endswith("<locals>"):
        msg = (
            f"tool {name!r}: the first parameter of a method is called 'self', not {parameters[0].name!r}. A static "
            f"method annotates it; of a class method, make the tool later: tool(Class.{fn.__name__})."
        )
        raise UsageError(msg)
    return False


def _annotation(parameter: inspect.Parameter, name: str, home: Any, around: Mapping[str, Any], injected: type) -> Any:
    if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        kind = "is positional-only" if parameter.kind is parameter.POSITIONAL_ONLY else "takes any number of arguments"
        msg = f"tool {name!r}: {str(parameter)!r} {kind}; a model gives arguments by name, so name each of them."
        raise UsageError(msg)
    if parameter.annotation is parameter.empty:
        return Any
    holder: Any = types.SimpleNamespace(__annotations__={"it": parameter.annotation})
    names = {injected.__name__: injected, **getattr(home, "__globals__", {})}
    try:
        return typing.get_type_hints(holder, names, dict(around), include_extras=True)["it"]
    except Exception as error:  # annotations are code
        msg = (
            f"tool {name!r}: the annotation {parameter.annotation!r} of {parameter.name!r} cannot be read "
            f"({type(error).__name__}: {error}); define or import what it names before the tool."
        )
        raise UsageError(msg) from error


def _names_around(home: Any) -> dict[str, Any]:
    """Return the local names of the functions and classes that a definition stands in, as far as they are running.

    Annotations that are texts may name them, and the function itself does not know them.
    """
    found: dict[str, Any] = {}
    place = getattr(home, "__qualname__", "")
    frame = inspect.currentframe() if "." in place else None
    while frame is not None:
        if frame.f_globals is getattr(home, "__globals__", None) and place.startswith(f"{frame.f_code.co_qualname}."):
            found = {**frame.f_locals, **found}
        frame = frame.f_back
    return found


def _field(parameter: inspect.Parameter, annotation: Any, description: str | None) -> tuple[Any, Any]:
    """Return the model's field of a parameter; its own name is an alias, since models forbid some names."""
    default = ... if parameter.default is parameter.empty else parameter.default
    given = (*getattr(annotation, "__metadata__", ()), default)
    if any(isinstance(one, FieldInfo) and one.description is not None for one in given):
        description = None
    field = Field(alias=parameter.name) if description is None else Field(alias=parameter.name, description=description)
    return (typing.Annotated[(annotation, field)], default)


def _model(name: str, fields: dict[str, Any], injected: type) -> Any:
    try:
        return _made(name, fields)
    except Exception as error:
        alone = {one: fields[one] for one in fields if not _is_json({one: fields[one]})} or fields
        blamed = ", ".join(repr(field[0].__metadata__[-1].alias) for field in alone.values())
        reason = str(error).partition("\n")[0].partition(". ")[0].removesuffix(".")
        msg = (
            f"tool {name!r}: {blamed} cannot be given as JSON: {reason}. Annotate plain types, pydantic models, "
            f"dataclasses or enums; {injected.__name__} for what the run gives."
        )
        raise UsageError(msg) from error


def _made(name: str, fields: dict[str, Any]) -> Any:
    make: Any = create_model
    made = make(name, __config__=ConfigDict(extra="forbid", protected_namespaces=()), **fields)
    _schema(made)
    return made


def _is_json(fields: dict[str, Any]) -> bool:
    try:
        _made("part", fields)
    except Exception:  # noqa: BLE001 - whatever it was, the whole has been refused for it
        return False
    return True


# --- the docstring ---------------------------------------------------------------------------------------------------

_HEADING: Final = re.compile(r"[A-Z][a-z]+( [A-Za-z]+)?:")
_ENTRY: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\)\s*)?:(.*)", re.DOTALL)


def first_paragraph(home: Any) -> str:
    """Return the first paragraph of a function's docstring, on one line."""
    return " ".join((inspect.getdoc(home) or "").strip().partition("\n\n")[0].split())


def descriptions(doc: str) -> dict[str, str]:
    """Read the descriptions of parameters, or of a class's fields, from a docstring in Google style.

    >>> descriptions('''Pay back.
    ...
    ... Args:
    ...     invoice (str): its number,
    ...         such as INV-311.
    ...     amount: in dollars.
    ...
    ... Returns:
    ...     nothing: at all.
    ... ''')
    {'invoice': 'its number, such as INV-311.', 'amount': 'in dollars.'}
    """
    entries: list[str] = []
    inside: int | None = None  # how far the heading is indented
    depth: int | None = None  # how far the entries are
    for number, line in enumerate(doc.splitlines()):
        text, indent = line.strip(), len(line) - len(line.lstrip())
        if not text:
            continue
        heading = indent == 0 and _HEADING.fullmatch(text)
        if inside is not None and indent > inside and not heading:
            depth = indent if depth is None else depth
            if indent <= depth:
                entries.append(text)
            else:
                entries[-1] += f" {text}"
        else:
            inside = None
            if text in ("Args:", "Arguments:", "Parameters:", "Attributes:"):
                # Where a docstring begins with it, cleaning has taken the indentation of the entries away.
                inside, depth = indent if number else -1, None
    found = (_ENTRY.fullmatch(entry) for entry in entries)
    return {entry[1]: " ".join(entry[2].split()) for entry in found if entry is not None and entry[2].strip()}
