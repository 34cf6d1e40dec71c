"""Every error of the library, in one tree.

GraphflowError
├── DefinitionError            a graph, node or context is wrong before anything runs
│   ├── MutableContext         a context field could hold something mutable
│   ├── GraphProblems          `run()` refused a graph; `.problems` lists all of them
│   └── TargetError            the command line's TARGET is not a graph
├── UsageError                 a call of this library with arguments that make no sense
├── MissingExtra               an optional part is needed; the message names the extra
├── NodeError                  a node is to blame; caught by `on_error`, never leaves `run()`
│   ├── NodeTimeout            an attempt took longer than its `timeout=`
│   ├── ConflictError          two branches wrote one field that has no reducer
│   ├── JoinUnmet              a join's policy can no longer be met
│   ├── ContractError          a value does not fit the contract of its boundary
│   │   └── NotStorable        a value that a journal could not give back exactly
│   ├── ReportedFailure        a node's output was a report with status "failed"
│   ├── UnknownTarget          a handoff or delegation to a node that no edge leads to
│   ├── UnknownTool            a model asked three times in a row for a tool that it does not have
│   ├── EmptyAnswer            a model said nothing, even after it was told so
│   ├── NoRoute                every token ended before END was reached
│   ├── TurnLimit              a node wanted more turns than its `max_turns`
│   ├── InvalidDelegate        a `Delegate` whose calls are empty, doubled, unknown or cyclic
│   └── StrayCancellation      a cancellation that nobody asked for
├── ModelError                 a model could not be asked, or gave no usable reply; a client raises it
│   ├── ModelUnavailable       it may work a little later: a rate limit, a timeout, an error of the server
│   └── ModelRefused           the same request would be refused again: a wrong key, an unknown model
├── ToolServerUnavailable      a tool server cannot be started or reached, or was lost during a call
├── BoundHit                   raised inside a node's body when an effect is refused
├── EffectKeyRequired          two effects of one turn in flight at once without `key=`
├── NodeFailed                 a recorded failure, when the exception object is gone
├── JournalError               a stored run cannot be written, read or gone on with; what was stored is as it was
│   ├── RunLocked              somebody else is at work on the run
│   ├── RunExists              a new run was given the id of a stored one
│   ├── UnknownRun             no run of that id is stored
│   ├── GraphChanged           the graph is not the one that the run was stored with
│   ├── JournalMismatch        the stored decisions differ from what the fold draws
│   ├── EffectMismatch         a body that was entered again asked for another effect than is recorded
│   ├── JournalDamaged         what is stored cannot be read
│   └── JournalUnavailable     the store itself failed: a full disk, a locked database, a cut connection
└── InternalError              a bug of ours: please report it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any


class GraphflowError(Exception):
    """The root of every error that this library raises on purpose."""


class DefinitionError(GraphflowError):
    """A definition is wrong: found before anything runs."""


class MutableContext(DefinitionError, TypeError):
    """A context field could hold something mutable.

    Attributes:
        context: the name of the class.
        fields: for each refused field its name, what is wrong, and the type to use instead.
    """

    def __init__(self, context: str, fields: Sequence[tuple[str, str, str]]) -> None:
        """Remember the class and its refused fields."""
        self.context = context
        self.fields = tuple(fields)
        lines = [f"  {name}: {found}; use {instead}" for name, found, instead in self.fields]
        super().__init__(
            f"the context {context!r} could hold something mutable, and parallel branches share it:\n"
            + "\n".join(lines)
        )


class GraphProblems(DefinitionError, ValueError):
    """A graph that has errors was asked to run.

    Attributes:
        graph: the name of the graph.
        problems: every problem found, as `graphflow.graphs.checks.Problem` values.
    """

    def __init__(self, graph: str, problems: Sequence[object]) -> None:
        """Remember all problems; the message lists each on a line of its own."""
        self.graph = graph
        self.problems = tuple(problems)
        found = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        super().__init__(f"the graph {graph!r} has {found}:\n" + "\n".join(f"  {p}" for p in self.problems))


class TargetError(DefinitionError):
    """What was named is not a graph that can be loaded."""


class UsageError(GraphflowError, ValueError):
    """The library was called with arguments that make no sense together."""


class MissingExtra(GraphflowError, ImportError):
    """Something optional is needed and not installed.

    Attributes:
        extra: the extra of the distribution that brings it.
    """

    def __init__(self, wanted: str, extra: str, otherwise: str = "") -> None:
        """Say what was wanted, and every way to get it."""
        self.extra = extra
        tail = f", or {otherwise}" if otherwise else ""
        super().__init__(f"{wanted} needs the extra {extra!r}: pip install 'graphflow-agents[{extra}]'{tail}.")


class NodeError(GraphflowError):
    """A failure that the library found and that a node is to blame for."""


class NodeTimeout(NodeError, TimeoutError):
    """An attempt took longer than allowed.

    Attributes:
        path: the text of the path of the visit.
        limit: the allowed active seconds.
        elapsed: the active seconds that had passed when it was noticed.
    """

    def __init__(self, path: str, limit: float, elapsed: float) -> None:
        """Remember both durations."""
        self.path, self.limit, self.elapsed = path, limit, elapsed
        super().__init__(f"{path!r} took {elapsed:.3g} s, more than its timeout of {limit:.3g} s.")


class ConflictError(NodeError):
    """Two branches wrote one field without a reducer.

    Attributes:
        field: the field of the context.
        writers: the paths of the writers, in branch order.
    """

    def __init__(self, field: str, writers: Sequence[str]) -> None:
        """Name the field and its writers."""
        self.field, self.writers = field, tuple(writers)
        super().__init__(
            f"the field {field!r} was written by parallel branches ({', '.join(map(repr, self.writers))}) and has "
            f"no reducer. Let one branch write it, or declare how to combine: Annotated[..., append]."
        )


class JoinUnmet(NodeError):
    """A join's policy can no longer be met.

    Attributes:
        policy: the policy in words.
        arrived: how many branches had arrived.
    """

    def __init__(self, join: str, policy: str, arrived: int) -> None:
        """Name the policy and the count."""
        self.policy, self.arrived = policy, arrived
        super().__init__(f"the join {join!r} waits for {policy}, which can no longer be met: {arrived} arrived.")


class ContractError(NodeError):
    """A value does not fit the contract of the boundary that it crosses."""


class NotStorable(ContractError):
    """A value that a journal could not give back exactly.

    Attributes:
        where: the place of the value, such as "items[2].meta['client']".
        kind: its type.
        hint: what to do.
    """

    def __init__(self, what: str, where: str, kind: str, hint: str) -> None:
        """Say which value, and what to do."""
        self.where, self.kind, self.hint = where, kind, hint
        place = f" at {where}" if where else ""
        super().__init__(f"{what} holds a {kind}{place}, which a journal could not give back exactly: {hint}")


class ReportedFailure(NodeError):
    """A node's output was a report with status "failed"."""


