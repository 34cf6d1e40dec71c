"""Plain values that JSON has no form for: numbers, texts, times, paths. Each is written in one canonical form."""

from __future__ import annotations

import base64
import functools
import ipaddress
import math
import pathlib
import re
import struct
import uuid
import zoneinfo
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, cast

import pydantic
from pydantic_core import TzInfo

from graphflow.model.exact import Refused, Unreadable, bits, short

LONGEST: Final = 13_000
"""The bits of the longest whole number that is written in decimal digits; Python itself stops soon after that."""

Data = dict[str, Any]


def is_text(value: str) -> bool:
    """Tell whether a text can be written as it is: no half of a surrogate pair stands in it."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


# --- writing ---------------------------------------------------------------------------------------------------------


def write_str(value: str) -> Any:
    """Write a text; one with halves of surrogate pairs byte by byte, because JSON would join two of them."""
    if is_text(value):
        return value
    return {"$": "str", "b64": base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()}


def write_int(value: int) -> Any:
    """Write a whole number."""
    return value if value.bit_length() <= LONGEST else {"$": "int", "hex": hex(value)}


def write_float(value: float) -> Any:
    """Write a float."""
    if math.isfinite(value):
        return value
    if math.isinf(value):
        return {"$": "float", "is": "inf" if value > 0 else "-inf"}
    return {"$": "float", "is": "nan" if bits(value) == _NAN else bits(value).hex()}


_NAN = bits(float("nan"))


def _write_complex(value: complex) -> Data:
    return {"$": "complex", "of": [write_float(value.real), write_float(value.imag)]}


def _write_bytes(value: bytes) -> Data:
    return {"$": "bytes", "b64": base64.b64encode(value).decode()}


def _write_fraction(value: Fraction) -> Data:
    return {"$": "Fraction", "of": [write_int(value.numerator), write_int(value.denominator)]}


def _write_range(value: range) -> Data:
    return {"$": "range", "of": [write_int(value.start), write_int(value.stop), write_int(value.step)]}


def _write_delta(value: timedelta) -> Data:
    return {"$": "timedelta", "of": [value.days, value.seconds, value.microseconds]}


def _write_moment(value: datetime | time) -> Data:
    data: Data = {"$": type(value).__name__, "is": value.replace(tzinfo=None, fold=0).isoformat()}
    if value.fold:
        data["fold"] = 1
    if value.tzinfo is not None:
        data["zone"] = _zone(value.tzinfo)
    return data


def _write_zone(value: tzinfo) -> Data:
    return {"$": "zone", "is": _zone(value)}


def _zone(value: tzinfo) -> Any:
    """Write a time zone: "utc", the key of a `ZoneInfo`, or microseconds and perhaps a name."""
    if value is UTC:
        return "utc"
    if type(value) is timezone:
        offset = value.utcoffset(None) // timedelta(microseconds=1)
        name = value.tzname(None)
        return [offset] if name == timezone(value.utcoffset(None)).tzname(None) else [offset, write_str(name)]
    if type(value) is TzInfo:
        return ["TzInfo", int(cast("timedelta", value.utcoffset(None)).total_seconds())]
    if type(value) is zoneinfo.ZoneInfo and value.key in _zones():
        return value.key
    raise Refused(type(value), "use timezone.utc, timezone(timedelta(...)) or ZoneInfo(key)")


@functools.cache
def _zones() -> frozenset[str]:
    """Return the known keys: a key that stands in a journal is looked for among them, and nowhere else."""
    return frozenset(zoneinfo.available_timezones())


def _write_path(value: pathlib.PurePath) -> Data:
    return {"$": type(value).__name__, "is": write_str(str(value))}


def _write_pattern(value: re.Pattern[Any]) -> Data:
    text: Any = value.pattern
    return {"$": "Pattern", "is": WRITERS[type(text)](text), "flags": value.flags}


def _write_shown(value: object) -> Data:
    return {"$": type(value).__name__, "is": str(value)}


PATHS: Final = {
    kind.__name__: kind
    for kind in (pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath)
}
ADDRESSES: Final = {
    kind.__name__: kind
    for kind in (
        ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network,
        ipaddress.IPv4Interface, ipaddress.IPv6Interface,
    )
}  # fmt: skip

URLS: Final[dict[str, Any]] = {
    kind.__name__: kind
    for kind in (
        pydantic.AnyUrl, pydantic.AnyHttpUrl, pydantic.HttpUrl, pydantic.FileUrl, pydantic.FtpUrl,
        pydantic.WebsocketUrl, pydantic.AnyWebsocketUrl,
    )
}  # fmt: skip

WRITERS: Final[dict[type[Any], Callable[[Any], Any]]] = {
    str: write_str,
    int: write_int,
    float: write_float,
    complex: _write_complex,
    bytes: _write_bytes,
    Decimal: _write_shown,
    Fraction: _write_fraction,
    datetime: _write_moment,
    time: _write_moment,
    date: lambda value: {"$": "date", "is": value.isoformat()},
    timedelta: _write_delta,
    timezone: _write_zone,
    zoneinfo.ZoneInfo: _write_zone,
    TzInfo: _write_zone,
    re.Pattern: _write_pattern,
    uuid.UUID: _write_shown,
    range: _write_range,
    **dict.fromkeys(PATHS.values(), _write_path),
    **dict.fromkeys((*ADDRESSES.values(), *URLS.values()), _write_shown),
}
"""How a value of exactly this class is written."""

# --- reading ---------------------------------------------------------------------------------------------------------


def read_scalar(data: Data) -> Any:
    """Read what one of the writers wrote, in the one form that it has.

    Raises:
        Unreadable: if it is anything else.
    """
    tag = data["$"]
    names, read = READERS[tag]
    found = frozenset(data) - {"$"}
    optional = {"fold", "zone"} if tag in ("datetime", "time") else set[str]()
    if not names <= found or not found <= names | optional:
        msg = f"a {tag} with {short(sorted(map(str, found)))}"
        raise Unreadable(msg)
    try:
        value = read(data)
        if WRITERS[type(value)](value) == data:
            return value
    except Exception:  # noqa: BLE001, S110 - whatever a reader raises, this is nothing that it reads
        pass
    msg = f"this is no {tag}: {short(data)}"
    raise Unreadable(msg)


def read_text(data: Any) -> str:
    """Read what `write_str` wrote.

    Raises:
        Unreadable: if it is no text.
    """
    if type(data) is str and is_text(data):
        return data
    if type(data) is dict and cast("Data", data).get("$") == "str":
        return str(read_scalar(cast("Data", data)))
    msg = "a text is needed"
    raise Unreadable(msg)


def _read_b64(text: Any) -> bytes:
    return base64.b64decode(text, validate=True)


def _number(data: Any) -> int:
    """Read a whole number, which may stand in its long form."""
    if type(data) is int and data.bit_length() <= LONGEST:
        return data
    if type(data) is dict and cast("Data", data).get("$") == "int":
        return int(read_scalar(cast("Data", data)))
    raise ValueError


def _numbers(data: Any, count: int) -> list[int]:
    if type(data) is not list or len(cast("list[Any]", data)) != count:
        raise ValueError
    return list(map(_number, cast("list[Any]", data)))


def _read_float(data: Any) -> float:
    if type(data) is float:
        return data
    if type(data) is dict and cast("Data", data).get("$") == "float":
        return float(read_scalar(cast("Data", data)))
    raise ValueError


def _read_special(data: Data) -> float:
    text = _text(data["is"])
    if text in ("nan", "inf", "-inf"):
        return float(text)
    number: float = struct.unpack(">d", bytes.fromhex(text))[0]
    return number


def _read_int(data: Data) -> int:
    if not re.fullmatch(r"-?0x[0-9a-f]+", _text(data["hex"])):
        raise ValueError
    return int(data["hex"], 16)


def _read_complex(data: Data) -> complex:
    real, imaginary = map(_read_float, _list(data["of"]))
    return complex(real, imaginary)


def _read_fraction(data: Data) -> Fraction:
    return Fraction(*_numbers(data["of"], 2))


def _read_moment(data: Data) -> Any:
    kind: Any = {"datetime": datetime, "time": time}[data["$"]]
    if "fold" in data and not (type(data["fold"]) is int and data["fold"] == 1):
        raise ValueError
    found = kind.fromisoformat(_text(data["is"]))
    return found.replace(fold=data.get("fold", 0), tzinfo=_read_zone(data["zone"]) if "zone" in data else None)


def _read_zone(data: Any) -> tzinfo:
    if type(data) is str:
        if data == "utc":
            return UTC
        if data not in _zones():
            raise ValueError
        return zoneinfo.ZoneInfo(data)
    found: tzinfo
    match data:
        case [int() as offset] if type(offset) is int:
            found = timezone(timedelta(microseconds=offset))
        case [int() as offset, name] if type(offset) is int:
            found = timezone(timedelta(microseconds=offset), read_text(name))
        case ["TzInfo", int() as offset] if type(offset) is int:
            found = TzInfo(offset)
        case _:
            raise ValueError
    return found


def _reads_shown(kind: Callable[[str], Any]) -> Callable[[Data], Any]:
    return lambda data: kind(_text(data["is"]))


def _read_pattern(data: Data) -> Any:
    text: Any = read_text(data["is"]) if not _is_bytes(data["is"]) else read_scalar(data["is"])
    if type(data["flags"]) is not int:
        raise TypeError
    return re.compile(text, data["flags"])


def _is_bytes(data: Any) -> bool:
    return type(data) is dict and cast("Data", data).get("$") == "bytes"


def _read_path(data: Data) -> pathlib.PurePath:
    return PATHS[data["$"]](read_text(data["is"]))


def _text(data: Any) -> str:
    if type(data) is not str:
        raise TypeError
    return data


def _list(data: Any) -> list[Any]:
    if type(data) is not list:
        raise TypeError
    return cast("list[Any]", data)


_IS, _OF, _B64 = frozenset({"is"}), frozenset({"of"}), frozenset({"b64"})

READERS: Final[dict[str, tuple[frozenset[str], Callable[[Data], Any]]]] = {
    "str": (_B64, lambda data: _read_b64(data["b64"]).decode("utf-8", "surrogatepass")),
    "int": (frozenset({"hex"}), _read_int),
    "float": (_IS, _read_special),
    "complex": (_OF, _read_complex),
    "bytes": (_B64, lambda data: _read_b64(data["b64"])),
    "Decimal": (_IS, lambda data: Decimal(_text(data["is"]))),
    "Fraction": (_OF, _read_fraction),
    "datetime": (_IS, _read_moment),
    "time": (_IS, _read_moment),
    "date": (_IS, lambda data: date.fromisoformat(_text(data["is"]))),
    "timedelta": (_OF, lambda data: timedelta(*_numbers(data["of"], 3))),
    "zone": (_IS, lambda data: _read_zone(data["is"])),
    "UUID": (_IS, lambda data: uuid.UUID(_text(data["is"]))),
    "range": (_OF, lambda data: range(*_numbers(data["of"], 3))),
    **dict.fromkeys(PATHS, (_IS, _read_path)),
    "Pattern": (frozenset({"is", "flags"}), _read_pattern),
    **{name: (_IS, _reads_shown(kind)) for name, kind in {**ADDRESSES, **URLS}.items()},
}
"""For each tag the names that stand beside it, and what reads them."""
