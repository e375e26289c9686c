"""What the checks say, and how one is run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...errors import CachekeeperError

Level = Literal["ok", "note", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """One thing that a check found.

    Attributes:
        check: the check, in kebab-case.
        level: "ok"; "note" for what is good to know; "warning" for what will cost time or trust; "error" for what
            makes torch or cachekeeper fail, or an entry be lost.
        fix: a command or setting that can be pasted, or what to do instead; "" where there is nothing to do.
    """

    check: str
    level: Level
    message: str
    fix: str = ""


@dataclass(frozen=True)
class Remedy:
    """What to do about a finding: lines of a shell script, to be read before they are run."""

    check: str
    message: str
    commands: tuple[str, ...]


@dataclass(frozen=True)
class DoctorResult:
    """What every check found, in the order of the checks.

    Attributes:
        cache_dir: the directory that was looked at.
        source: what decided it, as "TORCHINDUCTOR_CACHE_DIR", "default (/tmp)" or "given".
        store: URL of the store.
    """

    cache_dir: Path
    source: str
    store: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """True where no finding is an error."""
        return self.number("error") == 0

    def number(self, level: Level) -> int:
        """How many findings are of a level."""
        return sum(finding.level == level for finding in self.findings)


def run(check: str, look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """What a check finds. One that cannot be made is a warning: the others still count."""
    found: list[Finding] = []
    try:
        for finding in look():
            found.append(finding)
    except CachekeeperError as error:
        found.append(Finding(check, "warning", f"could not be checked: {error.message}", error.hint))
    except OSError as error:
        found.append(Finding(check, "warning", f"could not be checked: {reason(error)} ({error.filename or '?'})"))
    return found


def reason(error: OSError) -> str:
    """An OSError in words."""
    return os.strerror(error.errno) if error.errno else str(error)
