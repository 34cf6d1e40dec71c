"""What traces of conversations must hold: round_robin, random, manual."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from graphflow.graphs.compiled import ChooseOut, NextOut
from graphflow.graphs.conversation import Conversation, Said, TeamReport, said_by, transcript
from graphflow.graphs.graph import Graph
from graphflow.graphs.turns import FINISH, drawn
from graphflow.model.thread import words_of
from graphflow.testing.activation import UNTOLD, Activation, Visit, WrongShape


@dataclass(frozen=True)
class Talk:
    """The parts of a conversation's graph, read from its edges.

    Attributes:
        floor: the node that notes what was said.
        chooser: the node that gives the floor to a member.
        members: in their order.
        turns: how often the floor can be given.
    """

    floor: str
    chooser: str
    members: tuple[str, ...]
    turns: int | None

    @classmethod
    def of(cls, graph: Graph[Any]) -> Talk:
        """Find the parts.

        Raises:
            WrongShape: if the graph is no conversation.
        """
        start, stations = graph.compiled.start, graph.compiled.stations
        if not isinstance(start, NextOut) or not isinstance(start.edge.target, str):
            raise WrongShape("START does not lead to one node")
        floor = start.edge.target
        over = stations[floor].out
        if not isinstance(over, ChooseOut) or len(over.cases) != 1 or not isinstance(over.cases[0].target, str):
            raise WrongShape(f"{floor!r} does not lead to one who chooses")
        chooser = over.cases[0].target
        speaking = stations[chooser].out
        if not isinstance(speaking, ChooseOut):
            raise WrongShape(f"{chooser!r} does not choose")
        members = tuple(str(case.name.target) for case in speaking.cases)
        return cls(floor, chooser, members, over.cases[0].max_hops)


@dataclass(frozen=True, eq=False)
class Turn:
    """One turn of a conversation.

    Attributes:
        before: the visit of the floor before it, or None.
        chosen: the visit that gave the floor.
        spoke: the visit of the member, or None.
        noted: the visit of the floor after it, or None.
    """

    before: Visit | None
    chosen: Visit
    spoke: Visit | None
    noted: Visit | None

    @property
    def named(self) -> str:
        """Who was given the floor; "" for nobody."""
        return str(self.chosen.update.get("speaker", ""))

    @property
    def ruled(self) -> str:
        """Who was named on the floor, where somebody rules it; "" for nobody."""
        return str(self.before.update.get("speaker", "")) if self.before is not None else ""

    @property
    def said(self) -> Said | None:
        """What was noted, or None."""
        found = self.noted.update.get("said") if self.noted is not None else None
        return found if isinstance(found, Said) else None


def turns_of(seen: Activation, talk: Talk) -> list[Turn]:
    """Return the turns of a conversation, in order."""
    own = seen.of(talk.floor, talk.chooser, *talk.members)
    found: list[Turn] = []
    for index, visit in enumerate(own):
        if visit.name == talk.chooser:
            spoke = own[index + 1] if index + 1 < len(own) and own[index + 1].name in talk.members else None
            after = own[index + 2] if spoke is not None and index + 2 < len(own) else None
            before = own[index - 1] if index and own[index - 1].name == talk.floor else None
            found.append(Turn(before, visit, spoke, after if after is not None and after.name == talk.floor else None))
    return found


# --- what every conversation holds -----------------------------------------------------------------------------------


def alternates(seen: Activation) -> Iterator[str]:
    """The floor is noted, one is chosen, that one speaks, and so on."""
    talk = Talk.of(seen.graph)
    own = seen.of(talk.floor, talk.chooser, *talk.members)
    if own and own[0].name != talk.floor:
        yield f"{own[0]} began, before {talk.floor!r} did"
    for one, after in pairwise(own):
        wanted = {talk.floor: (talk.chooser,), talk.chooser: talk.members}.get(one.name, (talk.floor,))
        if after.name not in wanted:
            yield f"{after} came after {one}, where one of {', '.join(map(repr, wanted))} had to"


def speaks_as_named(seen: Activation) -> Iterator[str]:
    """Who is given the floor is who speaks."""
    for turn in turns_of(seen, Talk.of(seen.graph)):
        if turn.spoke is not None and turn.spoke.name != turn.named:
            yield f"{turn.spoke} spoke, and {turn.chosen} had named {turn.named!r}"


def noted_as_said(seen: Activation) -> Iterator[str]:
    """What is noted is what the speaker said."""
    for turn in turns_of(seen, Talk.of(seen.graph)):
        if turn.spoke is None or turn.noted is None or turn.noted.status != "completed":
            continue
        gave = seen.gave(turn.spoke)
        if turn.said is None or turn.said.speaker != turn.spoke.name:
            yield f"{turn.noted} did not note what {turn.spoke} said"
        elif gave is not UNTOLD and said_by(turn.spoke.name, gave) != turn.said:
            yield f"{turn.noted} noted {turn.said.text!r}, and {turn.spoke} had said {words_of(gave)!r}"


def hears_all(seen: Activation) -> Iterator[str]:
    """Each speaker is given all that was said before."""
    said: list[Said] = []
    for turn in turns_of(seen, Talk.of(seen.graph)):
        if turn.spoke is not None and transcript(said) not in words_of(seen.gave(turn.chosen)):
            yield f"{turn.spoke} was not given all that was said before it by {turn.chosen}"
        if turn.said is not None:
            said.append(turn.said)


def ends_in_time(seen: Activation) -> Iterator[str]:
    """There are no more turns than the bound says; where turns alone end it, there are exactly so many."""
    talk = Talk.of(seen.graph)
    floor: Any = getattr(seen.graph.nodes[talk.floor], "fn", None)
    turns = turns_of(seen, talk)
    if talk.turns is not None and len(turns) > talk.turns:
        yield f"{turns[talk.turns].chosen} began turn {talk.turns + 1}, and there are {talk.turns}"
    fixed = getattr(floor, "turns", None)
    if seen.finished and fixed is not None and len(turns) != fixed:
        yield f"it ended after {len(turns)} turns, and {fixed} were asked for"


def reports_all(seen: Activation) -> Iterator[str]:
    """The report is the last speaker's, and holds everything that was said, in order."""
    last = seen.last()
    if last is None:
        return
    said = tuple(turn.said for turn in turns_of(seen, Talk.of(seen.graph)) if turn.said is not None)
    report = seen.gave(last)
    if not isinstance(report, TeamReport):
        yield f"{last} ended the conversation with {report!r}, which is no report of a team"
    elif report.said != said:
        yield f"the report of {last} does not hold what was said, in order"
    elif said and report.finding != said[-1].report.finding:
        yield f"the report of {last} is not that of the last speaker, {said[-1].speaker!r}"


