"""The page about rehearsals: its picture is what its program draws today."""

from pathlib import Path

import pytest

from tests.support import ROOT
from tests.test_doc_snippets import run_page


def test_the_picture_of_the_page_is_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No renderer is needed for it, so the text itself is compared."""
    monkeypatch.chdir(tmp_path)

    run_page((ROOT / "docs" / "rehearsal.md").read_text("utf-8"), "docs/rehearsal.md")

    drawn = (tmp_path / "rehearsal.svg").read_text("utf-8")
    assert drawn == (ROOT / "docs" / "pictures" / "rehearsal.svg").read_text("utf-8")
