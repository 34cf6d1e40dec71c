"""What tests share that is not a fixture."""

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "graphflow"

FULL: Final = os.environ.get("GRAPHFLOW_FULL", "") not in {"", "0"}


def examples(full: int) -> int:
    """How many examples a property runs: `full` when GRAPHFLOW_FULL is set, a tenth otherwise, never none.

    Use it as `@settings(max_examples=examples(1000))`.
    """
    return full if FULL else max(1, full // 10)
