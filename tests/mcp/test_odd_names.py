"""What nobody would name so on purpose: tools, fields and links of strangers."""

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field

from graphflow import END, START, Context, Graph, State, node, secret
from graphflow.mcp.files import Folder
from graphflow.mcp.offered import names_of
from graphflow.mcp.serving import _served  # pyright: ignore[reportPrivateUsage]


class Login(Context):
    """Who asks, and with what."""

    who: str
    number: int
    token: Annotated[str, secret] = Field("none", alias="apiToken")


@node
async def greet(state: State[Login]) -> str:
    """Greet somebody."""
    return f"Hello, {state.context.who}."


def test_a_secret_is_offered_under_none_of_its_names() -> None:
    """A client of the protocol sees neither the field nor what stands in it."""
    graph = Graph("greet", START >> greet >> END, context=Login)

    [served] = _served([graph]).values()

    assert set(served.offered.input_schema["properties"]) == {"who", "number"}


def test_no_two_tools_have_one_name() -> None:
    """Not even where somebody has called a tool what another one is shortened to."""
    [_, taken] = names_of(["read file", "read/file"], "").values()

    made = names_of(["read file", "read/file", taken], "")

    assert len(set(made.values())) == len(made) == 3


def test_a_link_that_leads_to_itself_hides_no_document(tmp_path: Path) -> None:
    """It is no document, and the others are found."""
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "a.txt").write_text("It is here.")

    documents = Folder(tmp_path)

    assert documents.search("here") == "a.txt:1: It is here."
    with pytest.raises(ValueError, match="is not in the folder"):
        documents.read_document("loop")