def follows_as_allowed(seen: Activation) -> Iterator[str]:
    """Nobody follows somebody whom the declared transitions do not let it follow."""
    talk = Talk.of(seen.graph)
    allowed: dict[str, tuple[str, ...]] = dict(_declared(seen, talk, "allowed", ()))
    for one, after in pairwise(turn.spoke for turn in turns_of(seen, talk)):
        if one is not None and after is not None and after.name not in allowed.get(one.name, talk.members):
            yield f"{after} spoke after {one}, which only {', '.join(map(repr, allowed[one.name]))} may follow"


def over_as_declared(seen: Activation) -> Iterator[str]:
    """It ends as soon as the predicate holds, and not before; a context of another class may hold more than is told."""
    talk = Talk.of(seen.graph)
    until = getattr(getattr(seen.graph.nodes[talk.floor], "fn", None), "until", None)
    if until is None or type(seen.context) is not Conversation:
        return
    turns, said = turns_of(seen, talk), list[Said]()
    for index, turn in enumerate(turns):
        if turn.said is None or turn.noted is None:
            return
        said.append(turn.said)
        over, last = bool(until(seen.context.model_copy(update={"said": tuple(said)}))), index + 1 == len(turns)
        if over and not last:
            yield f"it was over at {turn.noted}, and {turns[index + 1].chosen} went on"
        elif last and seen.finished and not over:
            yield f"it ended at {turn.noted}, and its predicate says that it was not over"


def _declared(seen: Activation, talk: Talk, name: str, default: Any) -> Any:
    """Return a value that the node that chooses was made with."""
    return getattr(getattr(seen.graph.nodes[talk.chooser], "fn", None), name, default)


