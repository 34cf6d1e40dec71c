"""What tests of graphs need: scripted models, a clock that jumps, a journal in memory, traces, checks of journals."""

from graphflow.persistence.memory import MemoryJournal as MemoryJournal
from graphflow.testing.clock import ManualClock as ManualClock
from graphflow.testing.journals import journal_checks as journal_checks
from graphflow.testing.models import Answer as Answer
from graphflow.testing.models import RuleModel as RuleModel
from graphflow.testing.models import ScriptedModel as ScriptedModel
from graphflow.testing.models import call as call
from graphflow.testing.stored import read_journal as read_journal
from graphflow.testing.stored import replayed as replayed
from graphflow.testing.strategies import strategy_violations as strategy_violations
from graphflow.testing.trace import canonical_trace as canonical_trace
from graphflow.testing.trace import fold_again as fold_again
from graphflow.testing.trace import records_of as records_of

__all__ = (
    "Answer",
    "ManualClock",
    "MemoryJournal",
    "RuleModel",
    "ScriptedModel",
    "call",
    "canonical_trace",
    "fold_again",
    "journal_checks",
    "read_journal",
    "records_of",
    "replayed",
    "strategy_violations",
)
