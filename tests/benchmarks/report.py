"""The results as Markdown, without a word about the machine's name or its directories."""

from __future__ import annotations

import datetime
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from .comparison import Comparison
from .diff import OTHERS, PEER, Difference
from .growth import OPERATIONS as GROWN
from .growth import Growth
from .measuring import Sample, middle
from .s3 import S3
from .startup import BARE, STARTS, Startup
from .targets import verdicts
from .tools import CACHEKEEPER, Tool


@dataclass
class Results:
    """Everything of one call of the program."""

    tools: Sequence[Tool]
    skipped: Sequence[str]
    runs: int
    file_system: str
    load: float
    comparison: Comparison | None = None
    s3: S3 | None = None
    growth: list[Growth] = field(default_factory=list)
    startup: Startup | None = None
    differences: list[Difference] = field(default_factory=list)


def markdown(results: Results) -> str:
    """The whole report."""
    parts = [_head(results), _targets(results)]
    if results.comparison:
        parts += ["## Time and space", _times(results.comparison, "tar's check is of the compressed stream alone.")]
        parts += ["## Processor and memory", _costs(results.comparison)]
    if results.s3:
        parts += _s3(results.s3, results.runs)
    if results.growth:
        parts.append(_growth(results.growth))
    if results.differences:
        parts.append(_differences(results.differences))
    if results.startup:
        parts.append(_startup(results.startup))
    parts.append(_notes(results))
    return "\n\n".join(part for part in parts if part) + "\n"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table: the first column to the left, figures to the right."""
    widths = [max(3, *(len(cell) for cell in column)) for column in zip(header, *rows, strict=True)]
    rules = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(_row(line, widths) for line in (header, rules, *rows))


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.ljust(width) if number == 0 else cell.rjust(width)
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "| " + " | ".join((first, *others)) + " |"


def _head(results: Results) -> str:
    lines = ["# Benchmarks", "", "Written by `python -m tests.benchmarks`; compare figures only within one run.", ""]
    lines += [
        f"- {datetime.date.today()}, {_processor()}, {os.cpu_count()} cores, {results.file_system}, "
        f"Linux {platform.release().partition('-')[0]}, Python {platform.python_version()}; "
        f"load {results.load:.1f} at the start, {os.getloadavg()[0]:.1f} at the end",
        *_once(
            [f"- {tool.versions()}" for tool in (*results.tools, *(results.s3.comparison.tools if results.s3 else ()))]
        ),
    ]
    if results.comparison:
        lines.append(f"- {_size(results.comparison)}; {_medians(results.runs)}, warm page cache")
    return "\n".join(lines)


def _size(comparison: Comparison) -> str:
    return f"{comparison.files:,} files, {comparison.bytes / 1e6:,.0f} MB"


def _medians(runs: int) -> str:
    return "one run" if runs == 1 else f"medians of {runs} interleaved runs"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def file_system(directory: Path) -> str:
    """The type of the file system that a directory is on, or nothing known."""
    if shutil.which("findmnt") is None:
        return "file system unknown"
    command = ["findmnt", "--noheadings", "--output", "FSTYPE", "--target", str(directory)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _targets(results: Results) -> str:
    judged = verdicts(results.comparison, results.s3, results.startup, results.differences)
    rows = [(item.target, item.figure, item.verdict) for item in judged]
    return "## Targets\n\n" + table(("target", "measured", "verdict"), rows) if rows else ""


def _times(comparison: Comparison, remark: str) -> str:
    names = [tool.name for tool in comparison.tools]
    rows = [
        (title, *(_time(comparison, operation, name) for name in names))
        for operation, title in comparison.operations.items()
        if any((operation, name) in comparison.samples for name in names)
    ]
    rows.append(("stored", *(_stored(comparison, name) for name in names)))
    text = f"Seconds, and in brackets how many times what cachekeeper took. {remark}"
    return f"{text}\n\n" + table(("", *names), rows)


def _time(comparison: Comparison, operation: str, name: str) -> str:
    samples = comparison.samples.get((operation, name))
    if not samples:
        return ""
    wall = middle(samples).wall
    ours = comparison.samples.get((operation, CACHEKEEPER))
    if name == CACHEKEEPER or not ours:
        return f"{wall:.2f}"
    return f"{wall:.2f} ({wall / middle(ours).wall:.2f}x)"


def _stored(comparison: Comparison, name: str) -> str:
    sizes, ours = comparison.stored.get(name), comparison.stored.get(CACHEKEEPER)
    if not sizes:
        return ""
    text = f"{median(sizes) / 1e6:.1f} MB"
    return text if name == CACHEKEEPER or not ours else f"{text} ({median(sizes) / median(ours):.2f}x)"


def _costs(comparison: Comparison) -> str:
    names = [tool.name for tool in comparison.tools]
    rows = [
        (title, *(_cost(comparison.samples.get((operation, name))) for name in names))
        for operation, title in comparison.operations.items()
        if any((operation, name) in comparison.samples for name in names)
    ]
    text = (
        "Processor seconds (user and system), and the memory of the largest process; "
        "below about 20 MB it is that of the benchmark, which Linux counts."
    )
    return f"{text}\n\n" + table(("", *names), rows)


def _cost(samples: Sequence[Sample] | None) -> str:
    if not samples:
        return ""
    cost = middle(samples)
    return f"{cost.cpu:.2f} s, {cost.peak / 1e6:.0f} MB"


def _s3(s3: S3, runs: int) -> list[str]:
    few = [f"{tool.name} {_runs(min(runs, tool.runs))}" for tool in s3.comparison.tools if tool.runs]
    server = "; ".join(["SeaweedFS on this machine, over loopback", _size(s3.comparison), _medians(runs), *few])
    remark = (
        "The first push of cachekeeper finds out by racing whether the server keeps conditional writes: that is "
        "included. Making restic's repository is not. aws runs with BOTO_EXPERIMENTAL__NO_EMPTY_CONTINUE: without it, "
        "empty files make its push wait 60 s for nothing."
    )
    return ["## S3", f"{server}.", _times(s3.comparison, remark), _costs(s3.comparison), _requests(s3)]


def _runs(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _requests(s3: S3) -> str:
    """One row for each operation that was counted."""
    if not s3.requests:
        return ""
    kinds = sorted({kind for counted in s3.requests.values() for kind in counted})
    rows = [
        (
            s3.comparison.operations[operation],
            *(str(counted.get(kind, 0)) for kind in kinds),
            str(sum(counted.values())),
        )
        for operation, counted in s3.requests.items()
    ]
    return "Requests of cachekeeper, counted in a run that was not timed.\n\n" + table(("", *kinds, "all"), rows)


def _differences(differences: Sequence[Difference]) -> str:
    rows = []
    for step in differences:
        for other, title in OTHERS.items():
            ours, theirs = (step.samples.get((other, tool)) for tool in (CACHEKEEPER, PEER))
            if ours and theirs:
                one, two = middle(ours), middle(theirs)
                cells = [f"{one.wall:.2f} s", f"{one.peak / 1e6:.0f} MB", f"{two.wall:.2f} s"]
                rows.append([f"{step.files:,} files, {title}", *cells, f"{one.wall / two.wall:.2f}"])
    words = (
        f"`{PEER}` of the two directories says which files differ, and nothing of what is in them. The trees are made "
        "up, and hold no kernels."
    )
    head = ["trees", "cachekeeper diff", "memory", PEER, "ratio"]
    return "\n\n".join(["## Comparing two snapshots", table(head, rows), words])


def _growth(growth: Sequence[Growth]) -> str:
    rows = [
        (
            f"{step.files:,}",
            f"{step.bytes / 1e6:,.1f}",
            *(_each(step, operation) for operation in GROWN),
            f"{max((sample.peak for sample in step.samples.values()), default=0) / 1e6:.0f}",
        )
        for step in growth
    ]
    text = "Small files only; microseconds a file, the start of the process included."
    return f"## Growth\n\n{text}\n\n" + table(("files", "MB", *GROWN, "peak MB"), rows)


def _each(step: Growth, operation: str) -> str:
    sample = step.samples.get(operation)
    return f"{sample.wall / step.files * 1e6:,.0f}" if sample else "failed"


def _startup(startup: Startup) -> str:
    bare = middle(startup.samples[BARE]).wall
    rows = [(f"`{name}`", *_started(samples, bare)) for name, samples in startup.samples.items()]
    header = ("", "seconds", "against Python", "MB")
    return f"## Start-up\n\nMedians of {STARTS}.\n\n" + table(header, rows)


def _started(samples: Sequence[Sample], bare: float) -> tuple[str, str, str]:
    if not samples:
        return "failed", "", ""
    cost = middle(samples)
    return f"{cost.wall:.3f}", f"{cost.wall / bare:.1f}x", f"{cost.peak / 1e6:.0f}"


def _notes(results: Results) -> str:
    notes = [f"{name} is not installed: skipped" for name in results.skipped]
    notes += results.comparison.notes if results.comparison else []
    notes += results.s3.notes if results.s3 else []
    notes += [note for step in results.growth for note in step.notes]
    notes += [note for step in results.differences for note in step.notes]
    notes += results.startup.notes if results.startup else []
    return "## Notes\n\n" + "\n".join(f"- {note}" for note in _once(notes)) if notes else ""


def _once(notes: Sequence[str]) -> Iterator[str]:
    yield from dict.fromkeys(notes)
