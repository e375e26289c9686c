"""Where cache directories begin among files, as a file shows that only a cache has."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

# A file that shows where a cache directory begins.
_SIGN = re.compile(
    r"(?:^|/)(?:fxgraph/[a-z0-9]{2}/f[^/]+/|aotautograd/a[^/]+/|triton/[^/]+/(?:[A-Z2-7]{52}|[0-9a-f]{64})/"
    r"|[a-z0-9]{2}/c[a-z2-7]{51}\.)"
)


def cache_roots(paths: Iterable[str]) -> dict[str, int]:
    """Where cache directories begin among files -> number of files below; "" is the top. None lies in another."""
    paths = list(paths)
    found = {path[: match.start()] for path in paths if (match := _SIGN.search(path))}
    roots = sorted(root for root in found if not any(_is_below(root, other) for other in found if other != root))
    counts = Counter(root for path in paths for root in roots if _is_below(path, root))
    return {root: counts[root] for root in roots}


def _is_below(path: str, root: str) -> bool:
    return not root or path.startswith(root + "/")