class UnknownTarget(NodeError):
    """A node asked for a target that it has no edge to.

    Attributes:
        asked: the name it asked for.
        known: the names that its edges lead to.
    """

    def __init__(self, path: str, asked: str, known: Iterable[str], verb: str = "hand off") -> None:
        """Say which names are known and guess the one that was meant."""
        self.asked, self.known = asked, tuple(known)
        names = ", ".join(map(repr, self.known)) or "none"
        import difflib

        near = difflib.get_close_matches(asked, self.known, n=1)
        guess = f" Did it mean {near[0]!r}?" if near else ""
        edge = "hands_off" if verb == "hand off" else "delegates"
        super().__init__(
            f"{path!r} asked to {verb} to {asked!r}, which is not among its targets: {names}.{guess} "
            f"Declare the edge with {edge}(...), or correct the name."
        )


class UnknownTool(NodeError):
    """A model asked three times in a row for a tool that it does not have.

    Attributes:
        asked: the name it asked for at last.
        known: the names that it was offered.
    """

    def __init__(self, path: str, asked: str, known: Iterable[str]) -> None:
        """Say which names are known."""
        self.asked, self.known = asked, tuple(known)
        names = ", ".join(map(repr, self.known)) or "none"
        super().__init__(
            f"{path!r} asked three times in a row for a tool that it does not have, at last {asked!r}. It has: "
            f"{names}. Name its tools in its instructions, or give it the one that it misses."
        )