def _rulings(seen: Activation) -> Iterator[tuple[Visit, str, bool]]:
    """Yield each visit of the floor that has ended well, whom it named, and whether it ended the conversation."""
    for visit in seen.of(Talk.of(seen.graph).floor):
        if visit.status == "completed":
            yield visit, str(visit.update.get("speaker", "")), bool(visit.update.get("over"))


# --- what each of them holds -----------------------------------------------------------------------------------------


def ends_on_the_floor(seen: Activation) -> Iterator[str]:
    """It ends when a turn has been noted, and nobody's word rules it."""
    talk, last = Talk.of(seen.graph), seen.last()
    for visit, named, _ in _rulings(seen):
        if named:
            yield f"{visit} named {named!r}, and nobody rules this floor"
    if last is not None and last.name != talk.floor:
        yield f"it ended at {last}, and {talk.floor!r} had to say so"


def rotates(seen: Activation) -> Iterator[str]:
    """The members speak in their order, and the first begins."""
    talk = Talk.of(seen.graph)
    for index, turn in enumerate(turns_of(seen, talk)):
        wanted = talk.members[index % len(talk.members)]
        if turn.spoke is not None and turn.spoke.name != wanted:
            yield f"{turn.spoke} spoke in turn {index + 1}, which is {wanted!r}'s"


def draws_from_its_seed(seen: Activation) -> Iterator[str]:
    """The seed is recorded, stays the same, and the draws follow from it, among those who may speak."""
    talk = Talk.of(seen.graph)
    declared, per = _declared(seen, talk, "seed", None), _declared(seen, talk, "per", "turn")
    weights: tuple[float, ...] = _declared(seen, talk, "weights", (1.0,) * len(talk.members))
    allowed: dict[str, tuple[str, ...]] = dict(_declared(seen, talk, "allowed", ()))
    seed, before = declared, ""
    for index, turn in enumerate(turns_of(seen, talk)):
        if turn.chosen.status != "completed":
            return
        recorded = turn.chosen.update.get("seed")
        if not isinstance(recorded, int) or (seed is not None and recorded != seed):
            yield f"{turn.chosen} recorded the seed {recorded!r}, where {'any' if seed is None else seed} had to stand"
            return
        seed = recorded
        may = allowed.get(before, talk.members) if per == "turn" else talk.members
        names = tuple(name for name in talk.members if name in may)
        odds = [weights[talk.members.index(name)] for name in names]
        wanted = drawn(seed, index if per == "turn" else 0, names, odds)
        if turn.named != wanted:
            yield f"{turn.chosen} drew {turn.named!r}, and the seed {seed} says {wanted!r}"
        before = turn.spoke.name if turn.spoke is not None else ""


def obeys(seen: Activation) -> Iterator[str]:
    """Only members are named; a person's word is what happens; the end is what the one who decides said."""
    talk = Talk.of(seen.graph)
    for visit, named, ended in _rulings(seen):
        if not ended and named not in talk.members:
            yield f"{visit} named {named!r}, who is none of {', '.join(map(repr, talk.members))}"
        if visit.answers and visit.answers[-1] != (FINISH if ended else named):
            yield f"a person answered {visit.answers[-1]!r} at {visit}, and that is not what happened"
    for turn in turns_of(seen, talk):
        if turn.before is not None and turn.chosen.status == "completed" and turn.named != turn.ruled:
            yield f"{turn.chosen} gave the floor to {turn.named!r}, and {turn.before} had named {turn.ruled!r}"
    last = seen.last()
    if last is not None and not (last.name == talk.floor and last.update.get("over")):
        yield f"it ended at {last}, and nobody had said that it ends"


EVERY: tuple[Callable[[Activation], Iterator[str]], ...] = (
    alternates, speaks_as_named, noted_as_said, hears_all, ends_in_time, reports_all, follows_as_allowed,
)  # fmt: skip
ROUND_ROBIN = (*EVERY, over_as_declared, ends_on_the_floor, rotates)
RANDOM = (*EVERY, over_as_declared, ends_on_the_floor, draws_from_its_seed)
MANUAL = (*EVERY, obeys)
