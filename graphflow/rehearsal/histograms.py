"""A rehearsal as a picture: small histograms side by side, with budget and worst case marked, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from graphflow.rehearsal.results import Rehearsal, summary_of
from graphflow.rehearsal.table import WORDS, all_active, written
from graphflow.visualize.text import cells, clip, shown

WIDTH, HEIGHT = 380, 206
"""The size of one panel."""

LEFT, TOP, RIGHT, BOTTOM = 16, 60, 16, 34
"""What stands around the bars of a panel."""

GAP, HEAD, FOOT = 16, 66, 26
BINS: Final = 28
MOST_ENDS: Final = 6
FAR: Final = 3.0
"""A bound this many times as far as the largest sample is named at the margin; the bars would be slim otherwise."""

WHOLE: Final = frozenset(("model_calls", "tool_calls", "node_runs", "hops"))

STYLE: Final = """\
<style>
text { font: 12px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2937 }
.title { font-size: 16px; font-weight: 600 }
.name { font-size: 13px; font-weight: 600 }
.soft { fill: #4b5563 }
.ground { fill: #ffffff }
.panel { fill: #f8fafc; stroke: #e5e7eb }
.bar { fill: #60a5fa }
.good { fill: #4ade80 }
.half { fill: #fbbf24 }
.bad { fill: #f87171 }
.axis { stroke: #9ca3af }
.mark { stroke: #1f2937; stroke-dasharray: 2 2 }
.budget { stroke: #b45309; stroke-width: 2 }
.worst { stroke: #b91c1c; stroke-width: 2; stroke-dasharray: 6 3 }
.of-budget { fill: #b45309 }
.of-worst { fill: #b91c1c }
@media (prefers-color-scheme: dark) {
text { fill: #e5e7eb }
.soft { fill: #9ca3af }
.ground { fill: #0f172a }
.panel { fill: #1e293b; stroke: #334155 }
.bar { fill: #3b82f6 }
.good { fill: #16a34a }
.half { fill: #b45309 }
.bad { fill: #dc2626 }
.axis { stroke: #64748b }
.mark { stroke: #e5e7eb }
.budget { stroke: #fbbf24 }
.worst { stroke: #f87171 }
.of-budget { fill: #fbbf24 }
.of-worst { fill: #f87171 }
}
</style>"""


class Bound(NamedTuple):
    """A number that is marked beside the samples."""

    kind: str
    words: str
    at: float


def plot(found: Rehearsal) -> str:
    """Draw a rehearsal as SVG text: wall time, calls, tokens or cost, and how the runs end.

    It is readable in light and dark, nothing in it points outside, and every text is escaped.
    """
    cost = "usd" if any(found.numbers("usd")) else "tokens"
    panels = [_histogram(found, measure) for measure in ("seconds", "model_calls", cost)]
    panels.append(_ends(found))
    width, height = 2 * WIDTH + 3 * GAP, HEAD + 2 * (HEIGHT + GAP) + FOOT
    runs = f"{found.runs:,} run{'s' * (found.runs != 1)}"
    name = shown(found.graph, 60)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"',
        f'role="img" aria-label="{_attribute(f"rehearsal of {name}, {runs}")}">',
        STYLE,
        f'<rect class="ground" width="{width}" height="{height}"/>',
        _text(GAP, 29, f"rehearsal of {name}", "title"),
        _text(GAP, 50, f"{runs}, seed {found.seed}, stand-ins for models, tools and people", "soft"),
    ]
    for index, panel in enumerate(panels):
        x = GAP + (index % 2) * (WIDTH + GAP)
        y = HEAD + (index // 2) * (HEIGHT + GAP)
        lines += [f'<g transform="translate({x} {y})">', *panel, "</g>"]
    lines += [*_legend(height - 14), "</svg>"]
    return "\n".join(lines) + "\n"


def _histogram(found: Rehearsal, measure: str) -> list[str]:
    numbers = found.numbers(measure)
    summary = summary_of(numbers)
    bounds = list(_bounds(found, measure))
    near = [bound for bound in bounds if bound.at <= FAR * max(summary.most, 1e-9)]
    last = max([summary.most, *(bound.at for bound in near)])
    whole = measure in WHOLE and last <= BINS
    high = last + 1 if whole else (last or 1.0) * 1.02
    count = int(high) if whole else BINS
    bars = [0] * count
    for number in numbers:
        bars[min(int(number / high * count), count - 1)] += 1
    inner, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(number: float) -> float:
        return LEFT + (number + (0.5 if whole else 0.0)) / high * inner

    lines = [*_frame(WORDS[measure])]
    lines.append(_text(LEFT, 40, f"p50 {written(measure, summary.p50)}", "soft"))
    lines.append(_text(WIDTH / 2, 40, f"p90 {written(measure, summary.p90)}", "soft", "middle"))
    lines.append(_text(WIDTH - RIGHT, 40, f"max {written(measure, summary.most)}", "soft", "end"))
    size = inner / count
    for index, bar in enumerate(bars):
        if bar:
            high_bar = max(1.0, bar / max(bars) * tall)
            lines.append(_rect("bar", LEFT + index * size + 0.5, TOP + tall - high_bar, max(size - 1, 0.5), high_bar))
    base = TOP + tall
    lines.append(f'<line class="axis" x1="{LEFT}" y1="{base}" x2="{LEFT + inner}" y2="{base}"/>')
    lines += [_line("mark", place(number), TOP, base) for number in sorted({summary.p50, summary.p90})]
    lines += [_line(bound.kind, place(bound.at), TOP - 6, base) for bound in near]
    lines.append(_text(LEFT, base + 18, written(measure, 0), "soft"))
    far = [f"{bound.words} {written(measure, bound.at)} →" for bound in bounds if bound not in near]
    lines.append(_text(WIDTH - RIGHT, base + 18, "   ".join(far) or written(measure, last), "soft", "end"))
    return lines


def _bounds(found: Rehearsal, measure: str) -> Iterator[Bound]:
    budget = found.budget_of("active" if measure == "seconds" and all_active(found) else measure)
    if budget is not None:
        yield Bound("budget", "budget", budget)
    worst = found.worst_of(measure)
    if worst is not None and math.isfinite(worst):
        yield Bound("worst", "worst case", worst)


def _ends(found: Rehearsal) -> list[str]:
    lines = _frame("how they end")
    ends = [(end.status, str(end), count) for end, count in found.ends.items()]
    if len(ends) > MOST_ENDS:
        rest = ends[MOST_ENDS - 1 :]
        ends = [*ends[: MOST_ENDS - 1], ("failed", f"{len(rest)} other ends", sum(count for _, _, count in rest))]
    step = (HEIGHT - 44) / MOST_ENDS
    inner = WIDTH - LEFT - RIGHT
    for index, (status, words, count) in enumerate(ends):
        y = 34 + index * step
        share = count / found.runs
        kind = {"completed": "good", "partial": "half"}.get(status, "bad")
        lines.append(_rect(kind, LEFT, y + 15, max(1.0, share * inner), 5))
        lines.append(_text(LEFT, y + 11, clip(shown(words), 44)))
        lines.append(_text(WIDTH - RIGHT, y + 11, f"{share:.1%}", "soft", "end"))
    return lines


def _legend(y: float) -> Iterator[str]:
    x = float(GAP)
    for kind, words in (("mark", "p50 and p90"), ("budget", "budget"), ("worst", "worst case, proved")):
        yield f'<line class="{kind}" x1="{x:.1f}" y1="{y - 4:.1f}" x2="{x + 24:.1f}" y2="{y - 4:.1f}"/>'
        yield _text(x + 30, y, words, {"budget": "of-budget", "worst": "of-worst"}.get(kind, "soft"))
        x += 30 + 7 * cells(words) + 24


def _frame(name: str) -> list[str]:
    return [f'<rect class="panel" width="{WIDTH}" height="{HEIGHT}" rx="6"/>', _text(LEFT, 20, name, "name")]


def _rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'


def _line(kind: str, x: float, top: float, base: float) -> str:
    return f'<line class="{kind}" x1="{x:.1f}" y1="{top:.1f}" x2="{x:.1f}" y2="{base:.1f}"/>'


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "") -> str:
    classes = f' class="{kind}"' if kind else ""
    end = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{classes}{end}>{escape(text)}</text>'


def _attribute(text: str) -> str:
    return escape(text, {'"': "&quot;"})
