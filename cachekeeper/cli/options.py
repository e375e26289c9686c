"""Options that several commands share."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from ..errors import CachekeeperError
from .output import of_this_store

Function = TypeVar("Function", bound=Callable[..., Any])


def output_options(function: Function, quiet: str = "Print no more than errors, warnings and the id.") -> Function:
    """--json and --quiet.

    Args:
        quiet: what is printed with --quiet.
    """
    function = click.option("--quiet", "-q", is_flag=True, help=quiet)(function)
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(function)


@contextlib.contextmanager
def hints_of_this_store() -> Iterator[None]:
    """What an error says to do next is about the store that the command line names."""
    try:
        yield
    except CachekeeperError as error:
        error.hint = of_this_store(error.hint)
        raise


def store_options(function: Function) -> Function:
    """--store and how it is reached; the command gets the opened store as `store`."""

    @functools.wraps(function)
    def opened(
        *args: Any, store: str | None, s3_endpoint: str | None, local_cache: str | None, read_only: bool, **others: Any
    ) -> Any:
        from ..stores import open_store

        with hints_of_this_store():
            found = open_store(store, s3_endpoint=s3_endpoint, local_cache=local_cache, read_only=read_only or None)
            return function(*args, store=found, **others)

    for option in (
        click.option("--read-only", is_flag=True, help="Never write to the store.  [CACHEKEEPER_READ_ONLY]"),
        click.option(
            "--local-cache",
            metavar="DIR",
            help="Keep what is read from S3 here; later reads need no network.  [CACHEKEEPER_LOCAL_CACHE]",
        ),
        s3_endpoint_option,
        click.option(
            "--store",
            metavar="URL",
            help="Where snapshots are kept: a directory or s3://BUCKET/PREFIX.  [CACHEKEEPER_STORE]",
        ),
    ):
        opened = option(opened)
    return opened  # type: ignore[return-value]


def s3_endpoint_option(function: Function) -> Function:
    """--s3-endpoint."""
    return click.option(
        "--s3-endpoint",
        metavar="URL",
        help="The S3 server; by default the AWS configuration's.  [CACHEKEEPER_S3_ENDPOINT]",
    )(function)


def cache_dir_option(function: Function) -> Function:
    """--cache-dir."""
    return click.option(
        "--cache-dir",
        metavar="DIR",
        help="The cache directory; by default the one that torch would use.  [CACHEKEEPER_CACHE_DIR]",
    )(function)


def model_options(function: Function) -> Function:
    """--model-config and --model-source; the command gets `model_config` and `model_sources`."""
    for option in (
        click.option(
            "--model-source",
            "model_sources",
            multiple=True,
            metavar="PATH",
            help="A source file or directory of the model; may be repeated.  [CACHEKEEPER_MODEL_SOURCES]",
        ),
        click.option(
            "--model-config",
            metavar="PATH",
            help="The model's config file (JSON or TOML).  [CACHEKEEPER_MODEL_CONFIG]",
        ),
    ):
        function = option(function)
    return function


def _order(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(filter(None, value.split(",")))


PLAN = ("devices", "modes", "shapes", "order", "in_thread", "per_device_process")


def plan_options(function: Function) -> Function:
    """--device, --mode, --shape, and how the steps of a plan are run; the command gets them as `plan`, a dict."""

    @functools.wraps(function)
    def gathered(*args: Any, **options: Any) -> Any:
        plan = {name: options.pop(name) for name in PLAN}
        return function(*args, plan=plan, **options)

    for option in (
        click.option(
            "--per-device-process", is_flag=True, help="Run the steps of each device in a process of its own."
        ),
        click.option(
            "--order",
            metavar="AXES",
            default="",
            callback=_order,
            help="As shape,mode: every mode of one shape before the next shape. Default: device,mode,shape.",
        ),
        click.option("--in-thread", is_flag=True, help="Run each step in a worker thread, as a job with threads does."),
        click.option("--shape", "shapes", multiple=True, metavar="SHAPE", help="As 512 or 8x2048; may be repeated."),
        click.option(
            "--mode", "modes", multiple=True, metavar="MODE", help="train, infer, or another; may be repeated."
        ),
        click.option("--device", "devices", multiple=True, metavar="DEVICE", help="As cuda:5; may be repeated."),
    ):
        gathered = option(gathered)
    return gathered  # type: ignore[return-value]


def _metrics(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, float]:
    found: dict[str, float] = {}
    for value in values:
        key, _, text = value.partition("=")
        try:
            number = float(text)
        except ValueError:
            raise click.BadParameter(f"{value!r} is not KEY=NUMBER, as tok_s=21500", ctx, parameter) from None
        if math.isnan(number):
            raise click.BadParameter(f"{value!r}: nan is no number to compare, as 21500 is", ctx, parameter)
        if found.setdefault(key, number) != number:
            raise click.BadParameter(f"{key!r} is given twice: {found[key]:g} and {number:g}", ctx, parameter)
    return found


# --metric; the command gets `metrics`, a name -> a number.
metrics_option = click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="KEY=NUMBER",
    callback=_metrics,
    help="A number of the run; may be repeated.",
)


def _tags(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE, as dataset=pile-v2", ctx, parameter)
        if found.setdefault(key, text) != text:
            raise click.BadParameter(f"{key!r} is given twice, with two values", ctx, parameter)
    return found


# --tag; the command gets `tags`, a name -> a text.
tags_option = click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_tags,
    help="What the work was, as dataset=pile-v2; may be repeated.",
)


# --full; the command gets `full`.
full_option = click.option("--full", is_flag=True, help="Read everything of a very large cache, too.")


def exit_code_option(what: str) -> Callable[[Function], Function]:
    """--exit-code; the command gets `exit_code`.

    Args:
        what: as "anything differs".
    """
    return click.option("--exit-code", is_flag=True, help=f"Exit 3 where {what}.")


def examples(*lines: str) -> str:
    """An epilog with examples."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
