"""Seeded runs for the rules about how the members of a team deal with each other: MAST 2.1 to 2.6."""

from typing import Any, Final

from graphflow import END, START, Agent, Graph, Report, State, Update, node, when
from graphflow.testing import ScriptedModel, call
from tests.lint.builders import BUDGET, Desk, Seed, ask, chat, done, in_json, not_done, over, search, solo, team, thinks

INVOICE: Final = call("search", text="invoice")
PARCEL: Final = call("search", text="parcel")
REFUND: Final = call("search", text="refund")
ANSWER: Final = "INV-311 was charged twice, on May 2 and on May 3."
FRIDAY: Final = "A-7 left Rotterdam and arrives on Friday."


def looping(*steps: Any, rounds: int = 3, history: Any = None) -> Graph[Desk]:
    """An agent that a function leads back to."""

    @node
    def count(state: State[Desk]) -> Update:
        """Count the rounds."""
        return Update(rounds=state.context.rounds + 1)

    def again(state: State[Desk]) -> bool:
        return state.context.rounds < rounds

    clerk = Agent("clerk", model=ScriptedModel(*steps), tools=[search], history=history)
    return Graph(
        "loop",
        START >> clerk >> count,
        count.choose(when(again, clerk, max_hops=5), default=END),
        context=Desk,
        budget=BUDGET,
    )


def routed(report: Report, *, right: bool) -> Graph[Desk]:
    """A clerk whose report says who acts, and an edge that reads it, or not."""

    def wants_refund(state: State[Desk]) -> bool:
        return right and "refund" in str(getattr(state.inbox[0].value, "action_needed", ""))

    model = ScriptedModel(report)
    clerk = Agent("clerk", model=model, tools=[search], output=Report)
    refund = Agent("refund", model=ScriptedModel("It is refunded."))
    archive = Agent("archive", model=ScriptedModel("It is filed."))
    return Graph(
        "routed",
        START >> clerk,
        clerk.choose(when(wants_refund, refund), default=archive),
        refund >> END,
        archive >> END,
        context=Desk,
        budget=BUDGET,
    )


