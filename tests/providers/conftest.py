"""Keys for the tests' server, and nothing of the environment's own."""

from pathlib import Path

import pytest

from tests.providers.helpers import KEY

# On trio, the packages of OpenAI and Anthropic leave generators behind that are not exhausted; nothing of them is open.
LEFT_BEHIND = "ignore:Async generator '(openai|anthropic|httpx2|httpcore2):ResourceWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let what the packages of the providers leave behind on trio be no error here."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(LEFT_BEHIND))


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of the tests' server is in the environment, and no address."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, KEY)
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
