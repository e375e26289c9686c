"""What the filesystem of a directory can do, and what is left on it."""

from __future__ import annotations

import errno
import fnmatch
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from ...units import format_bytes
from .findings import Finding, Level
from .place import Place, Probe, inside, mount_of, use_another

_LITTLE_SPACE, _TOO_LITTLE_SPACE = 1 << 30, 64 << 20
_FEW_INODES = 10_000
_IN_MEMORY = ("tmpfs", "ramfs")
_CLEANED = (Path("/tmp"), Path("/var/tmp"))
# Of two files of one name, the one in the later directory counts (tmpfiles.d(5)).
CLEANING_RULES = tuple(
    map(Path, ("/usr/lib/tmpfiles.d", "/usr/local/lib/tmpfiles.d", "/run/tmpfiles.d", "/etc/tmpfiles.d"))
)


def writable(place: Place, probe: Probe) -> Iterator[Finding]:
    """Can files be made there, or the directory itself where it is not there yet?"""
    obstacle = _obstacle(place)
    if obstacle and os.path.islink(obstacle):
        message = f"{obstacle} is a symbolic link to no directory: torch cannot make {place.path}"
        yield Finding("writable", "error", message, f"rm {shlex.quote(str(obstacle))}")
    elif obstacle:
        message = f"{obstacle} is not a directory: torch cannot make {place.path}"
        yield Finding("writable", "error", message, use_another(place.path))
    elif probe.write:
        owner = os.stat(place.nearest).st_uid
        message = f"cannot write into {place.nearest}: {probe.write} (owner uid {owner}, this is uid {os.geteuid()})"
        yield Finding("writable", "error", message, use_another(place.path))
    elif place.exists:
        yield Finding("writable", "ok", "files can be made there")
    else:
        yield Finding("writable", "ok", f"it is not there yet and can be made in {place.nearest}")


def _obstacle(place: Place) -> Path | None:
    """What is in the way where a directory should be, on the way to a place that is not there."""
    if place.exists:
        return None
    missing = place.nearest / place.path.relative_to(place.nearest).parts[0]
    return missing if os.path.lexists(missing) else None


def executable(place: Place, probe: Probe) -> Iterator[Finding]:
    """Can libraries be loaded from there?"""
    if os.statvfs(place.nearest).f_flag & os.ST_NOEXEC:
        message = f"{place.nearest} is mounted noexec: torch and Triton cannot load the libraries they build there"
        yield Finding("exec", "error", message, use_another(place.path))
    elif probe.execute:
        message = f"code in {place.nearest} cannot be loaded: {probe.execute}"
        yield Finding("exec", "error", message, use_another(place.path))
    elif not probe.write:
        yield Finding("exec", "ok", "libraries can be loaded from there")


def kind(place: Place) -> Iterator[Finding]:
    """What kind of filesystem is it?"""
    mount = mount_of(place.nearest)
    if mount is None:
        return
    if mount.network:
        message = (
            f"{place.nearest} is on {mount.type} ({mount.source}), shared with other machines: locks and renames "
            "are not sure there, and every start reads thousands of small files; restore to each node's own disk"
        )
        yield Finding("filesystem", "warning", message, use_another(place.path))
    elif mount.type in _IN_MEMORY:
        message = f"{mount.point} is {mount.type}: a cache there takes memory and is lost at reboot; keep a snapshot"
        yield Finding("filesystem", "note", message, use_another(place.path))
    elif mount.type == "overlay":
        message = (
            f"{mount.point} is an overlay: a container's is lost with it; mount a volume there, or keep a snapshot"
        )
        yield Finding("filesystem", "note", message, f"docker run -v torchinductor:{shlex.quote(str(place.path))} ...")
    else:
        yield Finding("filesystem", "ok", f"{mount.type} on {mount.point}")


def locks(place: Place, probe: Probe) -> Iterator[Finding]:
    """Does flock work there?"""
    if probe.lock:
        message = f"flock does not work there ({probe.lock}): torch takes one lock a compile, and may wait or fail"
        yield Finding("locks", "warning", message, use_another(place.path))
    elif not probe.write:
        yield Finding("locks", "ok", "flock works there")


def space(check: str, directory: Path, worst: Level = "error") -> Iterator[Finding]:
    """Is there room for more files? `worst` is the level where there is next to none."""
    system = os.statvfs(directory)
    free = system.f_bavail * system.f_frsize
    level: Level = "ok" if free >= _LITTLE_SPACE else "warning" if free >= _TOO_LITTLE_SPACE else worst
    fix = "" if level == "ok" else f"df -h {shlex.quote(str(directory))}   # then free some space there"
    yield Finding(check, level, f"{format_bytes(free)} free", fix)
    # Filesystems that do not count inodes say that they have none at all.
    if system.f_files and system.f_favail < _FEW_INODES:
        message = f"room for {system.f_favail:,} more files only (inodes); a cache easily has {_FEW_INODES:,}"
        fix = f"df -i {shlex.quote(str(directory))}   # then remove some files there"
        yield Finding(check, "warning" if system.f_favail else worst, message, fix)


def lifetime(place: Place) -> Iterator[Finding]:
    """Does a reboot or a cleaner take it away?"""
    cleaned = [root for root in _CLEANED if inside(place.path, root) or inside(place.real, root)]
    if not cleaned:
        return
    if _CLEANED[0] in cleaned:
        message = f"{place.path} is under /tmp, which a reboot or a new container may empty; keep a snapshot"
        yield Finding("tmp", "note", message, use_another(place.path))
    yield _cleaner(place, cleaned[0])


def _cleaner(place: Place, root: Path) -> Finding:
    kept, age, where = _cleaning(place)
    if kept:
        return Finding("tmp-cleaner", "ok", f"systemd-tmpfiles leaves it alone ({where})")
    who = (
        f"systemd-tmpfiles deletes files there after {age} ({where})"
        if age
        else f"a cleaner of {root} may delete files"
    )
    message = f"{who}, each on its own, and what is left of an entry may not load"
    fix = f"echo {shlex.quote(f'x {place.path}')} | sudo tee /etc/tmpfiles.d/torchinductor.conf"
    return Finding("tmp-cleaner", "note", message, fix)


def _cleaning(place: Place) -> tuple[bool, str, str]:
    """What tmpfiles.d says: is it exempt, else the age of the nearest rule with one or ""; and the rule's file."""
    nearest = ("", "", "")
    for name, line in _cleaning_rules():
        fields = [field.strip("'\"") for field in line.split()]
        pattern = fields[1].rstrip("/") if len(fields) > 1 else ""
        if not any(fnmatch.fnmatchcase(str(path), pattern) for path in (place.path, *place.path.parents)):
            continue
        if fields[0][0] == "x":
            return True, "", name
        age = fields[5] if len(fields) > 5 else "-"
        if age != "-" and len(pattern) >= len(nearest[0]):
            nearest = (pattern, age, name)
    return False, nearest[1], nearest[2]


def _cleaning_rules() -> Iterator[tuple[str, str]]:
    files: dict[str, Path] = {}
    for directory in CLEANING_RULES:
        try:
            files.update((file.name, file) for file in sorted(directory.glob("*.conf")))
        except OSError:
            continue
    for name, file in sorted(files.items()):
        try:
            lines = file.read_text("utf-8", "replace").splitlines()
        except OSError as error:
            if error.errno in (errno.EACCES, errno.ENOENT):
                continue
            raise
        yield from ((name, line) for line in lines if line.strip() and not line.lstrip().startswith("#"))
