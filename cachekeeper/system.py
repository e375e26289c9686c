"""The one system that cachekeeper runs on."""

from __future__ import annotations

import sys

from .errors import UnsupportedSystem


def require_linux() -> None:
    """Refuse to go on anywhere but on Linux, before something is imported that only Linux has.

    Raises:
        UnsupportedSystem: this is another system.
    """
    if sys.platform != "linux":
        raise UnsupportedSystem(
            f"cachekeeper needs Linux; this is {sys.platform}",
            facts=["Windows and macOS are not supported in this version"],
            hint="use it on the Linux machine, or in the Linux container, that runs the job",
        )
