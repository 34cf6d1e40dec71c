"""Seeded runs for the rules about what a team was told to do: MAST 1.1 to 1.5."""

from typing import Final

from graphflow import Report
from graphflow.testing import call
from tests.lint.builders import Seed, ask, broken, chat, done, fetch, over, search, solo, status, team

INVOICE: Final = call("search", text="invoice")
PARCEL: Final = call("search", text="parcel")
ANSWER: Final = "INV-311 was charged twice, on May 2 and on May 3."

BAD_STEPS: Final[dict[str, tuple[Seed, ...]]] = {
    "contract-broken": (
        Seed("a number instead of a report", lambda: solo('{"finding": 1}', '{"finding": 2}', tools=(), output=Report)),
        Seed("an answer that is empty", lambda: solo("", "", tools=())),
        Seed(
            "a report that is done and says nothing", lambda: solo('{"finding": ""}', '{"finding": " "}', output=Report)
        ),
        Seed("words where a number is owed", lambda: solo("four", "about four", tools=(), output=int)),
    ),
    "not-offered": (
        Seed(
            "the tool of a colleague",
            lambda: team(
                {
                    "desk": [call("search", text="invoice"), ask("billing", "Look up INV-311"), ANSWER],
                    "billing": [done(ANSWER)],
                },
                "billing",
            ),
        ),
        Seed("a tool that nobody has", lambda: solo(call("refund_now", number="INV-311"), ANSWER)),
        Seed(
            "a colleague that is not on the team",
            lambda: team(
                {
                    "desk": [ask("legal", "Is INV-311 due?"), ask("billing", "Is INV-311 due?"), ANSWER],
                    "billing": [done(ANSWER)],
                },
                "billing",
            ),
        ),
        Seed(
            "a handoff to nobody",
            lambda: chat({"triage": [over("sales"), "Sorry, I cannot pass this on."]}, "triage", "billing"),
        ),
    ),
    "same-step-again": (
        Seed("the same search three times", lambda: solo(INVOICE, INVOICE, INVOICE, ANSWER)),
        Seed("at once", lambda: solo([INVOICE, INVOICE, INVOICE], ANSWER)),
        Seed(
            "written in other letters",
            lambda: solo(
                call("search", text="Invoice"),
                call("search", text="invoice "),
                call("search", text="INVOICE"),
                ANSWER,
            ),
        ),
        Seed(
            "a tool that fails each time",
            lambda: solo(*[call("broken", text="INV-311")] * 4, "I could not.", tools=(broken,)),
        ),
        Seed(
            "with others between",
            lambda: solo(INVOICE, PARCEL, INVOICE, call("search", text="refund"), INVOICE, ANSWER),
        ),
        Seed(
            "the same in other words",
            lambda: solo(
                call("search", text="invoice INV-311"),
                call("search", text="invoice 311"),
                call("search", text="invoice number 311"),
                ANSWER,
            ),
            missed=True,
        ),
    ),
    "asked-again": (
        Seed(
            "the same brief in the next turn",
            lambda: team(
                {
                    "desk": [
                        ask("billing", "Was INV-311 paid twice?"),
                        ask("billing", "Was INV-311 paid twice?"),
                        ANSWER,
                    ],
                    "billing": [done(ANSWER), done(ANSWER)],
                },
                "billing",
            ),
        ),
        Seed(
            "in other letters",
            lambda: team(
                {
                    "desk": [
                        ask("billing", "Was INV-311 paid twice?"),
                        ask("billing", "was  INV-311 paid twice?"),
                        ANSWER,
                    ],
                    "billing": [done(ANSWER), done("INV-311 was charged on two days.")],
                },
                "billing",
            ),
        ),
        Seed(
            "with another between",
            lambda: team(
                {
                    "desk": [
                        ask("billing", "Look up INV-311"),
                        ask("shipping", "Where is A-7?"),
                        ask("billing", "Look up INV-311"),
                        ANSWER + " A-7 arrives on Friday.",
                    ],
                    "billing": [done(ANSWER), done(ANSWER)],
                    "shipping": [done("A-7 arrives on Friday.")],
                },
                "billing",
                "shipping",
            ),
        ),
        Seed(
            "the same in other words",
            lambda: team(
                {
                    "desk": [
                        ask("billing", "Was INV-311 paid twice?"),
                        ask("billing", "Is INV-311 a double payment?"),
                        ANSWER,
                    ],
                    "billing": [done(ANSWER), done(ANSWER)],
                },
                "billing",
            ),
            missed=True,
        ),
    ),
    "to-and-fro": (
        Seed(
            "two rounds, then a bound",
            lambda: chat(
                {"triage": [over("billing")] * 9, "billing": [over("triage")] * 9},
                "triage",
                "billing",
                max_handoffs=6,
                escalate=True,
            ),
        ),
        Seed(
            "two rounds, then an answer",
            lambda: chat(
                {
                    "triage": [over("billing"), over("billing"), "Please call us."],
                    "billing": [over("triage"), over("triage")],
                },
                "triage",
                "billing",
            ),
        ),
        Seed(
            "with another note each time",
            lambda: chat(
                {
                    "triage": [over("billing", f"Charged twice, {n}") for n in range(9)],
                    "billing": [over("triage", f"Not a bill, {n}") for n in range(9)],
                },
                "triage",
                "billing",
                max_handoffs=8,
                escalate=True,
            ),
        ),
        Seed(
            "after a good beginning",
            lambda: chat(
                {
                    "triage": [INVOICE, over("billing"), over("billing"), over("billing"), "Please call us."],
                    "billing": [over("triage"), over("triage"), over("triage")],
                },
                "triage",
                "billing",
            ),
        ),
    ),
    "bare-handoff": (
        Seed(
            "an empty note",
            lambda: chat({"triage": [INVOICE, over("billing", "")], "billing": [ANSWER]}, "triage", "billing"),
        ),
        Seed(
            "a note that says nothing",
            lambda: chat(
                {"triage": [INVOICE, over("billing", "Please do this.")], "billing": [ANSWER]}, "triage", "billing"
            ),
        ),
        Seed(
            "a dot",
            lambda: chat({"triage": [INVOICE, PARCEL, over("billing", ".")], "billing": [ANSWER]}, "triage", "billing"),
        ),
        Seed(
            "a note that leaves out what was found",
            lambda: chat(
                {"triage": [INVOICE, over("billing", "An angry customer.")], "billing": [ANSWER]},
                "triage",
                "billing",
            ),
            missed=True,
        ),
    ),
    "bound-for-an-end": (
        Seed("max_turns", lambda: solo(*[call("fetch", page=n) for n in range(9)], max_turns=4)),
        Seed(
            "max_turns of a callee",
            lambda: team(
                {
                    "desk": [ask("billing", "Read the ledger"), "Billing could not finish."],
                    "billing": [call("fetch", page=n) for n in range(20)],
                },
                "billing",
            ),
        ),
        Seed(
            "max_handoffs",
            lambda: chat(
                {"triage": [over("billing")] * 3, "billing": [over("triage")] * 3},
                "triage",
                "billing",
                max_handoffs=3,
                escalate=True,
            ),
        ),
        Seed(
            "the handoffs of a graph without escalate",
            lambda: chat(
                {"triage": [over("billing")] * 3, "billing": [over("triage")] * 3},
                "triage",
                "billing",
                max_handoffs=2,
            ),
        ),
    ),
    "goes-on-without-news": (
        Seed(
            "three searches for nothing",
            lambda: solo(
                INVOICE,
                *[call("search", text=word) for word in ("charge", "double", "twice", "again")],
                ANSWER,
            ),
        ),
        Seed(
            "until its turns are over",
            lambda: solo(
                INVOICE,
                *[call("search", text=f"word {n}") for n in range(9)],
                max_turns=6,
            ),
        ),
        Seed(
            "several at once",
            lambda: solo(
                [INVOICE, PARCEL],
                *[[call("search", text=f"x{n}"), call("search", text=f"y{n}")] for n in range(4)],
                ANSWER,
            ),
        ),
        Seed(
            "a callee",
            lambda: team(
                {
                    "desk": [ask("billing", "Look up INV-311"), ANSWER],
                    "billing": [INVOICE, *[call("search", text=f"word {n}") for n in range(4)], done(ANSWER)],
                },
                "billing",
            ),
        ),
        Seed(
            "two searches for nothing, which may well be needed",
            lambda: solo(
                INVOICE,
                *[call("search", text=word) for word in ("charge", "double")],
                ANSWER,
            ),
            missed=True,
        ),
    ),
}

