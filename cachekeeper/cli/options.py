"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])


def output_options(function: Function) -> Function:
    """--json and --quiet."""
    function = click.option("--quiet", "-q", is_flag=True, help="Print no more than errors and the id.")(function)
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(function)


def store_option(function: Function) -> Function:
    """--store."""
    return click.option(
        "--store", metavar="URL", help="Where snapshots are kept: a directory or file:// URL.  [CACHEKEEPER_STORE]"
    )(function)


def cache_dir_option(function: Function) -> Function:
    """--cache-dir."""
    return click.option(
        "--cache-dir",
        metavar="DIR",
        help="The cache directory; by default the one that torch would use.  [CACHEKEEPER_CACHE_DIR]",
    )(function)


def examples(*lines: str) -> str:
    """An epilog with examples."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