class EmptyAnswer(NodeError):
    """A model said nothing, even after it was told so."""


class NoRoute(NodeError):
    """Every token ended before END was reached."""


class TurnLimit(NodeError):
    """A node would need one more turn than its `max_turns`."""


class InvalidDelegate(NodeError):
    """The calls of a `Delegate` make no sense together."""


class StrayCancellation(NodeError):
    """A node's body was cancelled although nobody had asked for that."""


class ModelError(GraphflowError):
    """A model could not be asked, or gave nothing that can be used. The agent's `retries` apply.

    Attributes:
        unused: whether it is sure that nothing was used, as where the request was turned away: nothing is charged then,
            else all that was reserved.
    """

    unused = False


class ModelUnavailable(ModelError):
    """A model may work a little later, so a further attempt waits first, and the next fallback comes after that.

    Attributes:
        retry_after: the seconds that its provider asked to wait, or None.
    """

    def __init__(self, text: str, retry_after: float | None = None, *, unused: bool = False) -> None:
        """Say what went wrong, how long to wait, and whether nothing was used."""
        self.retry_after, self.unused = retry_after, unused
        super().__init__(text)


class ModelRefused(ModelError):
    """A model would refuse the same request again: it is not asked again, and the next fallback comes at once."""

    def __init__(self, text: str, *, unused: bool = False) -> None:
        """Say what is refused, and whether nothing was used."""
        self.unused = unused
        super().__init__(text)


class ToolServerUnavailable(GraphflowError):
    """A tool server cannot be started or reached, or was lost during a call.

    Where a tool raises it, the model is told, as of any other failure of a tool.

    Attributes:
        server: the name of the server.
    """

    def __init__(self, server: str, why: str) -> None:
        """Name the server, and say what became of it."""
        self.server = server
        super().__init__(f"the tool server {server!r} {why}")


class BoundHit(GraphflowError):
    """A bound refuses something; raised in a node's body by `step.effect`.

    A body may catch it and go on with what it has; one that lets it pass ends its node at the bound.

    Attributes:
        bound: which bound, one of the names of `Budget`, or `costs`.
        limit: its value.
        wanted: what was asked for.
        left: what was left.
    """

    def __init__(self, bound: str, *, limit: object, wanted: object, left: object) -> None:
        """Remember the numbers."""
        self.bound, self.limit, self.wanted, self.left = bound, limit, wanted, left
        super().__init__(f"the bound {bound!r} refuses this: {wanted} wanted, {left} left of {limit}.")


class EffectKeyRequired(GraphflowError):
    """Two effects of one turn were in flight at once without `key=`."""

    def __init__(self, path: str, name: str) -> None:
        """Name the effect that needs a key."""
        super().__init__(
            f"{path!r} started the effect {name!r} while another effect of the same turn is in flight. Their order "
            f"would be timing, so neither could be found again: give each a key=, or await one after the other."
        )


class NodeFailed(GraphflowError):
    """A failure known from its record alone: the exception object is gone.

    Attributes:
        path: the node's path.
        error_type: the recorded type of the exception.
        text: the recorded text.
    """

    def __init__(self, path: str, error_type: str, text: str) -> None:
        """Carry what was recorded."""
        self.path, self.error_type, self.text = path, error_type, text
        super().__init__(f"{path!r} failed with {error_type}: {text}")


class JournalError(GraphflowError):
    """A stored run cannot be written, read or gone on with. What was stored of it is as it was."""


class RunLocked(JournalError):
    """Somebody else is at work on the run: there is one writer at a time.

    Attributes:
        run: the run's id.
    """

    def __init__(self, run: str) -> None:
        """Name the run."""
        self.run = run
        super().__init__(
            f"the run {run!r} is at work elsewhere, and a run has one writer. Wait until it has ended, or stop the "
            f"process that runs it: its lock goes with it."
        )


class RunExists(JournalError):
    """A new run was given the id of a stored one.

    Attributes:
        run: the run's id.
    """

    def __init__(self, run: str) -> None:
        """Name the run."""
        self.run = run
        super().__init__(
            f"a run {run!r} is stored already: go on with it by resume(graph, {run!r}, journal=...), delete it, or "
            f"choose another run_id=."
        )