GOOD_STEPS: Final[tuple[Seed, ...]] = (
    Seed(
        "a handoff without a note by one who has found nothing",
        lambda: chat({"triage": [over("billing", "")], "billing": [INVOICE, ANSWER]}, "triage", "billing"),
    ),
    Seed("an answer that is repaired", lambda: solo("four", "4", tools=(), output=int)),
    Seed("a plain answer", lambda: solo(ANSWER, tools=())),
    Seed("a search and an answer", lambda: solo(INVOICE, ANSWER)),
    Seed("the same search twice", lambda: solo(INVOICE, PARCEL, INVOICE, ANSWER)),
    Seed("page after page", lambda: solo(*[call("fetch", page=n) for n in range(6)], ANSWER)),
    Seed("a tool that is polled twice", lambda: solo(call("status"), call("status"), ANSWER, tools=(status,))),
    Seed(
        "a tool that fails, then another",
        lambda: solo(call("broken", text="x"), INVOICE, ANSWER, tools=(broken, search, fetch)),
    ),
    Seed(
        "searches that find nothing, before one that does",
        lambda: solo(
            *[call("search", text=f"word {n}") for n in range(4)],
            INVOICE,
            ANSWER,
        ),
    ),
    Seed("an answer at the last turn", lambda: solo(*[call("fetch", page=n) for n in range(3)], ANSWER, max_turns=4)),
    Seed(
        "two briefs to one callee",
        lambda: team(
            {
                "desk": [
                    ask("billing", "Was INV-311 paid twice?"),
                    ask("billing", "Who refunds INV-311?"),
                    f"{ANSWER} We refund it.",
                ],
                "billing": [done(ANSWER), done("We refund it.")],
            },
            "billing",
        ),
    ),
    Seed(
        "asked again after it had failed",
        lambda: team(
            {
                "desk": [ask("billing", "Look up INV-311"), ask("billing", "Look up INV-311"), ANSWER],
                "billing": [
                    Report.model_validate({"status": "failed", "reason": "the ledger is closed"}),
                    done(ANSWER),
                ],
            },
            "billing",
        ),
    ),
    Seed(
        "a handoff that is given back once",
        lambda: chat(
            {
                "triage": [over("shipping"), over("billing")],
                "shipping": [over("triage", "INV-311 is a bill.")],
                "billing": [INVOICE, ANSWER],
            },
            "triage",
            "shipping",
            "billing",
        ),
    ),
    Seed(
        "to and fro with something new each time",
        lambda: chat(
            {
                "triage": [over("billing"), over("billing"), over("billing"), "It is settled, you get a refund."],
                "billing": [
                    INVOICE,
                    over("triage"),
                    PARCEL,
                    over("triage"),
                    call("search", text="refund"),
                    over("triage"),
                ],
            },
            "triage",
            "billing",
        ),
    ),
    Seed(
        "a handoff before anything was found",
        lambda: chat({"triage": [over("billing")], "billing": [INVOICE, ANSWER]}, "triage", "billing"),
    ),
    Seed(
        "a handoff with the whole thread",
        lambda: chat(
            {"triage": [INVOICE, over("billing", "Over to you.")], "billing": [ANSWER]},
            "triage",
            "billing",
            history="full",
        ),
    ),
    Seed(
        "a tool that is polled again and again",
        lambda: solo(*[call("status")] * 4, ANSWER, tools=(status,)),
        missed=True,
    ),
)
