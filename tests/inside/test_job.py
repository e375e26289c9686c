"""What a process of a warmup is told and tells."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from threading import Thread

import pytest

from cachekeeper.errors import UsageError
from cachekeeper.inside.job import Events, Job, decode_job, encode_job
from cachekeeper.models import Graph, StepReport
from cachekeeper.plans import Axes, Step
from cachekeeper.schema import parse


@pytest.mark.parametrize(
    "job",
    [
        Job("train.py:step", Axes()),
        Job(
            "a b/trän.py:step",
            Axes(("cuda:0", "cpu"), ("train", "my-mode"), (8, (8, 512), "a word")),
            "cuda:0",
            in_thread=True,
            keep_going=True,
            dry_run=True,
            directories={"": "/c", "TRITON_CACHE_DIR": "/t"},
        ),
    ],
)
def test_a_job_comes_through(job: Job):
    assert decode_job(encode_job(job)) == job


def test_a_job_of_no_sense_is_refused():
    job = encode_job(Job("train.py:step", Axes(modes=("train",))))
    with pytest.raises(UsageError):
        decode_job(job.replace('"train"', '"tr ain"'))


def told(tell: object) -> list[dict[str, object]]:
    """The lines that come out of a pipe while something tells into it."""
    reading, writing = os.pipe()
    found = bytearray()

    def read() -> None:
        while data := os.read(reading, 1 << 16):
            found.extend(data)

    reader = Thread(target=read)
    reader.start()
    try:
        tell(Events(writing))  # type: ignore[operator]
    finally:
        os.close(writing)
        reader.join()
        os.close(reading)
    return [json.loads(line) for line in found.decode().splitlines()]


def test_events_are_lines():
    def tell(events: Events) -> None:
        events.plan([Step("cpu", "train", (8, 512)), Step("cpu", "infer")], "abc")
        events.begin(1)
        events.compiling("step (train.py:3)")
        events.failed("usage", "no", ["because"], "do")
        events.done()

    assert told(tell) == [
        {"plan": {"steps": [["cpu", "train", "8x512"], ["cpu", "infer", ""]], "source": "abc"}},
        {"begin": 1},
        {"compiling": "step (train.py:3)"},
        {"failed": {"code": "usage", "message": "no", "facts": ["because"], "hint": "do"}},
        {"done": True},
    ]


def test_a_report_comes_through():
    report = StepReport(
        3,
        "cuda:1",
        "train",
        "8x512",
        seconds=1.5,
        new_files=("a", "b"),
        graphs=(Graph("fx", "miss", "key", "why", "step", "forward", "cuda:1", ("[a] b: c",)),),
        triton_hits=None,
        triton_built=3,
        elsewhere={"cuda:0": 12},
        error="Trace\n",
    )
    (line,) = told(lambda events: events.end(report))
    assert parse(StepReport, json.dumps(line["end"]).encode()) == report


def test_what_is_no_unicode_comes_through_all_the_same():
    (line,) = told(lambda events: events.end(StepReport(0, "cpu", "train", "", new_files=("a\udcff", "ä"))))
    found = parse(StepReport, json.dumps(line["end"]).encode())
    assert found.new_files == ("a?", "ä")


def test_lines_of_many_threads_stay_whole():
    """Far longer than what a pipe takes at once, while other threads compile."""
    long = StepReport(0, "cpu", "train", "", error="x" * 300_000)

    def tell(events: Events) -> None:
        threads = [Thread(target=events.end, args=(long,)) for _ in range(4)]
        threads += [
            Thread(target=lambda: [events.compiling("step (train.py:3)") for _ in range(500)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    lines = told(tell)
    assert sum("end" in line for line in lines) == 4
    assert sum(line == {"compiling": "step (train.py:3)"} for line in lines) == 2000
    assert [line["end"] for line in lines if "end" in line] == 4 * [json.loads(json.dumps(asdict(long)))]
