"""A store from its URL."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

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
    if not re.match(r"[a-z][a-z0-9+.-]+://", url):
        return LocalStore(_absolute(url))
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path:
        return LocalStore(_absolute(unquote(parts.path)))
    raise UsageError(
        f"no store for {url!r}", hint="give a directory, as `--store /srv/caches` or `--store file:///srv/caches`"
    )


def _absolute(path: str) -> Path:
    if not path:
        raise UsageError("the store's path is empty", hint="give a directory, as `--store /srv/caches`")
    return Path(os.path.abspath(os.path.expanduser(path)))
