"""The loop behind the tool servers is nobody's but theirs: it may block, as no run does."""

import pytest
from blockbuster import BlockBuster


@pytest.fixture(scope="session", autouse=True)
def _backstage_may_block(blockbuster: BlockBuster) -> None:
    """Lifts the guard for what happens in that thread."""
    for function in blockbuster.functions.values():
        function.can_block_in("graphflow/mcp/backstage.py", "_work")
