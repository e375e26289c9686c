"""What the filesystem of a directory can do, and what is left on it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from ...units import format_bytes
from .cleaners import Cleaning, cleaning
from .findings import Finding, Level
from .place import Place, Probe, another_place, inside, mount_of, use_another

_LITTLE_SPACE, _TOO_LITTLE_SPACE = 1 << 30, 64 << 20
_FEW_INODES = 10_000
_IN_MEMORY = ("tmpfs", "ramfs")
_CLEANED = (Path("/tmp"), Path("/var/tmp"))


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
    temporary = [root for root in _CLEANED if inside(place.path, root) or inside(place.real, root)]
    found = cleaning(place.real)
    if _CLEANED[0] in temporary and not found.at_boot:
        message = f"{place.path} is under /tmp, which a reboot or a new container may empty; keep a snapshot"
        yield Finding("tmp", "note", message, _move(place))
    if found.at_boot:
        message = f"systemd-tmpfiles empties {place.path} at boot ({found.at_boot}), and no rule exempts from that"
        yield Finding("tmp", "note", message, _move(place))
    yield from _cleaners(place, found, temporary)


def _cleaners(place: Place, found: Cleaning, temporary: list[Path]) -> Iterator[Finding]:
    after = "each on its own, and what is left of an entry may not load"
    fix = f"cachekeeper doctor --fix --cache-dir {shlex.quote(str(place.path))}   # prints the rule"
    if found.age:
        idle = "" if found.runs else "; its timer does not run here"
        message = f"systemd-tmpfiles deletes files there after {found.age} ({found.file}), {after}{idle}"
        yield Finding("tmp-cleaner", "note", message, fix)
    for name, age in found.reapers if temporary else ():
        message = f"{name} deletes files there{f' after {age}' if age else ''}, {after}"
        yield Finding("tmp-cleaner", "note", message, fix)
    if found.age or (temporary and found.reapers):
        return
    if found.exempt:
        yield Finding("tmp-cleaner", "ok", f"systemd-tmpfiles deletes nothing there for its age ({found.exempt})")
    elif temporary:
        message = f"a cleaner of {temporary[0]} may delete files, {after}; none that is known is configured here"
        yield Finding("tmp-cleaner", "note", message, fix)


def _move(place: Place) -> str:
    if not place.looks_like_cache():
        return use_another(place.path)
    target = another_place(place.path) or "TO"
    return f'eval "$(cachekeeper move {shlex.quote(str(place.path))} --to {shlex.quote(str(target))} --export)"'
