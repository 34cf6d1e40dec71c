"""Texts and numbers that a store may get wrong."""

from typing import Final

TEXTS: Final = (
    "{}",
    "[]",
    "",
    "null",
    '{"a": 1, "b": [true, false, null], "a": 2}',
    ' "blanks around it" \n',
    '{"spaces":\t[ 1 ,\n\r 2 ]}',
    r'{"escapes": "\" \\ \/ \b \f \n \r \t \u0000 \u001f \ud83d\ude00 \ud800 \udfff"}',
    '{"quotes": "\' \'\' ` $1 $$ %s %(x)s ? :name \\\\ --; DROP TABLE rows"}',
    '{"letters": "äöü ß é e\u0301 中文 עברית \U0001f9d1\u200d\U0001f680 \u2028 \u2029 \ufeff \ufffe \uffff \x7f \x85"}',
    '{"numbers": [1e400, -0, 0.1, 123456789012345678901234567890, 1E-7]}',
    "[" * 2000 + "]" * 2000,
)
"""JSON, and text that JSON may be next to: no character of it may change."""

TIMES: Final = (0.0, 0.1, 0.1 + 0.2, 1 / 3, 5e-324, 2.2250738585072014e-308, 2.0**53 - 1, 2.0**53 + 2, 1e22, 1.7e308)
"""Seconds: sums that are not round, the smallest, the largest, the last whole numbers that are exact."""

NAMES: Final = (
    "",
    " ",
    "0",
    "a/b\\c:~..",
    "it's",
    "x') OR '1'='1",
    '"; DROP TABLE rows; --',
    "%",
    "_",
    "% %s %(run)s",
    "line\nbreak\ttab\r",
    "Ä",
    "ä",
    "a\u0308",
    "中文\U0001f680",
    "\u2028\ufeff",
    "RUN",
    "run",
    "run ",
    "null",
    "n" * 10_000,
    "n" * 9_999 + "m",
)
"""Ids of runs: SQL, patterns, paths, and pairs that a careless comparison takes for one."""

DOUBTFUL: Final = ("nul\0", "\0", "half \ud800", "\udfff")
"""What no database holds as text: a NUL, halves of surrogate pairs."""
