"""The types of the public API, held by both checkers over small programs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from mypy import api

TYPING = Path(__file__).parent / "typing"
ROOT = Path(__file__).parent.parent


def wrong_lines(path: Path) -> set[int]:
    """Return the lines that a checker must refuse."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, start=1) if "# wrong: " in line}


def mypy_errors(path: Path) -> set[int]:
    """Return the lines in which mypy finds an error."""
    out, problems, _ = api.run(["--config-file", str(ROOT / "pyproject.toml"), "--no-error-summary", str(path)])
    assert not problems
    return {int(found[1]) for found in re.finditer(rf"{re.escape(path.name)}:(\d+): error", out)}


def pyright_errors(path: Path, folder: Path) -> set[int]:
    """Return the lines in which pyright finds an error; it looks only at files below its configuration."""
    shutil.copy(path, folder / path.name)
    settings: dict[str, object] = {"include": [path.name], "typeCheckingMode": "strict", "extraPaths": [str(ROOT)]}
    settings["reportUnusedExpression"] = False  # a statement that is wrong on purpose stands alone
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "-p", str(folder), "--pythonpath", sys.executable]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    assert found["summary"]["filesAnalyzed"] == 1
    return {
        item["range"]["start"]["line"] + 1
        for item in found["generalDiagnostics"]
        if item["severity"] == "error" and not item.get("rule", "").startswith("reportUnknown")
    }


def test_mypy_accepts_what_people_write_and_refuses_what_is_wrong() -> None:
    """Every line of must_pass is clean, and in must_fail exactly the marked lines are refused."""
    bad = TYPING / "must_fail.py"

    found = mypy_errors(bad)

    assert mypy_errors(TYPING / "must_pass.py") == set()
    assert found == wrong_lines(bad)


def test_pyright_accepts_what_people_write_and_refuses_what_is_wrong(tmp_path: Path) -> None:
    """The same for the other checker."""
    bad = TYPING / "must_fail.py"

    found = pyright_errors(bad, tmp_path)

    assert pyright_errors(TYPING / "must_pass.py", tmp_path) == set()
    assert found == wrong_lines(bad)