BAD_TALK: Final[dict[str, tuple[Seed, ...]]] = {
    "starts-over": (
        Seed("the same search and the same answer", lambda: looping(INVOICE, ANSWER, INVOICE, ANSWER, INVOICE, ANSWER)),
        Seed("two searches", lambda: looping(INVOICE, PARCEL, ANSWER, INVOICE, PARCEL, ANSWER, rounds=2)),
        Seed("after a visit of another kind", lambda: looping(INVOICE, ANSWER, PARCEL, FRIDAY, INVOICE, ANSWER)),
        Seed(
            "the same search, and other words",
            lambda: looping(
                INVOICE,
                ANSWER,
                INVOICE,
                "Two charges stand in the ledger for it.",
                rounds=2,
            ),
            missed=True,
        ),
    ),
    "guessed": (
        Seed(
            "failed, because something was not given",
            lambda: team(
                {
                    "desk": [ask("billing", "Was the invoice paid twice?"), "Billing could not say."],
                    "billing": [not_done("failed", "the number of the invoice was not given")],
                },
                "billing",
            ),
        ),
        Seed(
            "partial, because it is unclear which",
            lambda: team(
                {
                    "desk": [ask("billing", "Was the invoice paid twice?"), "Billing could not say which one."],
                    "billing": [
                        INVOICE,
                        not_done("partial", "It is unclear which invoice is meant.", "INV-311 was paid twice"),
                    ],
                },
                "billing",
            ),
        ),
        Seed(
            "done, by a guess",
            lambda: team(
                {
                    "desk": [ask("billing", "Was the invoice paid twice?"), ANSWER],
                    "billing": [INVOICE, done("I assumed INV-311 is meant; it was charged twice.", "ledger.csv:4")],
                },
                "billing",
            ),
        ),
        Seed(
            "an answer that guesses",
            lambda: solo(INVOICE, "My best guess is that you mean INV-311, which was paid twice."),
        ),
        Seed(
            "a guess in other words",
            lambda: solo(INVOICE, "You most likely mean INV-311, which was paid twice."),
            missed=True,
        ),
    ),
    "thin-brief": (
        Seed(
            "handle this",
            lambda: team(
                {"desk": [ask("billing", "Please handle this."), ANSWER], "billing": [INVOICE, done(ANSWER)]}, "billing"
            ),
        ),
        Seed(
            "look into it",
            lambda: team(
                {"desk": [ask("billing", "Look into it"), ANSWER], "billing": [INVOICE, done(ANSWER)]}, "billing"
            ),
        ),
        Seed(
            "the rest",
            lambda: team(
                {
                    "desk": [
                        [ask("billing", "Look up INV-311"), ask("shipping", "Do the rest of the work")],
                        f"{ANSWER} {FRIDAY}",
                    ],
                    "billing": [done(ANSWER)],
                    "shipping": [done(FRIDAY)],
                },
                "billing",
                "shipping",
            ),
        ),
        Seed(
            "a brief that names a kind of thing alone",
            lambda: team(
                {"desk": [ask("billing", "Check the invoice"), ANSWER], "billing": [INVOICE, done(ANSWER)]},
                "billing",
            ),
            missed=True,
        ),
    ),
    "no-progress": (
        Seed(
            "around three, until a bound",
            lambda: chat(
                {"a": [over("b")] * 9, "b": [over("c")] * 9, "c": [over("a")] * 9},
                "a",
                "b",
                "c",
                max_handoffs=7,
                escalate=True,
            ),
        ),
        Seed(
            "around three, then an answer",
            lambda: chat(
                {"a": [over("b"), over("c")], "b": [over("c")], "c": [over("a"), "Please call us."]}, "a", "b", "c"
            ),
        ),
        Seed(
            "with searches for nothing that fail",
            lambda: chat(
                {
                    "a": [over("b"), over("b"), "Please call us."],
                    "b": [call("nowhere"), over("c"), over("c")],
                    "c": [over("a"), over("a")],
                },
                "a",
                "b",
                "c",
            ),
        ),
        Seed(
            "around four",
            lambda: chat(
                {"a": [over("b"), over("b")], "b": [over("c"), "We call back."], "c": [over("d")], "d": [over("a")]},
                "a",
                "b",
                "c",
                "d",
            ),
        ),
    ),
    "evidence-withheld": (
        Seed(
            "beside one that gives it",
            lambda: team(
                {
                    "desk": [
                        [ask("billing", "Look up INV-311"), ask("shipping", "Where is A-7?")],
                        f"{ANSWER} {FRIDAY}",
                    ],
                    "billing": [INVOICE, done(ANSWER, "ledger.csv:4")],
                    "shipping": [PARCEL, done(FRIDAY)],
                },
                "billing",
                "shipping",
            ),
        ),
        Seed(
            "the second time",
            lambda: team(
                {
                    "desk": [
                        ask("billing", "Look up INV-311"),
                        ask("billing", "Who refunds a double charge?"),
                        f"{ANSWER} Ten days.",
                    ],
                    "billing": [INVOICE, done(ANSWER, "ledger.csv:4"), REFUND, done("A refund takes ten days.")],
                },
                "billing",
            ),
        ),
        Seed(
            "one of three",
            lambda: team(
                {
                    "desk": [
                        [ask("a", "Look up INV-311"), ask("b", "Where is A-7?"), ask("c", "When are refunds paid?")],
                        f"{ANSWER} {FRIDAY} Within ten days.",
                    ],
                    "a": [INVOICE, done(ANSWER, "ledger.csv:4")],
                    "b": [PARCEL, done(FRIDAY, "tracking.log:9")],
                    "c": [REFUND, done("A double charge is refunded within ten days.")],
                },
                "a",
                "b",
                "c",
            ),
        ),
        Seed(
            "all of them",
            lambda: team(
                {
                    "desk": [
                        [ask("billing", "Look up INV-311"), ask("shipping", "Where is A-7?")],
                        f"{ANSWER} {FRIDAY}",
                    ],
                    "billing": [INVOICE, done(ANSWER)],
                    "shipping": [PARCEL, done(FRIDAY)],
                },
                "billing",
                "shipping",
            ),
            missed=True,
        ),
    ),
    "unused-report": (
        Seed(
            "one of two",
            lambda: team(
                {
                    "desk": [[ask("billing", "Look up INV-311"), ask("shipping", "Where is A-7?")], ANSWER],
                    "billing": [done(ANSWER)],
                    "shipping": [done("It left Rotterdam and arrives on Friday.")],
                },
                "billing",
                "shipping",
            ),
        ),
        Seed(
            "the only one",
            lambda: team(
                {
                    "desk": [ask("billing", "Look up INV-311"), "Thank you for your patience, we call you back."],
                    "billing": [done("charged on May 2 and on May 3", "ledger.csv:4")],
                },
                "billing",
            ),
        ),
        Seed(
            "answered from memory",
            lambda: team(
                {
                    "desk": [ask("billing", "How long does a refund take?"), "It takes one month."],
                    "billing": [done("A double charge is paid back within ten days", "policy.md:12")],
                },
                "billing",
            ),
        ),
        Seed(
            "one number of it is used by chance",
            lambda: team(
                {
                    "desk": [ask("billing", "How long does a refund take?"), "We answer mails within ten hours."],
                    "billing": [done("A double charge is paid back within ten days")],
                },
                "billing",
            ),
            missed=True,
        ),
    ),
    "question-ignored": (
        Seed(
            "answered all the same",
            lambda: team(
                {
                    "desk": [ask("billing", "Was the invoice paid twice?"), "Yes, it was paid twice."],
                    "billing": [not_done("needs_input", "Which invoice is it about?")],
                },
                "billing",
            ),
        ),
        Seed(
            "one of two",
            lambda: team(
                {
                    "desk": [[ask("billing", "Was the invoice paid twice?"), ask("shipping", "Where is A-7?")], FRIDAY],
                    "billing": [not_done("needs_input", "Which invoice is it about?")],
                    "shipping": [done(FRIDAY)],
                },
                "billing",
                "shipping",
            ),
        ),
        Seed(
            "another was asked instead",
            lambda: team(
                {
                    "desk": [
                        ask("billing", "Was the invoice paid twice?"),
                        ask("shipping", "Where is A-7?"),
                        f"It was. {FRIDAY}",
                    ],
                    "billing": [not_done("needs_input", "Which invoice is it about?")],
                    "shipping": [done(FRIDAY)],
                },
                "billing",
                "shipping",
            ),
        ),
        Seed(
            "an answer that asks something else",
            lambda: team(
                {
                    "desk": [ask("billing", "Was the invoice paid twice?"), "It was paid twice. Anything else?"],
                    "billing": [not_done("needs_input", "Which invoice is it about?")],
                },
                "billing",
            ),
            missed=True,
        ),
    ),
    "says-one-does-another": (
        Seed(
            "another colleague",
            lambda: team(
                {
                    "desk": [
                        thinks("I will ask billing about the invoice.", ask("shipping", "Was INV-311 paid twice?")),
                        ANSWER,
                    ],
                    "billing": [],
                    "shipping": [done(ANSWER)],
                },
                "billing",
                "shipping",
            ),
        ),
        Seed("another tool", lambda: solo(thinks("I use search to find the invoice.", call("fetch", page=3)), ANSWER)),
        Seed(
            "in JSON",
            lambda: solo(
                in_json("I should call search for the invoice", call("fetch", page=3)),
                '{"reason": "it is there", "answer": "Twice."}',
                native=False,
            ),
        ),
        Seed(
            "a handoff to another",
            lambda: chat(
                {
                    "triage": [thinks("This is a bill, so I hand over to billing.", over("shipping"))],
                    "shipping": [FRIDAY],
                },
                "triage",
                "billing",
                "shipping",
            ),
        ),
        Seed(
            "without a word that says so",
            lambda: solo(thinks("Search is best here.", call("fetch", page=3)), ANSWER),
            missed=True,
        ),
    ),
    "action-not-taken": (
        Seed("the name alone", lambda: routed(done(ANSWER, action="refund"), right=False)),
        Seed("hand over to it", lambda: routed(done(ANSWER, action="Hand it over to refund."), right=False)),
        Seed(
            "pass it to it",
            lambda: routed(done(ANSWER, "ledger.csv:4", action="Pass this to the refund team"), right=False),
        ),
        Seed(
            "what is to be done, without a name",
            lambda: routed(done(ANSWER, action="pay 49.00 back"), right=False),
            missed=True,
        ),
    ),
    "overlapping-briefs": (
        Seed(
            "the same twice",
            lambda: team(
                {
                    "desk": [
                        [ask("billing", "Was INV-311 paid twice?"), ask("billing", "Was INV-311 paid twice?")],
                        ANSWER,
                    ],
                    "billing": [done(ANSWER), done(ANSWER)],
                },
                "billing",
            ),
        ),
        Seed(
            "in another order",
            lambda: team(
                {
                    "desk": [
                        [
                            ask("billing", "Find every charge of INV-311 in May"),
                            ask("billing", "In May, find every charge of INV-311"),
                        ],
                        ANSWER,
                    ],
                    "billing": [done(ANSWER), done(ANSWER)],
                },
                "billing",
            ),
        ),
        Seed(
            "two agents that are alike",
            lambda: team(
                {
                    "desk": [
                        [
                            ask("a", "Find all charges of INV-311 in May"),
                            ask("b", "Find all the charges of INV-311 in May"),
                        ],
                        ANSWER,
                    ],
                    "a": [done(ANSWER)],
                    "b": [done(ANSWER)],
                },
                "a",
                "b",
                instructions={"a": "You search.", "b": "You search."},
            ),
        ),
        Seed(
            "in other words",
            lambda: team(
                {
                    "desk": [
                        [
                            ask("billing", "Was INV-311 paid twice?"),
                            ask("billing", "Is there a double payment of INV-311?"),
                        ],
                        ANSWER,
                    ],
                    "billing": [done(ANSWER), done(ANSWER)],
                },
                "billing",
            ),
            missed=True,
        ),
    ),
}
