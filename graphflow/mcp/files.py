"""A tool server over a folder of documents, which it only reads: `python -m graphflow.mcp.files FOLDER`."""

from __future__ import annotations

import functools
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from graphflow.mcp.extra import require_mcp

if TYPE_CHECKING:
    from mcp.server import MCPServer

LARGEST: Final = 2_000_000
"""How many bytes a document may have."""

MOST_DOCUMENTS: Final = 1_000
MOST_LINES: Final = 400
MOST_FOUND: Final = 50
WIDEST: Final = 400
"""How many characters of one line are shown."""


class Folder:
    """The documents below one folder; nothing outside of it, however it is asked for, and nothing that is hidden."""

    def __init__(self, root: str | Path) -> None:
        """Take a folder.

        Raises:
            NotADirectoryError: if it is none.
        """
        self.root = Path(root).resolve()
        if not self.root.is_dir():
            msg = f"{str(root)!r} is no folder."
            raise NotADirectoryError(msg)

    def list_documents(self) -> str:
        """List all documents, with the number of their lines."""
        found = [f"{path} ({len(lines)} lines)" for path, lines in self._documents()]
        return "\n".join(found) if found else "There are no documents."

    def read_document(self, path: str, from_line: int = 1, lines: int = 200) -> str:
        """Read lines of a document; each comes with its number, to cite it as path:line.

        Args:
            path: a path as it is listed.
            from_line: the first line, counted from 1.
            lines: how many, at most 400.
        """
        content = self._lines(self._inside(path))
        first = max(from_line, 1)
        shown = content[first - 1 : first - 1 + max(min(lines, MOST_LINES), 1)]
        if not shown:
            return f"{path} has {len(content)} lines."
        text = "\n".join(f"{number}: {_cut(line)}" for number, line in enumerate(shown, first))
        left = len(content) - (first - 1 + len(shown))
        return f"{text}\n[{left} more lines]" if left > 0 else text

    def search(self, text: str) -> str:
        """Find a text in all documents, upper and lower case alike; each line comes as path:line: text."""
        wanted = text.casefold().strip()
        if not wanted:
            msg = "give a text to look for."
            raise ValueError(msg)
        found: list[str] = []
        for path, lines in self._documents():
            for number, line in enumerate(lines, 1):
                if wanted in line.casefold():
                    found.append(f"{path}:{number}: {_cut(line.strip())}")
                if len(found) >= MOST_FOUND:
                    return "\n".join([*found, "[there may be more: look for something longer]"])
        return "\n".join(found) if found else f"{text!r} stands in no document."

    # --- files ---

    def _documents(self) -> Iterator[tuple[str, list[str]]]:
        count = 0
        for folder, inner, files in os.walk(self.root):
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            for name in sorted(files):
                path = (Path(folder) / name).relative_to(self.root).as_posix()
                try:
                    lines = self._lines(self._inside(path))
                except (OSError, ValueError, RuntimeError):
                    continue  # a link out of here, no text, too large
                count += 1
                if count > MOST_DOCUMENTS:
                    return
                yield path, lines

    def _inside(self, path: str) -> Path:
        """Return where a document is.

        Raises:
            ValueError: if that is not in the folder.
        """
        given = Path(path)
        outside = f"{path!r} is not in the folder: give a path as list_documents shows it."
        if "\0" in path or given.is_absolute() or any(part.startswith(".") for part in given.parts):
            raise ValueError(outside)
        try:
            real = (self.root / given).resolve()
        except RuntimeError as error:  # a link that leads to itself, before Python 3.13
            raise ValueError(outside) from error
        if not real.is_relative_to(self.root) or any(part[:1] == "." for part in real.relative_to(self.root).parts):
            raise ValueError(outside)
        return real

    @staticmethod
    def _lines(real: Path) -> list[str]:
        """Read a text.

        Raises:
            ValueError: if it is none, or too large.
        """
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        try:
            number = os.open(real, flags)
        except OSError as error:
            msg = f"there is no document {real.name!r}: {error.strerror}."
            raise ValueError(msg) from error
        try:
            about = os.fstat(number)
            if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
                msg = f"{real.name!r} is no document, or has more than {LARGEST:,} bytes."
                raise ValueError(msg)
            with os.fdopen(number, "rb", closefd=False) as file:
                content = file.read(LARGEST)
        finally:
            os.close(number)
        if b"\0" in content:
            msg = f"{real.name!r} is no text."
            raise ValueError(msg)
        return content.decode("utf-8", "replace").splitlines()


def file_server(root: str | Path) -> MCPServer:
    """Make a server over a folder, all of whose tools only read.

    Raises:
        NotADirectoryError: if it is no folder.
        MissingExtra: if the extra `mcp` is not installed.
    """
    require_mcp("a file server")
    from mcp.server import MCPServer
    from mcp.types import ToolAnnotations

    folder = Folder(root)
    server: Any = MCPServer("files")
    hints = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    for tool in (folder.list_documents, folder.read_document, folder.search):
        server.tool(annotations=hints, structured_output=False)(_saying_why(tool))
    return cast("MCPServer", server)


def _saying_why(tool: Callable[..., str]) -> Callable[..., str]:
    """Let a model read why something was refused, which the server would keep to itself."""
    from mcp.server.mcpserver.exceptions import ToolError

    @functools.wraps(tool)
    def saying(*args: Any, **kwargs: Any) -> str:
        try:
            return tool(*args, **kwargs)
        except ValueError as error:
            raise ToolError(str(error)) from error

    return saying


def main(words: list[str]) -> int:
    """Serve the folder that is named, over stdin and stdout."""
    if len(words) != 1:
        sys.stderr.write("usage: python -m graphflow.mcp.files FOLDER\n")
        return 2
    try:
        server = file_server(words[0])
    except (OSError, ImportError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    server.run()
    return 0


def _cut(line: str) -> str:
    return line if len(line) <= WIDEST else f"{line[: WIDEST - 1]}…"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