class UnknownRun(JournalError):
    """No run of that id is stored.

    Attributes:
        run: the id.
    """

    def __init__(self, run: str, known: Iterable[str] = ()) -> None:
        """Name the id, and what it may have been meant to be."""
        import difflib

        self.run = run
        near = difflib.get_close_matches(run, list(known), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        super().__init__(
            f"no run {run!r} is stored in this journal.{hint or ' `await journal.runs()` tells which are.'}"
        )


class GraphChanged(JournalError):
    """The graph is not the one that the run was stored with.

    Attributes:
        run: the run's id.
        added: what the stored graph did not have.
        removed: what the graph at hand does not have.
        changed: what is in both and differs.
        unfit: which stored value does not fit the classes of the graph at hand, and why; "" if it was not read.
    """

    def __init__(
        self, run: str, added: Sequence[str], removed: Sequence[str], changed: Sequence[str], unfit: str = ""
    ) -> None:
        """List the differences."""
        self.run, self.unfit = run, unfit
        self.added, self.removed, self.changed = tuple(added), tuple(removed), tuple(changed)
        parts = (("added", self.added), ("removed", self.removed), ("changed", self.changed))
        lines = [f"  {what}: {', '.join(items)}" for what, items in parts if items]
        step = 'or say changed="compatible", for a graph that draws the same decisions from what is stored.'
        if unfit:
            lines.append(f"What is stored is whole, but does not fit its classes: {unfit}")
            step = "or give each field that a class has got since a default, and leave the others as they were."
        super().__init__(
            f"the graph has changed since the run {run!r} was stored:\n"
            + "\n".join(lines)
            + f"\nGo on with the graph as it was; {step}"
        )


class JournalMismatch(JournalError):
    """Stored decisions differ from what the fold draws from the stored facts.

    Attributes:
        seq: the number of the record that differs.
        stored: what the journal holds.
        drawn: what the fold says.
    """

    def __init__(self, seq: int, stored: object, drawn: object) -> None:
        """Show both sides."""
        self.seq, self.stored, self.drawn = seq, stored, drawn
        super().__init__(
            f"record {seq} holds {stored!r}, but folding its fact gives {drawn!r}: the graph, or a function that must "
            f"be pure, does not decide as it did. Nothing has been written."
        )


class EffectMismatch(JournalError):
    """A body that was entered again asked for another effect than the one that is recorded in its place.

    Attributes:
        path: the node's path.
        recorded: what is recorded.
        asked: what was asked now.
    """

    def __init__(self, path: str, recorded: str, asked: str) -> None:
        """Show both sides."""
        self.path, self.recorded, self.asked = path, recorded, asked
        super().__init__(
            f"{path!r} asked for {asked} where {recorded} is recorded, so the recorded result is not its own. A body "
            f"must ask for the same effects when it is entered again: what it decides by must come from its state or "
            f"from effects. Where only their order differs, give each a key=."
        )


class JournalDamaged(JournalError):
    """What is stored cannot be read: nothing of the run was resumed.

    Attributes:
        run: the run's id.
        seq: the number of the record, or None.
        what: what is wrong with it.
        before: the `Row`s that stand before that record, where a journal could not give it.
    """

    def __init__(self, run: str, seq: int | None, what: str, before: Sequence[Any] = ()) -> None:
        """Say where, and what is wrong."""
        self.run, self.seq, self.what, self.before = run, seq, what, tuple(before)
        where = "" if seq is None else f", record {seq}"
        super().__init__(
            f"the stored run {run!r}{where} cannot be read: {what} Nothing was changed; what stands before that record "
            f"can be read, and forked from, with the graph that wrote it."
        )


class JournalUnavailable(JournalError):
    """The store itself failed; what was committed before is intact, and the run can be resumed.

    Attributes:
        lost: the one case in which it is not: the file was removed or replaced while the run was at work.
    """

    def __init__(self, text: str, *, lost: bool = False) -> None:
        """Say what is wrong, in words."""
        self.lost = lost
        super().__init__(text)


class InternalError(GraphflowError):
    """A bug of ours. Please report it with the graph and the events."""

    def __init__(self, what: str) -> None:
        """Say what should never have happened."""
        super().__init__(f"{what}. This is a bug in graphflow: please report it with your graph and its events.")
