"""Numbers and times as people write them."""

from __future__ import annotations

from datetime import datetime, timezone

SHORT_ID = 8
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"))


def format_bytes(count: float) -> str:
    """1536 -> "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    digits = 0 if unit == "B" or count >= 100 else 1
    return f"{count:,.{digits}f} {unit}"


def format_duration(seconds: float) -> str:
    """75 -> "1 minute"; below ten seconds with one digit, as "0.4 s"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    size, unit = next(item for item in _UNITS if seconds >= item[0])
    return count(int(seconds // size), unit)


def count(number: int, noun: str) -> str:
    """2, "file" -> "2 files"; 1, "entry" -> "1 entry"."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith("s"):
        return f"{number:,} {noun}es"
    plural = noun[:-1] + "ies" if noun.endswith("y") and noun[-2] not in "aeiou" else noun + "s"
    return f"{number:,} {plural}"


def spaced(*words: str) -> str:
    """Words with a space between, without those that are empty: a step as "cuda:0 train 512"."""
    return " ".join(filter(None, words))


def short_id(identifier: str) -> str:
    """The first digits of a snapshot id, enough for a person."""
    return identifier[:SHORT_ID]


def now_utc() -> str:
    """The present time as stored in manifests: "2026-01-31T08:15:00Z"."""
    return datetime.now(timezone.utc).strftime(_TIME)


def age_seconds(timestamp: str) -> float:
    """Seconds since a `now_utc` timestamp, never below zero."""
    then = datetime.strptime(timestamp, _TIME).replace(tzinfo=timezone.utc)
    return max(0.0, (datetime.now(timezone.utc) - then).total_seconds())


def is_timestamp(text: str) -> bool:
    """True for what `now_utc` can have written."""
    try:
        return datetime.strptime(text, _TIME).strftime(_TIME) == text
    except ValueError:
        return False


def harmless(text: str) -> str:
    """Text from a store or a file name without what a terminal would act upon."""
    return "".join(character if character.isprintable() else "?" for character in text)
