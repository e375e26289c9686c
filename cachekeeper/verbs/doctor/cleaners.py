"""What empties temporary directories on this machine, as configured: systemd-tmpfiles, tmpreaper, tmpwatch.

tmpfiles.d(5), and systemd 252 measured: the line nearest to a directory counts, `x` exempts it and all that is in it,
`X` itself alone, and any other line of its own takes it out of the cleaning of a directory above it. None of that
exempts from `D` and `R`, which empty at boot. tmpreaper does not enter a directory that `--protect` matches.
"""

from __future__ import annotations

import errno
import fnmatch
import glob
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

# Of two files of one name, the one in the later directory counts.
CLEANING_RULES = tuple(
    map(Path, ("/usr/lib/tmpfiles.d", "/usr/local/lib/tmpfiles.d", "/run/tmpfiles.d", "/etc/tmpfiles.d"))
)
RULE_FILE = Path("/etc/tmpfiles.d/cachekeeper.conf")
REAPER_CONFIG = Path("/etc/tmpreaper.conf")
SYSTEMD_RUNS = Path("/run/systemd/system")
_TIMER = "systemd-tmpfiles-clean.timer"
# The first that is there counts; one that leads to /dev/null is masked.
_UNITS = tuple(map(Path, ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system")))
_REAPERS = {"tmpreaper": Path("/etc/cron.daily/tmpreaper"), "tmpwatch": Path("/etc/cron.daily/tmpwatch")}
_TYPES_WITH_AGE, _TYPES_WITH_GLOBS = "dDevqQC", "exXrRzZtThHaA"
_SPECIFIERS = {"%T": "/tmp", "%V": "/var/tmp", "%%": "%"}


class Rule(NamedTuple):
    """A line of tmpfiles.d: type, path or pattern, age ("-" for none), and the name of its file."""

    type: str
    path: str
    age: str
    file: str

    def matches(self, path: Path) -> bool:
        """True where it is about this very path."""
        parts, patterns = str(path).split("/"), self.path.rstrip("/").split("/")
        if self.type not in _TYPES_WITH_GLOBS:
            return parts == patterns
        return len(parts) == len(patterns) and all(map(_part_matches, parts, patterns))


def _part_matches(part: str, pattern: str) -> bool:
    hidden = part.startswith(".") and not pattern.startswith(".")
    return not hidden and fnmatch.fnmatchcase(part, pattern)


@dataclass(frozen=True)
class Cleaning:
    """What is configured for a directory.

    Attributes:
        exempt: the file whose rule says that systemd-tmpfiles leaves it alone; "" for none.
        age: after which systemd-tmpfiles deletes files in it; "" for never; `file` says so.
        at_boot: the file whose rule empties it at boot; "" for none.
        runs: systemd-tmpfiles is run on this machine.
        reapers: other programs that may delete files in it, with their age where that is known.
    """

    exempt: str = ""
    age: str = ""
    file: str = ""
    at_boot: str = ""
    runs: bool = True
    reapers: tuple[tuple[str, str], ...] = ()


def cleaning(path: Path) -> Cleaning:
    """What is configured for a directory, there or not."""
    rules = list(_rules())
    exempt, age, file = _nearest(rules, path)
    above = [path, *path.parents]
    emptied = (rule.file for rule in rules if rule.type in "DR" and any(map(rule.matches, above)))
    at_boot = next(emptied, "") if SYSTEMD_RUNS.is_dir() else ""
    return Cleaning(exempt, age, file, at_boot, _timer_runs(), tuple(_reapers(path)))


def _nearest(rules: Iterable[Rule], path: Path) -> tuple[str, str, str]:
    rules = list(rules)
    for place in (path, *path.parents):
        found = [rule for rule in rules if rule.matches(place) and rule.type != "X"]
        exempting = next((rule.file for rule in found if rule.type == "x"), "")
        if exempting:
            return exempting, "", ""
        if found:
            aged = next((rule for rule in found if rule.type in _TYPES_WITH_AGE), found[0])
            return ("", aged.age, aged.file) if aged.age != "-" else (aged.file, "", "")
    return "", "", ""


def _rules() -> Iterator[Rule]:
    files: dict[str, Path] = {}
    for directory in CLEANING_RULES:
        try:
            files.update((file.name, file) for file in sorted(directory.glob("*.conf")))
        except OSError:
            continue
    for name, file in sorted(files.items()):
        for line in _lines(file):
            fields = _fields(line)
            if len(fields) > 1:
                age = fields[5].lstrip("~") if len(fields) > 5 else "-"
                yield Rule(fields[0][0], _expanded(fields[1]), age.partition(":")[2] or age, name)


def _lines(file: Path) -> list[str]:
    try:
        lines = file.read_text("utf-8", "replace").splitlines()
    except OSError as error:
        if error.errno in (errno.EACCES, errno.ENOENT):
            return []
        raise
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _fields(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def _expanded(path: str) -> str:
    return re.sub(r"%[TV%]", lambda found: _SPECIFIERS[found[0]], path)


def _timer_runs() -> bool:
    unit = next((directory / _TIMER for directory in _UNITS if os.path.lexists(directory / _TIMER)), None)
    return SYSTEMD_RUNS.is_dir() and unit is not None and os.path.realpath(unit) != "/dev/null"


def _reapers(path: Path) -> Iterator[tuple[str, str]]:
    for name, script in _REAPERS.items():
        lines = [*_lines(script), *(_lines(REAPER_CONFIG) if name == "tmpreaper" else ())] if script.exists() else []
        settings = dict(line.strip().partition("=")[::2] for line in lines)
        # Debian's does nothing until somebody has read its warning.
        if lines and settings.get("SHOWWARNING") != "true" and not any(_names(line, path) for line in lines):
            yield name, settings.get("TMPREAPER_TIME", "").strip("'\"")


def _names(line: str, path: Path) -> bool:
    """True where a line exempts the path, or one above it but for /tmp itself."""
    exempt = [str(place) for place in (path, *path.parents) if len(place.parts) > 2 and place != Path("/var/tmp")]
    return any(re.search(rf"(^|[\s'\"=]){re.escape(item)}/?($|[\s'\"])", line) for item in exempt)


# What to do


def rule_for(path: Path) -> str:
    """The line of tmpfiles.d(5) that exempts a directory, and all that is in it, from cleaning."""
    pattern = glob.escape(str(path).replace("\\", r"\\")).replace("%", "%%")
    if re.search(r"[\s\"'\\#]", pattern):
        pattern = '"' + pattern.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"x {pattern}"


def rule_commands(path: Path) -> tuple[str, ...]:
    """Commands that install that rule, and that show it where it counts."""
    return (
        f"sudo tee -a {RULE_FILE} <<'END'",
        "# a cache of torch.compile: files that are deleted each on its own leave broken entries",
        rule_for(path),
        "END",
        f"systemd-tmpfiles --cat-config | grep -n {shlex.quote(path.name)}",
    )


def reaper_commands(name: str, path: Path) -> tuple[str, ...]:
    """What exempts a directory from tmpreaper or tmpwatch."""
    if name == "tmpreaper":
        line = f'TMPREAPER_PROTECT_EXTRA="$TMPREAPER_PROTECT_EXTRA {path}"'
        return (
            f"echo {shlex.quote(line)} | sudo tee -a {REAPER_CONFIG}",
            f"# where tmpreaper is called otherwise: tmpreaper --protect {shlex.quote(str(path))} ...",
        )
    return (f"# in {_REAPERS[name]}, add to the options of tmpwatch: -x {shlex.quote(str(path))}",)
