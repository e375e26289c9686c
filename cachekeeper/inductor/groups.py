"""Triton's group files: `__grp__<name>.json` lists the files of one kernel by absolute path.

Those paths are why a moved Triton cache misses, or quietly reads the directory it was moved from. A store keeps a
placeholder instead (Inductor's own, `[REPLACE]`), and a restore writes the path of the directory restored into.
Source: triton/runtime/cache.py, `put_group` and `get_group`.
"""

from __future__ import annotations

import json

PLACEHOLDER = "[REPLACE]"


class GroupError(ValueError):
    """A group file that is not what Triton writes; the text says what is wrong with it."""


def is_group(path: str) -> bool:
    """True for the path of a Triton group file."""
    name = path.rpartition("/")[2]
    return name.startswith("__grp__") and name.endswith(".json")


def group_children(data: bytes) -> dict[str, str]:
    """File name -> path, as a group file lists them.

    Raises:
        GroupError: the file is not JSON, or not a group.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise GroupError(f"JSON does not parse: {error}") from None
    children = document.get("child_paths") if isinstance(document, dict) else None
    if not isinstance(children, dict) or not all(isinstance(path, str) for path in children.values()):
        raise GroupError("not a Triton group: no child_paths")
    for name in children:
        if not name or "/" in name or name in (".", ".."):
            raise GroupError(f"names a file outside its directory: {name!r}")
    return children


def normalise_group(data: bytes) -> tuple[bytes, frozenset[str]]:
    """A group file with the placeholder for every directory, and the directories that it named.

    Raises:
        GroupError: the file is not JSON, or not a group.
    """
    children = group_children(data)
    directories = frozenset(path.rpartition("/")[0] for path in children.values())
    return _render(children, PLACEHOLDER), directories


def expand_group(data: bytes, directory: str) -> bytes:
    """A stored group file for the kernel's directory, an absolute path."""
    return _render(group_children(data), directory)


def _render(children: dict[str, str], directory: str) -> bytes:
    return json.dumps({"child_paths": {name: f"{directory}/{name}" for name in children}}).encode()
