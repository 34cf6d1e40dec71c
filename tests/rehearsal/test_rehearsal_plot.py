"""The table and the picture of a rehearsal."""

import re
from collections.abc import Iterator
from decimal import Decimal
from xml.etree import ElementTree as ET

import pytest

from graphflow import END, START, Agent, Budget, Context, Graph, Human, Price
from graphflow.rehearsal import Choices, Rehearsal, plot, rehearse_sync
from graphflow.rehearsal.table import table, written
from graphflow.testing import ScriptedModel

SVG = "{http://www.w3.org/2000/svg}"
ODD = 'a<b> & "c" \x1b[2J </svg>'


class Case(Context):
    question: str = "Why?"


def rehearsal(name: str = "desk", runs: int = 50, usd: str | None = None) -> Rehearsal:
    """Two agents, one after the other, and a person."""
    agents = [Agent(f"{name}{number}", model=ScriptedModel(), max_turns=2, retries=1) for number in range(2)]
    person = Human("person", schema=bool)
    graph = Graph(
        name, START >> agents[0] >> agents[1] >> person >> END, context=Case,
        budget=Budget(model_calls=4, usd=usd, seconds=9),
    )  # fmt: skip
    price = None if usd is None else Price(Decimal("0.0001"), Decimal("0.0002"))
    return rehearse_sync(graph, Case(), runs=runs, price=price, failure_rate=0.3)


def texts(picture: str) -> list[str]:
    """All that is written in a picture."""
    return ["".join(found.itertext()) for found in ET.fromstring(picture).iter(f"{SVG}text")]


def test_a_picture_has_four_panels() -> None:
    """Wall time, model calls, cost, and the ends, each with its name."""
    found = rehearsal(usd="0.20")

    said = texts(plot(found))

    assert [name for name in said if name in {"wall time", "model calls", "cost", "how they end"}] == [
        "wall time", "model calls", "cost", "how they end",
    ]  # fmt: skip
    assert "50 runs, seed 0, stand-ins for models, tools and people" in said


def test_without_money_tokens_are_drawn() -> None:
    """A histogram of nothing says nothing."""
    said = texts(plot(rehearsal()))

    assert "tokens" in said
    assert "cost" not in said


def test_budget_and_worst_case_are_marked() -> None:
    """A line where they are near, words where they are far away."""
    near = plot(rehearsal(usd="0.20"))
    far = plot(rehearsal(usd="99"))

    assert len(re.findall(r'class="budget"', near)) == len(re.findall(r'class="budget"', far)) + 1
    assert len(re.findall(r'class="worst"', near)) == 2  # one of them in the legend
    assert "budget $99.00 →" in texts(far)


def test_any_text_is_a_name() -> None:
    """A name that is markup or moves a cursor is shown, and does nothing; nothing points outside."""
    found = rehearsal(ODD)

    picture = plot(found)

    said = " ".join(texts(picture))
    assert r'a<b> & "c" \x1b[2J </svg>' in said
    assert "\x1b" not in picture
    assert "\x1b" not in table(found)
    assert not re.search(r"href|url\(|<script|<image|@import", picture)


def test_a_picture_is_made_of_its_rehearsal_alone() -> None:
    """The same rehearsal gives the same text, and every bar lies inside of its panel."""
    picture = plot(rehearsal())

    assert picture == plot(rehearsal())
    for bar in ET.fromstring(picture).iter(f"{SVG}rect"):
        assert float(bar.get("x", "0")) + float(bar.get("width", "0")) <= 900
        assert float(bar.get("height", "0")) > 0


@pytest.mark.parametrize("runs", [1, 2])
def test_few_runs_have_a_picture_too(runs: int) -> None:
    """Of one run all percentiles are that run."""
    found = rehearsal(runs=runs)

    assert "0 s" in texts(plot(found))
    assert f"{runs} run" in table(found)


