"""A store from its URL and the settings."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from ..config import setting, store_url
from ..errors import UsageError
from .base import Store, is_key
from .cached import CachedStore
from .local import LocalStore
from .readonly import ReadOnlyStore
from .s3 import S3Store
from .s3_requests import READ_SECONDS

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
# What was meant for a URL and would be a directory.
_ALMOST_S3 = re.compile(r"s3(:|/{2,})", re.IGNORECASE)
_S3_OPTIONS = ("endpoint", "profile", "region")
_S3_HINT = (
    "as `--store s3://bucket/prefix`, with ?endpoint=URL, ?profile=NAME or ?region=NAME where the environment "
    "does not say it"
)


def open_store(
    url: str | os.PathLike[str] | None = None,
    *,
    s3_endpoint: str | None = None,
    local_cache: str | os.PathLike[str] | None = None,
    read_only: bool | None = None,
) -> Store:
    """The store at a URL; nothing is read or made yet. What is None is as configured.

    Args:
        url: `file:///absolute/path`, a plain path, or `s3://bucket/prefix`.
        s3_endpoint: URL of the server of an `s3://` store.
        local_cache: directory that keeps what is read from an `s3://` store.
        read_only: refuse to write.

    Raises:
        UsageError: no store of this kind.
    """
    text = store_url(url)
    match = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]+)://([^/]*)(.*)", text, re.DOTALL)
    store: Store
    if not match:
        store = LocalStore(_absolute(text))
    elif match[1].lower() == "s3":
        store = _cached(_s3(text, setting("s3_endpoint", s3_endpoint)), setting("local_cache", local_cache))
    elif match[1].lower() == "file" and match[2] in ("", "localhost") and match[3]:
        store = LocalStore(_absolute(unquote(match[3])))
    else:
        hint = "give a directory, as `--store /srv/caches` or `--store file:///srv/caches`, or `--store s3://bucket/prefix`"
        raise UsageError(f"no store for {text!r}", hint=hint)
    return ReadOnlyStore(store) if setting("read_only", read_only) else store


def _cached(store: S3Store, directory: str | os.PathLike[str] | None) -> Store:
    """With a directory for this store alone: names of two stores must not be mixed."""
    if not directory:
        return store
    around = _absolute(os.fspath(directory))
    return CachedStore(store, LocalStore(around / f"{store.bucket}-{store.identity}"), around)


def _s3(url: str, endpoint: str | None) -> S3Store:
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise UsageError(
            "the URL of a store must not hold credentials",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead",
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    prefix = parts.path.strip("/")
    # What follows the `?` is never repeated: it may hold what should not be told.
    shown = url.partition("?")[0]
    for name, value in options.items():
        if name not in _S3_OPTIONS or not value:
            what = "is empty" if name in _S3_OPTIONS else "is none that a store has"
            raise UsageError(f"the option {name!r} of {shown} {what}", hint=_S3_HINT)
    if parts.fragment or not _BUCKET.fullmatch(parts.netloc):
        raise UsageError(f"not the name of a bucket: {parts.netloc!r} in {shown}", hint=_S3_HINT)
    if prefix and not is_key(prefix):
        hint = "a prefix has letters, digits and `%._~-` between its slashes, and no part that begins with a dot"
        raise UsageError(f"not a prefix that a store can have: {prefix!r}", hint=hint)
    endpoint = options.get("endpoint", endpoint)
    if endpoint is not None:
        _check_endpoint(endpoint)
    store = S3Store(
        parts.netloc,
        prefix,
        endpoint=endpoint,
        profile=options.get("profile"),
        region=options.get("region"),
        read_seconds=setting("s3_timeout") or READ_SECONDS,
    )
    store.url += f"?{parts.query}" if options else ""
    return store


def _check_endpoint(endpoint: str) -> None:
    parts = urlsplit(endpoint)
    if "@" in parts.netloc:
        raise UsageError(
            "the URL of an endpoint must not hold credentials",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead",
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or not _has_port(parts):
        raise UsageError(f"not the URL of a server: {endpoint!r}", hint="as `--s3-endpoint https://minio.example:9000`")


def _has_port(parts: SplitResult) -> bool:
    """True for a port that can be, or none."""
    try:
        return parts.port != 0
    except ValueError:
        return False


def _absolute(path: str) -> Path:
    if _ALMOST_S3.match(path):
        raise UsageError(f"{path!r} looks like a bucket and is none", hint="as `--store s3://bucket/prefix`")
    if not path or "\0" in path:
        raise UsageError("the store's path is empty or impossible", hint="give a directory, as `--store /srv/caches`")
    return Path(os.path.abspath(os.path.expanduser(path)))
