"""The file server: what it shows of a folder, and that it shows nothing else."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import pytest

from graphflow import run
from graphflow.mcp import McpServer
from graphflow.mcp.files import Folder, main
from graphflow.testing import call
from tests.mcp.support import Ask, asking, told


@pytest.fixture(name="folder")
def some_documents(tmp_path: Path) -> Path:
    """A folder of two documents, with much else in it and beside it."""
    folder = tmp_path / "documents"
    (folder / "reports").mkdir(parents=True)
    (folder / "rivers.md").write_text("# Rivers\nThe Elbe is 1,094 km long.\nThe Rhine is longer.\n", "utf-8")
    (folder / "reports" / "lakes.txt").write_text("\n".join(f"lake {number}" for number in range(1, 501)), "utf-8")
    (folder / ".env").write_text("KEY=1", "utf-8")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("Elbe", "utf-8")
    (folder / "photo.jpg").write_bytes(b"\x00\x01")
    (folder / "large.txt").write_bytes(b"x" * 2_000_001)
    (tmp_path / "secret.txt").write_text("the Elbe is secret", "utf-8")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "inner.txt").symlink_to(folder / "rivers.md")
    (folder / "out").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    return folder


def test_documents_are_listed_with_their_lines(folder: Path) -> None:
    """What is hidden, no text, too large, or elsewhere is not among them."""
    found = Folder(folder).list_documents().splitlines()

    assert found == ["inner.txt (3 lines)", "rivers.md (3 lines)", "reports/lakes.txt (500 lines)"]


def test_lines_are_read_with_their_numbers(folder: Path) -> None:
    """So that they can be cited; long documents come in parts."""
    documents = Folder(folder)

    assert documents.read_document("rivers.md", 2, 1) == "2: The Elbe is 1,094 km long.\n[1 more lines]"
    assert (
        documents.read_document("rivers.md", -5)
        == "1: # Rivers\n2: The Elbe is 1,094 km long.\n3: The Rhine is longer."
    )
    assert len(documents.read_document("reports/lakes.txt", 1, 10_000).splitlines()) == 401
    assert documents.read_document("rivers.md", 9) == "rivers.md has 3 lines."


def test_a_text_is_found_with_its_place(folder: Path) -> None:
    """Each line that has it comes as path:line: text."""
    documents = Folder(folder)

    assert documents.search("elbe").splitlines() == [
        "inner.txt:2: The Elbe is 1,094 km long.", "rivers.md:2: The Elbe is 1,094 km long.",
    ]  # fmt: skip
    assert documents.search("Danube") == "'Danube' stands in no document."
    assert documents.search("lake").splitlines()[-1] == "[there may be more: look for something longer]"
    with pytest.raises(ValueError, match="give a text"):
        documents.search("  ")


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt", "reports/../../secret.txt", "link.txt", "out/secret.txt", ".env", ".git/config", "pipe",
        "reports", "photo.jpg", "large.txt", "", "a\0b", "nowhere.md", "./../documents/../secret.txt", "\ud800",
    ],
)  # fmt: skip
def test_nothing_else_is_read(folder: Path, path: str) -> None:
    """However it is asked for."""
    with pytest.raises(ValueError, match=r"."):
        Folder(folder).read_document(path)


def test_no_absolute_path_is_read(folder: Path) -> None:
    """Not even that of a document."""
    with pytest.raises(ValueError, match="give a path as list_documents shows it"):
        Folder(folder).read_document(str(folder / "rivers.md"))


def test_an_empty_folder_says_so(tmp_path: Path) -> None:
    """A model is not left with nothing."""
    assert Folder(tmp_path).list_documents() == "There are no documents."


def test_it_needs_one_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bad use is said on stderr."""
    assert (main([]), main([str(tmp_path / "nowhere")])) == (2, 2)
    assert "usage: python -m graphflow.mcp.files FOLDER" in capsys.readouterr().err


async def test_an_agent_reads_documents(folder: Path) -> None:
    """As a process, with tools that are known to only read; what is refused is told to the model."""
    with McpServer("files", command=[sys.executable, "-m", "graphflow.mcp.files", str(folder)]) as files:
        tools = await anyio.to_thread.run_sync(files.tools, "list_documents", "read_document", "search")
        calls = [
            call("search", text="rhine"),
            call("read_document", path="rivers.md", from_line=3),
            call("read_document", path="../secret.txt"),
        ]
        result = await run(asking(calls, "done", tools=tools), Ask())
        await anyio.to_thread.run_sync(files.close)

    found, read, refused = told(result)
    assert {tool.effect for tool in tools} == {"read"}
    assert tools[1].description.startswith("Read lines of a document")
    assert "rivers.md:3: The Rhine is longer." in found
    assert read == "3: The Rhine is longer."
    assert "'../secret.txt' is not in the folder" in refused