def test_many_ends_are_gathered() -> None:
    """A picture shows the most frequent ones, and how many others there are."""
    agents = [Agent(f"agent{number}", model=ScriptedModel()) for number in range(9)]
    chain = START >> agents[0]
    for agent in agents[1:]:
        chain = chain >> agent
    found = rehearse_sync(Graph("long", chain >> END, context=Case), Case(), runs=400, failure_rate=0.15)

    said = texts(plot(found))

    assert len(found.ends) == 10
    assert "5 other ends" in said


def test_a_table_stands_beside_what_is_proved() -> None:
    """Each measure has its percentiles, the worst case and the budget; columns that are empty are left out."""
    found = rehearsal(usd="0.20")

    lines = str(found).splitlines()

    assert lines[0] == "rehearsal of desk: 50 runs, seed 0"
    head = lines[2].split()
    assert head == ["min", "p50", "p90", "p99", "max", "mean", "worst", "case", "budget"]
    calls = next(line for line in lines if line.startswith("  model calls"))
    assert calls.split()[-2:] == ["4", "4"]
    assert next(line for line in lines if line.startswith("  active time")).split()[-2:] == ["9", "s"]
    assert any(line.startswith("  people answer after") for line in lines)


@pytest.mark.parametrize(
    ("measure", "number", "text"),
    [
        ("seconds", 0.0, "0 s"),
        ("seconds", 59.96, "60.0 s"),
        ("seconds", 120.0, "2 min"),
        ("seconds", 7325.0, "2 h 02 min"),
        ("usd", 0.0, "$0"),
        ("seconds", 419_280.0, "116 h"),
        ("usd", 12.345, "$12.35"),
        ("usd", 12345.6, "$12,345.60"),
        ("tokens", 1234567.0, "1,234,567"),
        ("hops", 2.5, "2.50"),
        ("hops", None, ""),
    ],
)
def test_numbers_are_written_as_people_read_them(measure: str, number: float | None, text: str) -> None:
    """As many digits as mean something, and a unit."""
    assert written(measure, number) == text


def test_choices_are_probabilities() -> None:
    """The defaults are ones that agents keep their bounds with, mostly."""
    assert Choices() == Choices(act=0.9, fading=0.3, several=0.4, hand_over=0.7)


def test_no_text_overlaps_another() -> None:
    """However long the name, the times and the amounts are."""
    agent = Agent("desk", model=ScriptedModel(), max_turns=3)
    graph = Graph(
        "a name that is as long as a name in a picture can be, and more", START >> agent >> END, context=Case,
        budget=Budget(model_calls=9, usd="99999", seconds=900_000),
    )  # fmt: skip
    price = Price(Decimal("0.3"), Decimal("1.5"))
    for latency in (137.0, 8_000.0, 359_000.0):
        found = rehearse_sync(
            graph, Case(), runs=20, latency=f"lognormal:{latency},0.7", tokens="lognormal:800,1", price=price
        )

        boxes = list(boxes_of(plot(found)))

        for at, (row, left, right, text) in enumerate(boxes):
            assert left >= 0
            assert right <= 808, text
            assert not [one for one in boxes[:at] if one[0] == row and one[1] < right and left < one[2]], text


def boxes_of(picture: str) -> Iterator[tuple[tuple[str, float], float, float, str]]:
    """Yield where each text stands: its panel and line, from where to where at about 7 pixels a letter, and itself."""
    root = ET.fromstring(picture)
    groups = [("", root), *((group.get("transform", ""), group) for group in root.findall(f"{SVG}g"))]
    for panel, group in groups:
        for found in group.findall(f"{SVG}text"):
            text = "".join(found.itertext())
            size = len(text) * (10.0 if found.get("class") == "title" else 7.0)
            back = {"end": size, "middle": size / 2}.get(found.get("text-anchor", ""), 0.0)
            left = float(found.get("x", "0")) - back
            yield (panel, float(found.get("y", "0"))), left, left + size, text
