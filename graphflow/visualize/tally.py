"""What was spent, added up from the events of a run."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from graphflow.events import Body, EffectStarted, Spent
from graphflow.model.budget import Budget
from graphflow.visualize.text import count


@dataclass(slots=True)
class Tally:
    """A sum of what effects really used.

    Attributes:
        model_calls, tool_calls, tokens, usd: as in `Budget`.
    """

    model_calls: int = 0
    tool_calls: int = 0
    tokens: int = 0
    usd: Decimal = Decimal(0)

    def add(self, body: Body | Tally) -> None:
        """Add what was spent: counts when an effect starts, tokens and money when it settles."""
        match body:
            case Tally():
                self.model_calls += body.model_calls
                self.tool_calls += body.tool_calls
                self.tokens += body.tokens
                self.usd += body.usd
            case EffectStarted(reserved=Budget() as counts):
                self.model_calls += counts.model_calls or 0
                self.tool_calls += counts.tool_calls or 0
            case Spent(usage=usage):
                self.tokens += usage.tokens or 0
                self.usd += usage.usd or 0
            case _:
                pass

    def words(self) -> tuple[str, ...]:
        """Say what was spent, leaving out what was not.

        >>> spent = Tally(model_calls=2, usd=Decimal("0.0100"))
        >>> spent.words()
        ('2 model calls', '$0.01')
        """
        words: list[str] = []
        if self.model_calls:
            words.append(count(self.model_calls, "model call"))
        if self.tool_calls:
            words.append(count(self.tool_calls, "tool call"))
        if self.tokens:
            words.append(count(self.tokens, "token"))
        if self.usd:
            words.append(f"${self.usd.normalize():f}")
        return tuple(words)
