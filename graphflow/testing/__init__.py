"""What tests of graphs need: a clock that jumps, a journal in memory, and a trace that timing does not change."""

from graphflow.persistence.memory import MemoryJournal as MemoryJournal
from graphflow.testing.clock import ManualClock as ManualClock
from graphflow.testing.trace import canonical_trace as canonical_trace
from graphflow.testing.trace import fold_again as fold_again
