"""A warmup at work, on the screen: a row a step, and below it what a person should know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..models import StepReport
from ..units import count, few, format_bytes, format_duration, spaced
from ..warming import Listener, Rows
from .output import Output, clear_bar, drawn_over, on_terminal

_MOST = 5


class Steps(Listener):
    """Prints each step as it ends, and on a terminal what it is at until then."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._live = output.talks and on_terminal(err=True)
        self._steps: Rows = ()
        self._width = 4
        self._number = 0
        self._what = ""

    def process(self, what: str) -> None:
        """Say which process begins."""
        self._what, self._steps = what, ()

    def plan(self, steps: Rows) -> None:
        """Print the heading of the table."""
        clear_bar()
        if self._what == "Warming":
            self._output.line(f"{'Plan':<9} {product(steps)}")
        self._steps = steps
        self._width = max(4, *(len(spaced(*step)) for step in steps))
        seconds = "a fresh process" if self._what == "Warming" else "another fresh process, which must build nothing"
        self._output.line(f"{self._what:<9} {count(len(steps), 'step')}, in {seconds}")
        heading = f" seconds   new  graphs  autograd kernels {'peak':>9} {'left':>9}"
        self._output.line(f"{'':>4} {'step':<{self._width}}{heading}", whole=True)

    def begin(self, number: int) -> None:
        """Note which step it is."""
        self._number = number

    def working(self, seconds: float, compiling: str) -> None:
        """On a terminal, say that it is still at work."""
        if self._live and not self._steps:
            drawn_over(f"{self._what:<9} {format_duration(seconds)}  importing")
        elif self._live:
            doing = f"  compiling {compiling}" if compiling else ""
            drawn_over(f"{self._number + 1:>4} {spaced(*self._steps[self._number])}  {format_duration(seconds)}{doing}")

    def end(self, report: StepReport) -> None:
        """Print the row of a step."""
        clear_bar()
        self._output.line(row(report, self._width), whole=True)
        for line in remarks(report):
            self._output.line(f"       {line}")


def say_doubts(output: Output, doubts: Mapping[str, Sequence[str]]) -> None:
    """Why steps are in doubt."""
    for step, lines in doubts.items():
        output.line(f"{step}:")
        output.some(lines)


def product(steps: Rows) -> str:
    """What a plan is the product of, as "cuda:0 cuda:1 x train infer x 512 2048"."""
    axes = (dict.fromkeys(filter(None, values)) for values in zip(*steps, strict=True))
    return " x ".join(" ".join(values) for values in axes if values)


def row(report: StepReport, width: int) -> str:
    """A step in numbers: graphs and autograd are hit/missed/bypassed, kernels found/compiled."""
    triples = [
        "/".join(str(report.number_of(cache, state)) for state in ("hit", "miss", "bypass")) for cache in ("fx", "aot")
    ]
    kernels = "-" if report.triton_hits is None else f"{report.triton_hits}/{report.triton_built}"
    memory = [format_bytes(size) for size in (report.peak_memory, report.left_memory)]
    return (
        f"{report.number + 1:>4} {report!s:<{width}} {report.seconds:>7.1f} {f'+{report.new_entries}':>5} "
        f"{triples[0]:>7} {triples[1]:>9} {kernels:>7} {memory[0]:>9} {memory[1]:>9}"
    )


def remarks(report: StepReport) -> list[str]:
    """What a person should know of a step, beyond its numbers."""
    lines = [f"UNCOMPILED: {line}" for line in report.fallbacks]
    lines += _some("bypassed", [f"{graph}: {graph.reason}" for graph in report.graphs if graph.state == "bypass"])
    lines += _some("recompiled", report.recompiles)
    lines += _some("graph break", report.graph_breaks)
    lines += [f"left on {device}, too: {format_bytes(size)}" for device, size in report.elsewhere.items()]
    lines += [f"note: {note}" for note in report.notes]
    if report.error:
        lines.append(f"RAISED {report.error_line}")
    return lines


def _some(label: str, lines: Sequence[str]) -> list[str]:
    return [f"{label}: {line}" for line in few(list(dict.fromkeys(lines)), _MOST)]
