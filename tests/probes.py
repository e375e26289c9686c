"""A `g++` that builds each of torch's probes once a run, however many caches the tests fill.

In every new cache torch builds some ten libraries to learn which instructions the compiler and the machine know. They
are the same each time and take longer than all else that a small job compiles. What is built for a job's graphs is
never kept here.
"""

from __future__ import annotations

import shutil
from pathlib import Path

_MARK = "_chk_kernel"  # the function that every probe defines, see torch/_inductor/cpu_vec_isa.py
_WRAPPER = """#!/bin/sh
# torch names the source first, and the library beside it after -o.
case "$*" in
*" -shared "*) grep -qs {mark} "$1" || exec {real} "$@" ;;
*) exec {real} "$@" ;;
esac
directory=$(dirname "$1") library=
for argument; do
    test "$last" = -o && library=$argument
    last=$argument
done
kept={kept}/$({{ cat "$1"; printf '%s' "$*" | sed "s|$directory|.|g"; }} | sha256sum | cut -d ' ' -f 1)
if ! test -e "$kept"; then
    {real} "$@" || exit
    cp "$library" "$kept.$$" 2> /dev/null && mv "$kept.$$" "$kept"  # another user may not
    exit 0
fi
cp "$kept" "$library"
"""


def make_compiler(directory: Path) -> None:
    """Write the `g++`, where there is a real one; `directory` is to stand first on PATH."""
    if real := shutil.which("g++"):
        kept = directory / "probes"
        kept.mkdir()
        (directory / "g++").write_text(_WRAPPER.format(mark=_MARK, real=real, kept=kept))
        (directory / "g++").chmod(0o755)
