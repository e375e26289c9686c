"""Numbers and times as people write them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timezone

SHORT_ID = 8
# A SHA-256 in hexadecimal, which names snapshots, packs and keys; and what is taken for the beginning of one.
FULL_ID = re.compile(r"[0-9a-f]{64}")
ID = re.compile(r"[0-9a-f]{4,64}")
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_LONGEST = 1e15
_NAME = re.compile(r"\b\w{61,}")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+\b")
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"))
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(s|min|h|d|w)")
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
# The last second that four digits of a year can say.
_LAST_SECOND = 253402300799.0


def format_bytes(count: float) -> str:
    """1536 -> "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    digits = 0 if unit == "B" or count >= 100 else 1
    return f"{count:,.{digits}f} {unit}"


def format_duration(seconds: float, nearest: bool = False) -> str:
    """75 -> "1 minute"; below ten seconds with one digit, as "0.4 s".

    Args:
        nearest: round rather than cut: 13.9 days -> "14 days".
    """
    if nearest:
        size = next((size for size, _ in _UNITS if seconds >= size), 1)
        seconds = round(seconds / size) * size if seconds >= 10 else seconds
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    size, unit = next(item for item in _UNITS if seconds >= item[0])
    return count(int(seconds // size), unit)


def parse_duration(text: str) -> float:
    """ "14d" -> 1209600.0 seconds; of s, min, h, d and w, or a bare 0.

    Raises:
        ValueError: it is none.
    """
    if text == "0":
        return 0.0
    match = _DURATION.fullmatch(text)
    if match is None:
        unclear = " (m could be minutes or months)" if text.endswith("m") else ""
        raise ValueError(f"{text!r} is no duration: write it as 90s, 30min, 12h, 14d or 2w{unclear}")
    return float(match[1]) * _SECONDS[match[2]]


def as_duration(seconds: float) -> str:
    """The reverse of `parse_duration`, in the largest unit without a rest: 1209600.0 -> "2w"."""
    units = (unit for unit in reversed(_SECONDS) if seconds and seconds % _SECONDS[unit] == 0)
    unit = next(units, "s")
    return f"{seconds / _SECONDS[unit]:.9g}{unit}" if seconds else "0"


def count(number: int, noun: str) -> str:
    """2, "file" -> "2 files"; 1, "entry" -> "1 entry"."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith("s"):
        return f"{number:,} {noun}es"
    plural = noun[:-1] + "ies" if noun.endswith("y") and noun[-2] not in "aeiou" else noun + "s"
    return f"{number:,} {plural}"


def few(lines: Sequence[str], most: int = 6) -> tuple[str, ...]:
    """The first of them, and a line that says how many more there are: "and 1,204 more"."""
    return (*lines[:most], f"and {len(lines) - most:,} more") if len(lines) > most else tuple(lines)


def listed(words: Sequence[str], most: int = 6) -> str:
    """The same in one line: "a, b and 3 more"."""
    return ", ".join(words[:most]) + (f" and {len(words) - most:,} more" if len(words) > most else "")


def spaced(*words: str) -> str:
    """Words with a space between, without those that are empty: a step as "cuda:0 train 512"."""
    return " ".join(filter(None, words))


def format_number(value: float) -> str:
    """A number of a run: 15931277.4 -> "15,931,277"; 2.0568 -> "2.0568"; 1e20 -> "1e+20"."""
    if not abs(value) < _LONGEST:
        return f"{value:.4g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def shortened(name: str, most: int = 60, end: int = 16) -> str:
    """A long name of a program, cut in the middle: "triton_poi_fused_add_...ayer_norm_50".

    Args:
        most: characters of the result.
        end: of them behind the cut: names of generated kernels differ in their last digits.
    """
    return name if len(name) <= most else f"{name[: most - end - 3]}...{name[-end:]}"


def with_short_names(text: str) -> str:
    """A sentence with its long names cut, but for what stands in backticks: that is there to be copied."""
    parts = text.split("`")
    return "`".join(
        part if at % 2 else _NAME.sub(lambda found: shortened(found[0]), part) for at, part in enumerate(parts)
    )


def without_addresses(text: str) -> str:
    """ "<function f at 0x7f2fa0>" -> "<function f>": an object's place in memory is another in every process."""
    return _ADDRESS.sub("", text)


def older_than(a: str, b: str) -> str:
    """What to say of two sides where the second was saved before the first; "" where it was not, or nobody knows.

    Args:
        a, b: `now_utc` timestamps.
    """
    if not (is_timestamp(a) and is_timestamp(b) and b < a):
        return ""
    gap = _parsed(a) - _parsed(b)
    return f"b was saved {format_duration(gap.total_seconds())} before a: changes read from the newer to the older"


def short_id(identifier: str) -> str:
    """The first digits of a snapshot id, enough for a person."""
    return identifier[:SHORT_ID]


def now_utc() -> str:
    """The present time as stored in manifests: "2026-01-31T08:15:00Z"."""
    return datetime.now(timezone.utc).strftime(_TIME)


def timestamp_of(seconds: float) -> str:
    """Seconds since the epoch as stored in manifests; what is before or beyond all that, its first or last second."""
    within = max(0.0, seconds) if seconds < _LAST_SECOND else _LAST_SECOND
    return datetime.fromtimestamp(within, timezone.utc).strftime(_TIME)


def age_seconds(timestamp: str) -> float:
    """Seconds since a `now_utc` timestamp, never below zero."""
    return max(0.0, (datetime.now(timezone.utc) - _parsed(timestamp)).total_seconds())


def seconds_of(timestamp: str) -> float:
    """The reverse of `timestamp_of`.

    Raises:
        ValueError: it is none.
    """
    if not is_timestamp(timestamp):
        raise ValueError(f"no time: {timestamp!r}")
    return _parsed(timestamp).timestamp()


def _parsed(timestamp: str) -> datetime:
    # strptime would do: its first call loads a module that costs as much as all of this one.
    return datetime.fromisoformat(timestamp.removesuffix("Z")).replace(tzinfo=timezone.utc)


def is_timestamp(text: str) -> bool:
    """True for what `now_utc` can have written."""
    try:
        return _parsed(text).strftime(_TIME) == text
    except ValueError:
        return False


def harmless(text: str) -> str:
    """Text from a store or a file name without what a terminal would act upon."""
    return "".join(character if character.isprintable() else "?" for character in text)
