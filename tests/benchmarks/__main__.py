"""Options in, a report out."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from . import report, s3, tools
from .comparison import compare
from .diff import differ
from .growth import grow
from .startup import start

PARTS = (*tools.OPERATIONS, "s3", "growth", "startup", "diff")
RESULTS = Path(__file__).with_name("RESULTS.md")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what was asked for and print the report; that of a whole run is kept, too."""
    options = _options(arguments)
    work = Path(tempfile.mkdtemp(prefix="cachekeeper-bench-", dir=options.work)).resolve()
    try:
        text = report.markdown(_measure(options, work))
    finally:
        # At the very end only: see `compare`.
        shutil.rmtree(work, ignore_errors=True)
    print(text, end="")
    out = options.out or (RESULTS if options.only == PARTS else None)
    if out:
        out.write_text(text, encoding="utf-8")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description="Measure cachekeeper and its peers.",
        epilog="ext4 makes files several times slower for minutes after many were deleted, and the end of this program "
        "deletes many: wait five minutes before the next run that is to count.",
    )
    parser.add_argument("--files", type=int, default=10_000, help="files of the tree (%(default)s)")
    parser.add_argument("--mb", type=float, default=405, help="budget of the tree; %(default)s makes 359 MB")
    parser.add_argument("--runs", type=int, default=3, help="runs to take medians of (%(default)s)")
    parser.add_argument("--only", type=_parts, default=PARTS, metavar="A,B", help=f"of {', '.join(PARTS)}")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="where the report goes as well (RESULTS.md, if everything is measured)"
    )
    parser.add_argument(
        "--work", type=Path, metavar="DIR", help="a directory on the disk to measure (the temporary one)"
    )
    options = parser.parse_args(arguments)
    if options.files < 1 or options.runs < 1:
        parser.error("--files and --runs must be at least 1")
    return options


def _parts(text: str) -> tuple[str, ...]:
    parts = tuple(text.split(","))
    if unknown := set(parts) - set(PARTS):
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}")
    return parts


def _measure(options: argparse.Namespace, work: Path) -> report.Results:
    known = tools.all_tools()
    if known[0].missing():
        raise SystemExit("cachekeeper is not installed beside this Python: pip install -e '.[dev]'")
    _compile()
    present = [tool for tool in known if not tool.missing()]
    skipped = [program for tool in known for program in tool.missing()]
    results = report.Results(present, skipped, options.runs, report.file_system(work), os.getloadavg()[0])
    if set(tools.OPERATIONS) & set(options.only):
        results.comparison = compare(
            present,
            work=work,
            files=options.files,
            megabytes=options.mb,
            runs=options.runs,
            only=options.only,
            say=_say,
        )
    if "s3" in options.only and s3.server_missing():
        skipped.append("weed, the S3 server,")
    elif "s3" in options.only:
        results.s3 = s3.compare_s3(
            work=work / "s3", files=options.files, megabytes=options.mb, runs=options.runs, say=_say
        )
    if "growth" in options.only:
        results.growth = grow(work=work, runs=options.runs, say=_say)
    if "diff" in options.only:
        results.differences = differ(work=work, runs=options.runs, say=_say)
    if "startup" in options.only:
        results.startup = start(work=work, say=_say)
    return results


def _compile() -> None:
    """Make the bytecode of cachekeeper, as pip does for what it installs, so that no measured command has to."""
    found = importlib.util.find_spec("cachekeeper")
    for directory in (found and found.submodule_search_locations) or ():
        subprocess.run([sys.executable, "-m", "compileall", "-q", directory], check=False)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
