"""Writing to streams that may be closed, full, of a narrow encoding, or a terminal that obeys control characters."""

from __future__ import annotations

import io
import json as json_text
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, TextIO

from graphflow.visualize.text import plain, visible

_KEPT: Final = re.compile(r"([\n\t])")

_BYTES: Final = range(0x80, 0x100)
"""What `\\xNN` would mean as a byte, and not as a character."""

BOXES: Final = "├─└│✓▸·…▶"
"""What drawings in the terminal are made of."""


def safe(text: str) -> str:
    r"""Show control characters as escapes, but for line ends and tabs: a terminal would obey them.

    >>> print(safe("two\nlines, \x1b[2J and a bell \a"))
    two
    lines, \x1b[2J and a bell \x07
    """
    parts = _KEPT.split(text.replace("\r\n", "\n"))
    return "".join(part if part in {"\n", "\t"} else visible(part) for part in parts)


def quoted(word: str) -> str:
    r"""Write a word of a command line so that a shell reads it as it is, and a person can see all of it.

    >>> quoted("monday"), quoted("it's"), quoted("two\nlines")
    ('monday', '\'it\'"\'"\'s\'', "$'two\\nlines'")
    """
    if word == visible(word):
        return shlex.quote(word)
    return "$'" + "".join(map(_escaped, word)) + "'"


def _escaped(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    if char == visible(char):
        return char
    return f"\\u{ord(char):04x}" if ord(char) in _BYTES else ascii(char)[1:-1]


def version_text() -> str:
    """Return the name of the program and its version."""
    try:
        return f"graphflow {version('graphflow-agents')}"
    except PackageNotFoundError:  # from a checkout on the path
        return "graphflow, not installed"


class Stream:
    """One of the two streams of the process. Writing to it never raises.

    A reader that went away is no trouble: what comes later is dropped in silence. Any other error is kept.

    Attributes:
        terminal: whether a person reads it.
        trouble: why something could not be written, or None.
    """

    def __init__(self, file: TextIO | None) -> None:
        """Take a stream; None is one that the process was started without."""
        self._file = file
        self.trouble: OSError | None = None
        self.terminal = file is not None and not file.closed and file.isatty()
        if isinstance(file, io.TextIOWrapper):
            file.reconfigure(errors="backslashreplace")  # a name that cannot be encoded must not end a run

    @property
    def file(self) -> TextIO | None:
        """Where it writes to, None if that is nowhere."""
        return self._file

    @property
    def width(self) -> int:
        """How many columns there are; many where nobody counts them."""
        return shutil.get_terminal_size().columns if self.terminal else 200

    @property
    def unicode(self) -> bool:
        """Whether every character can be written."""
        return str(getattr(self._file, "encoding", "")).lower().startswith("utf")

    @property
    def ascii(self) -> bool:
        """Whether lines and boxes cannot be written."""
        encoding = getattr(self._file, "encoding", None) or "ascii"
        try:
            BOXES.encode(encoding)
        except (LookupError, UnicodeEncodeError):
            return True
        return False

    def write(self, text: str) -> None:
        """Write a text and flush; on a terminal with its control characters escaped."""
        self._put(safe(text) if self.terminal else text)

    def data(self, content: bytes) -> None:
        """Write what is no text, such as an image, and flush."""
        self._put(content)

    def _put(self, content: str | bytes) -> None:
        if self._file is None:
            return
        try:
            if isinstance(content, str):
                self._file.write(content)
            else:
                self._file.buffer.write(content)
            self._file.flush()
        except BrokenPipeError:
            self._give_up()
        except OSError as error:
            self.trouble = error
            self._give_up()
        except ValueError:  # somebody closed the file
            self._file = None

    def line(self, text: str = "") -> None:
        """Write a text that ends a line."""
        self.write(text if text.endswith("\n") else text + "\n")

    def _give_up(self) -> None:
        """Let what is still buffered go nowhere, or Python would complain about it at its exit."""
        file, self._file = self._file, None
        try:
            number = file.fileno() if file is not None else -1
            nowhere = os.open(os.devnull, os.O_WRONLY)
        except OSError:  # io.UnsupportedOperation among them: a file of a test
            return
        os.dup2(nowhere, number)
        os.close(nowhere)


class Screen:
    """What a command prints on: its result on `out`, all else on `err`.

    Attributes:
        out: the standard output.
        err: the standard error; what is written there is always escaped.
        own_process: whether the process ends with the command.
        json: whether the standard output is for a program, which reads what went wrong there, too.
        facts: what is known so far that belongs into an error, as `run`.
    """

    def __init__(self, *, own_process: bool = False, json: bool = False) -> None:
        """Take the streams of the process as they are now."""
        self.own_process = own_process
        self.json = json
        self.facts: dict[str, Any] = {}
        self.out = Stream(sys.stdout)
        self.err = Stream(sys.stderr)
        self._told = False

    def document(self, data: object) -> None:
        """Print the one document that `--json` asks for."""
        from graphflow.cli.results import to_json

        self._told = True
        self.out.line(to_json(data))

    def failed(self, data: Mapping[str, Any]) -> None:
        """Print an error as the one document, if that is asked for and nothing stands there yet: on a single line."""
        if self.json and not self._told:
            self._told = True
            self.out.line(json_text.dumps({"error": {**data, **self.facts}}))

    def say(self, text: str) -> None:
        """Tell a person something, beside the result."""
        self.err.line(plain(safe(text)) if self.err.ascii else safe(text))
