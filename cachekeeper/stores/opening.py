"""A store from its URL."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

from ..errors import UsageError
from .base import Store
from .local import LocalStore


def open_store(url: str) -> Store:
    """The store at a URL; nothing is read or made yet.

    Args:
        url: `file:///absolute/path`, or a plain path.

    Raises:
        UsageError: no store of this kind.
    """
    match = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]+)://([^/]*)(.*)", url, re.DOTALL)
    if not match:
        return LocalStore(_absolute(url))
    scheme, host, path = match.groups()
    if scheme.lower() == "file" and host in ("", "localhost") and path:
        return LocalStore(_absolute(unquote(path)))
    raise UsageError(
        f"no store for {url!r}", hint="give a directory, as `--store /srv/caches` or `--store file:///srv/caches`"
    )


def _absolute(path: str) -> Path:
    if not path or "\0" in path:
        raise UsageError("the store's path is empty or impossible", hint="give a directory, as `--store /srv/caches`")
    return Path(os.path.abspath(os.path.expanduser(path)))
