"""The user's part of the state: frozen all the way down, changed only by validated updates."""

from __future__ import annotations

import copy
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, NamedTuple, TypeGuard, TypeVar

import pydantic
from pydantic import (
    BaseModel,
    ConfigDict,
    PydanticSchemaGenerationError,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import SchemaValidator

from graphflow.errors import ContractError, MutableContext
from graphflow.model.frozen import PROVED, class_of, mutable_part, mutable_value
from graphflow.model.misfits import ill_kept, misfit, place_text
from graphflow.model.secrets import MARKED, SHOWN, hide_inputs, in_order, secret, secret_fields, veiled

T = TypeVar("T")
N = TypeVar("N", int, float)
Reducer = Callable[[Any, Any], Any]


def append(old: tuple[T, ...], new: T) -> tuple[T, ...]:
    """Add one item at the end: the reducer of a field that collects.

    >>> append((1, 2), 3)
    (1, 2, 3)
    """
    return old + (new,)  # noqa: RUF005 - `(*old, new)` copies twice, and this runs at every hop


def extend(old: tuple[T, ...], new: tuple[T, ...]) -> tuple[T, ...]:
    """Add several items at the end.

    >>> extend((1,), (2, 3))
    (1, 2, 3)
    """
    return old + new


def add(old: N, new: N) -> N:
    """Sum up.

    >>> add(1, 2)
    3
    """
    return old + new


def union(old: frozenset[T], new: frozenset[T]) -> frozenset[T]:
    """Unite two sets.

    >>> sorted(union(frozenset({1}), frozenset({2})))
    [1, 2]
    """
    return old | new


OURS: Final = (append, extend, add, union)
"""The reducers whose sums are right where what they are given is: nobody looks at them again."""


class Context(BaseModel):
    """Base of a run's context: a frozen pydantic model in which nothing can be changed, however deep.

    A field is combined at a join by the reducer in its annotation, `Annotated[tuple[str, ...], append]`; a field
    without one may be written by one branch only.

    Raises:
        MutableContext: when a class is defined (or completed) one of whose fields could hold something mutable.

    >>> from typing import Annotated
    >>> class Case(Context):
    ...     question: str
    ...     notes: Annotated[tuple[str, ...], append] = ()
    >>> Case(question="why?")
    Case(question='why?', notes=())
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, defer_build=True)

    __graphflow_checked__: ClassVar[bool] = False
    __graphflow_rules__: ClassVar[Any] = None
    __graphflow_secrets__: ClassVar[frozenset[str] | None] = None

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        marked = [name for name, info in cls.model_fields.items() if secret in info.metadata]
        if marked:
            MARKED.update(marked)
        hide_inputs(cls)
        if cls.__pydantic_fields_complete__:
            check_immutable(cls)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Show no field that is marked as a secret, here or in what it holds."""
        hidden = secrets_of(type(self))
        return [(name, SHOWN if name in hidden else veiled(value)) for name, value in super().__repr_args__()]


def secrets_of(context: type[Context]) -> frozenset[str]:
    """Return the names of the fields of a context class that are marked as secrets, found once."""
    found: frozenset[str] | None = context.__dict__.get("__graphflow_secrets__")
    if found is None:
        found = secret_fields(context)
        MARKED.update(found)
        if context.__pydantic_fields_complete__:
            context.__graphflow_secrets__ = found
    return found


def check_immutable(context: type[BaseModel]) -> None:
    """Refuse a context class one of whose fields could hold something mutable.

    Raises:
        MutableContext: naming each such field and the type to use instead.
    """
    if context.__dict__.get("__graphflow_checked__"):
        return
    config = context.model_config
    if not config.get("frozen") or config.get("extra") == "allow" or context.__private_attributes__:
        found = (
            "(class)",
            "it is not frozen, allows extra fields, or has private attributes",
            "the settings of Context",
        )
        raise MutableContext(context.__name__, [found])
    for name, info in context.model_fields.items():
        if inspect.iscoroutinefunction(reducer_of(info.metadata)):
            raise MutableContext(context.__name__, [(name, "its reducer is async", "a plain function")])
    open_variables = context.__pydantic_generic_metadata__["parameters"]
    refused = [
        (name, *part)
        for name, info in context.model_fields.items()
        if (part := mutable_part(info.annotation)) is not None and not open_variables
    ]
    if refused:
        raise MutableContext(context.__name__, refused)
    if not open_variables:
        context.__graphflow_checked__ = True  # type: ignore[attr-defined]  # a mark on the class itself


class FieldRule(NamedTuple):
    """How one field takes an update.

    Attributes:
        name: the field.
        validate: returns an update of it, validated.
        reducer: makes its next value of the present one and an update; one of the user's looks at what it has made.
        lenient: as `validate`, but a value without an order becomes one with some order.
    """

    name: str
    validate: Callable[[Any], Any]
    reducer: Reducer | None
    lenient: Callable[[Any], Any]


class ContextRules:
    """How a context class takes updates: compiled once for each class.

    `apply` validates the delta alone, never the sum: the cost of an update does not grow with the state. Of a reducer
    of the user's nobody knows what it makes, so that its sum is validated too.
    """

    __slots__ = ("_exact", "_trusting", "context", "fields", "hidden")

    def __init__(self, context: type[Context]) -> None:
        """Compile a validator for each field.

        Raises:
            MutableContext: if the class is complete only now and could hold something mutable.
        """
        try:
            context.model_rebuild()
        except PydanticUserError as error:
            raise MutableContext(context.__name__, [("(class)", str(error), "names that are defined")]) from error
        check_immutable(context)
        if context.__pydantic_generic_metadata__["parameters"]:
            raise MutableContext(
                context.__name__, [("(class)", "its type variables are unbound", "a parametrised class")]
            )
        self.context = context
        self.fields = {name: _field_rule(context, name) for name in context.model_fields}
        self.hidden = secrets_of(context)
        self._trusting: ContextRules | None = None
        self._exact: dict[str, Callable[[Any], Any]] | None = None

    def trusting(self) -> ContextRules:
        """Return the rules as they were before edition 2: a reducer of the user's is trusted, a set gets some order."""
        if self._trusting is None:
            self._trusting = found = copy.copy(self)
            plain = {name: reducer_of(info.metadata) for name, info in self.context.model_fields.items()}
            found.fields = {
                name: rule._replace(reducer=plain[name], validate=rule.lenient) for name, rule in self.fields.items()
            }
        return self._trusting

    def check(self, given: Context) -> None:
        """Refuse a context that holds what its fields do not, as `model_copy(update=...)` makes without looking.

        Raises:
            ContractError: naming the field.
        """
        if self._exact is None:
            self._exact = {name: _exactly(self.context, name) for name in self.fields}
        for name, exact in self._exact.items():
            value, hidden = getattr(given, name), name in self.hidden
            try:
                exact(value)
            except ValidationError as error:
                why = _steady(exact, value, error)
                raise ill_kept(self.context, name, value, why, hidden=hidden) from (None if hidden else error)
            found = mutable_value(value)
            if found is not None:
                raise ill_kept(self.context, name, value, found, hidden=hidden)

    def validate(self, updates: Mapping[str, Any]) -> dict[str, Any]:
        """Return the update with its values validated.

        Raises:
            ContractError: if a field is unknown or a value does not fit it.
        """
        checked: dict[str, Any] = {}
        for name, value in updates.items():
            rule = self.fields.get(name)
            if rule is None:
                known = ", ".join(map(repr, self.fields))
                msg = f"an update of {name!r}, which is no field of {self.context.__name__}; its fields are {known}."
                raise ContractError(msg)
            try:
                valid = checked[name] = rule.validate(value)
            except ValidationError as error:
                hidden = name in self.hidden
                text = _explain(self.context.__name__, name, _steady(rule.validate, value, error), hidden=hidden)
                raise ContractError(text) from (None if hidden else error)
            if not PROVED.get(class_of(valid)) and (found := mutable_value(valid)) is not None:
                where, what, instead = found  # such as an instance of a subclass with fields of its own
                where = "a place that is not shown" if name in self.hidden else where
                field = f"{self.context.__name__}.{name}"
                msg = f"an update of {field} could be changed: at {where}, {what}; use {instead}."
                raise ContractError(msg)
        return checked

    def apply(self, old: Any, checked: Mapping[str, Any]) -> Any:
        """Return the context with validated updates applied; each field through its reducer if it has one.

        Raises:
            ContractError: if a reducer of the user's made what does not fit its field, or could be changed.
        """
        values = old.__dict__.copy()
        for name, value in checked.items():
            reducer = self.fields[name].reducer
            values[name] = value if reducer is None else reducer(values[name], value)
        return rebuilt(old, values, old.__pydantic_fields_set__.union(checked))


def rebuilt(old: Any, values: dict[str, Any], fields_set: set[str]) -> Any:
    """Return a copy of a frozen model with other values, without validating what was valid already."""
    new: Any = object.__new__(class_of(old))
    _put_values(new, values)
    _put_set(new, fields_set)
    _put_extra(new, None)
    _put_private(new, None)
    return new


_put_values, _put_set, _put_extra, _put_private = (
    vars(BaseModel)[name].__set__
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)  # past the guard of a frozen model, and without its looking each of them up


def rules_of(context: type[Context]) -> ContextRules:
    """Return the compiled rules of a context class, made once."""
    rules: ContextRules | None = context.__dict__.get("__graphflow_rules__")
    if rules is None:
        rules = ContextRules(context)
        context.__graphflow_rules__ = rules  # on the class, so that it lives as long as the class
    return rules


def reducer_of(metadata: typing.Iterable[object]) -> Reducer | None:
    """Return the reducer among a field's annotations: the last function, built-in function or partial one."""
    return next((found for found in reversed(list(metadata)) if _is_function(found)), None)


def _is_function(found: object) -> TypeGuard[Reducer]:
    return inspect.isroutine(found) or isinstance(found, functools.partial)


def _field_rule(context: type[Context], name: str) -> FieldRule:
    info = context.model_fields[name]
    reducer = reducer_of(info.metadata)
    kind: Any = info.annotation
    others = tuple(found for found in info.metadata if found is not reducer)
    if reducer is append:
        kind = typing.get_args(kind)[0] if typing.get_origin(kind) is tuple else Any
    elif reducer is not None and reducer not in OURS:
        kind = _second_annotation(reducer, kind)
    else:
        own = _own_validators(context, name) if reducer is None else []  # with one, a delta is no value of the field
        kind = typing.Annotated[(kind, *others, *own)] if others or own else kind
    validator = TypeAdapter(kind).validator
    assert isinstance(validator, SchemaValidator) or hasattr(validator, "validate_python")  # noqa: S101 - for the checker
    if reducer is not None and reducer not in OURS:
        reducer = _checking(reducer, context, name)
    lenient = validator.validate_python
    ordered = typing.get_origin(typing.get_args(kind)[0] if typing.get_origin(kind) is typing.Annotated else kind)
    return FieldRule(name, _in_some_order(lenient, context, name) if ordered is tuple else lenient, reducer, lenient)


def _in_some_order(validate: Callable[[Any], Any], context: type[Context], name: str) -> Callable[[Any], Any]:
    """Return a validator that raises ContractError where a set is given, which has another order in each process."""

    def checking(value: Any) -> Any:
        if isinstance(value, (set, frozenset)):
            what = f"an update of {context.__name__}.{name} has no order: a {class_of(value).__name__}"
            msg = f"{what}, where the field has one. Give it as tuple(sorted(...))."
            raise ContractError(msg)
        return validate(value)

    return checking


def _checking(reducer: Reducer, context: type[Context], name: str) -> Reducer:
    """Return a reducer that raises ContractError where what it has made is no value of its field."""
    exact = _exactly(context, name)

    def checking(old: Any, new: Any) -> Any:
        made = reducer(old, new)
        try:
            valid = exact(made)
        except ValidationError as error:
            hidden = name in secrets_of(context)
            why = _steady(exact, made, error)
            raise misfit(reducer, context, name, made, why, hidden=hidden) from (None if hidden else error)
        found = mutable_value(valid)
        if found is not None:
            raise misfit(reducer, context, name, made, found, hidden=name in secrets_of(context))
        return valid

    return checking


def _exactly(context: type[Context], name: str) -> Callable[[Any], Any]:
    """Return what takes the values of a field alone, and nothing that a validator of it would first make one of."""
    info = context.model_fields[name]
    kept = [found for found in info.metadata if not (_is_function(found) or isinstance(found, _OF_OTHER_TYPES))]
    kind: Any = typing.Annotated[(info.annotation, *kept)] if kept else info.annotation
    try:
        adapter = TypeAdapter(kind)
    except PydanticSchemaGenerationError:  # of a class that is known to a validator only
        adapter = TypeAdapter(kind, config=ConfigDict(arbitrary_types_allowed=True))
    return functools.partial(adapter.validator.validate_python, strict=True)


_OF_OTHER_TYPES: Final = (pydantic.BeforeValidator, pydantic.PlainValidator, pydantic.WrapValidator)


def _own_validators(context: type[Context], name: str) -> list[Any]:
    """Return the `@field_validator` functions of a field, as annotations; they hold for its updates too."""
    kinds: dict[str, Any] = {
        "before": pydantic.BeforeValidator, "after": pydantic.AfterValidator,
        "plain": pydantic.PlainValidator, "wrap": pydantic.WrapValidator,
    }  # fmt: skip
    found = context.__pydantic_decorators__.field_validators.values()
    return [kinds[one.info.mode](one.func) for one in found if name in one.info.fields or "*" in one.info.fields]


def _second_annotation(reducer: Reducer, kind: Any) -> Any:
    """Return the type of a reducer's second parameter; the field's own type where it says none."""
    try:
        parameters = list(inspect.signature(reducer).parameters)
        hints = typing.get_type_hints(getattr(reducer, "func", reducer), include_extras=True)
    except (TypeError, ValueError, NameError):  # a built-in function says nothing of its parameters
        return kind
    second = hints.get(parameters[1], kind) if len(parameters) > 1 else kind
    return kind if isinstance(second, TypeVar) else second


def _steady(validate: Callable[[Any], Any], value: Any, error: ValidationError) -> ValidationError:
    """Return why a value does not fit in words that are the same in every process, in whatever order its sets are."""
    ordered = in_order(value)
    if ordered is not value:
        try:
            validate(ordered)
        except ValidationError as again:
            return again
    return error


def _explain(context: str, name: str, error: ValidationError, *, hidden: bool) -> str:
    first = error.errors(include_url=False)[0]
    if hidden:
        return f"an update of {context}.{name}, a secret, does not fit (given {type(first.get('input')).__name__})."
    where = place_text(first["loc"])
    given = first.get("input")
    return f"an update of {context}.{name}{where} does not fit: {first['msg']} (given {type(given).__name__})."


@functools.lru_cache(maxsize=256)
def question_field(kind: type[Context]) -> str | None:
    """Return the name of the field that says what is asked: the first, if it takes a text and is no secret.

    >>> class Case(Context):
    ...     question: str | None = None
    >>> question_field(Case)
    'question'
    """
    name, info = next(iter(kind.model_fields.items()), (None, None))
    if name is None or info is None or name in secret_fields(kind):
        return None
    kinds = (info.annotation, *typing.get_args(info.annotation))
    union = typing.get_origin(info.annotation) in (typing.Union, types.UnionType)
    return name if kinds[0] is str or (union and str in kinds) else None


def question_of(context: Context) -> str:
    """Return what a context says is asked; "" where it says nothing."""
    name = question_field(type(context))
    value = getattr(context, name) if name is not None else None
    return value if isinstance(value, str) else ""
