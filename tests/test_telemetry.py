"""Events and lines: what goes in comes out, written once, and nothing that a line says does harm."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cachekeeper
from cachekeeper import telemetry
from cachekeeper.models import Graph
from cachekeeper.telemetry import Compiled, Encoder, End, Event, Fallback, Frame, Log, Note, Process

PROCESS = Process(7, "host", 1e9, ("train.py", "--größe"), "3.11.7", "2.13.0", 3, 1, 8, {"tracing": "on"})


def compiled(*components: str, key: str = "fabc", state: str = "miss", at: float = 1e9) -> Compiled:
    return Compiled(at, "MainThread", Graph("fx", state, key, "", "step (train.py:3)", "forward", "cpu", components))


EVENTS: tuple[Event, ...] = (
    PROCESS,
    compiled("[a] gm: x", "[b] x: 1"),
    Compiled(1e9 + 1, "worker", Graph("aot", "bypass", "", "ein Grund\n", "f", "", "cuda:5"), 0.25),
    Frame(1e9 + 2, "worker", "step (train.py:3)", 2.5, "gave up", True),
    Fallback(1e9 + 3, "worker", "step", "limit of recompiles"),
    Note(1e9 + 4, "", "settings differ"),
    End(1e9 + 5, 4),
)


def lines(*events: Event) -> list[bytes]:
    encoder = Encoder()
    return [encoder.encode(event) for event in events]


def test_every_event_comes_back():
    log = telemetry.decode(lines(*EVENTS))
    assert log == Log(PROCESS, EVENTS[1:3], EVENTS[3:4], EVENTS[4:5], EVENTS[5:6], EVENTS[6])
    assert telemetry.decode(telemetry.encode(log).splitlines(keepends=True)) == log
    assert all(line.isascii() and line.count(b"\n") == 1 for line in lines(*EVENTS))


@given(st.lists(st.lists(st.sampled_from([f"[h{n}] name{n}: ü\n" for n in range(8)]), max_size=12), max_size=6))
def test_components_of_any_graphs_come_back(graphs: list[list[str]]):
    events = [compiled(*lines) for lines in graphs]
    assert telemetry.decode(lines(PROCESS, *events)).compiled == tuple(events)


def test_a_component_is_written_once():
    once, twice = (b"".join(lines(PROCESS, *[compiled("x" * 900, "y")] * n)) for n in (1, 2))
    assert once.count(b"xxx") == twice.count(b"xxx") and len(twice) - len(once) < 300


def test_what_was_not_written_is_said_again():
    encoder = Encoder()
    written = [encoder.encode(PROCESS), encoder.encode(compiled("a"))]
    encoder.encode(compiled("a", "b"))
    encoder.forget()
    written.append(encoder.encode(compiled("a", "c", "b")))
    assert [event.graph.components for event in telemetry.decode(written).compiled] == [("a",), ("a", "c", "b")]


def test_a_lost_line_takes_only_its_own_components_with_it():
    written = lines(PROCESS, compiled("a", "b"), compiled("c", "d"), compiled("a", "e", "d"))
    del written[1]
    log = telemetry.decode(written)
    assert [event.graph.components for event in log.compiled] == [("c", "d"), ("e", "d")]


def test_a_torn_line_is_passed_over_and_said():
    data = b"".join(lines(*EVENTS))
    for cut in range(len(data)):
        rows = data[:cut].splitlines(keepends=True)
        whole = [row for row in rows if row.endswith(b"\n")]
        if whole:
            log = telemetry.decode(rows)
            told = len(log.compiled) + len(log.frames) + len(log.fallbacks) + len(log.notes) + (log.end is not None)
            assert (told, log.torn) == (len(whole) - 1, len(rows) != len(whole))


HOSTILE = [
    b"\n",
    b"\0\xff\n",
    b"[" * 100_000 + b"\n",
    b'{"kind": ' * 5000 + b"\n",
    b"[]\n",
    b"null\n",
    b'"compiled"\n',
    b'{"kind": ["compiled"]}\n',
    b'{"kind": "unknown"}\n',
    b'{"kind": "note", "at": NaN, "thread": "", "text": ""}\n',
    b'{"kind": "note", "at": 1e999, "thread": "", "text": ""}\n',
    b'{"kind": "note", "at": true, "thread": "", "text": ""}\n',
    b'{"kind": "note", "at": 1, "thread": 5, "text": ""}\n',
    b'{"kind": "end", "at": 1, "dropped": ' + b"9" * 5000 + b"}\n",
    b'{"kind": "end", "at": 1, "dropped": 1.5}\n',
    b'{"kind": "process", "pid": 1, "host": "h", "began": 1, "argv": "a"}\n',
    b'{"kind": "process", "pid": 1, "host": "h", "began": 1, "measures": []}\n',
    b'{"kind": "frame", "at": 1, "thread": "", "function": "f", "seconds": 1, "backward": 1}\n',
]
GRAPH = {"kind": "compiled", "at": 1, "thread": "", "cache": "fx", "state": "hit", "key": "k"}
HOSTILE_GRAPHS = [
    {"components": [[0, 10**12]]},
    {"components": [[-1, 0]]},
    {"components": [[1, 0]]},
    {"components": [[0.0, 0.0]]},
    {"components": [[0]]},
    {"components": ["ab"]},
    {"components": 5},
    {"from": -1, "new": ["x"]},
    {"from": 10**15, "new": ["x"]},
    {"from": 0, "new": "xyz"},
    {"from": 0, "new": [5]},
]


@pytest.mark.parametrize(
    "line", [*HOSTILE, *(json.dumps({**GRAPH, **more}).encode() + b"\n" for more in HOSTILE_GRAPHS)]
)
def test_a_hostile_line_is_passed_over(line: bytes):
    before, after = lines(PROCESS, EVENTS[4], EVENTS[5])[:2], lines(EVENTS[6])
    assert telemetry.decode([*before, line, *after]) == Log(PROCESS, fallbacks=EVENTS[4:5], end=EVENTS[6])


@settings(max_examples=300)
@given(st.binary(max_size=200), st.integers(0, 1000))
def test_whatever_the_bytes_no_more_than_a_value_error(noise: bytes, at: int):
    data = b"".join(lines(*EVENTS))
    for damaged in (noise, data[:at] + noise + data[at:], data[:at] + noise + data[at + len(noise) :]):
        try:
            telemetry.decode(damaged.splitlines(keepends=True))
        except ValueError as error:
            assert "no process" in str(error)


def test_no_line_makes_much_of_little():
    """Each of these says that its graph has all components of the table, a thousand times."""
    table = json.dumps({**GRAPH, "new": ["x"] * 900_000, "components": []}).encode() + b"\n"
    wide = json.dumps({**GRAPH, "components": [[0, 40_000]]}).encode() + b"\n"
    again = json.dumps({**GRAPH, "components": [[0, 40_000]] * 1000}).encode() + b"\n"
    began = time.perf_counter()
    log = telemetry.decode([*lines(PROCESS), table, *[wide] * 1000, again])
    assert sum(len(event.graph.components) for event in log.compiled) <= 5_000_000
    assert len(log.compiled) == 1002 and time.perf_counter() - began < 20


def test_half_a_surrogate_pair_becomes_text():
    [event] = telemetry.decode(lines(PROCESS, Note(1, "", "name \udcff"))).notes
    assert event.text == "name ?"


def test_no_process_is_no_log():
    for nothing in ([], [b"\n"], lines(EVENTS[6])):
        with pytest.raises(ValueError, match="no process"):
            telemetry.decode(nothing)


def test_285_graphs_take_little_room_and_time():
    """As many as a real job had: 650 components each, of which the graph and its inputs differ."""
    config = [f"[{n:051d}] inductor_config[option_{n}]: {'v' * (n % 90)}" for n in range(620)]
    graphs = []
    for number in range(285):
        own = [f"[{number:051d}] gm: {chr(97 + number % 26) * 1900}"]
        own += [f"[{number * 30 + n:051d}] example_inputs[{n}]: {'TensorMetadata ' * 20}" for n in range(12)]
        both = (compiled(*own, *config, key=f"f{number}"), compiled(*own[:-1], *config[5:], key=f"a{number}"))
        graphs += both
    data = b"".join(lines(PROCESS, *graphs))
    began = time.perf_counter()
    log = telemetry.decode(data.splitlines(keepends=True))
    seconds = time.perf_counter() - began
    assert log.compiled == tuple(graphs) and len(data) < 3_000_000
    assert seconds < 1, seconds


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (None, None, None)),
        ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "SLURM_PROCID": "0"}, (3, 1, 8)),
        ({"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "16", "RANK": ""}, (5, 1, 16)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}, (2, None, 4)),
        ({"PMI_RANK": "1", "MPI_LOCALRANKID": "1", "PMI_SIZE": "2"}, (1, 1, 2)),
        ({"RANK": "-1", "LOCAL_RANK": "x"}, (None, None, None)),
        ({"RANK": "²"}, (None, None, None)),
    ],
)
def test_ranks(variables: dict[str, str], expected: tuple[int | None, ...]):
    assert telemetry.ranks(variables) == expected


@pytest.mark.parametrize(("value", "wanted"), [("", True), ("1", True), ("0", False), ("OFF", False), ("no", False)])
def test_the_switch(value: str, wanted: bool):
    assert telemetry.is_wanted({"CACHEKEEPER_TELEMETRY": value}) is wanted


def test_the_lines_are_as_described():
    described = (Path(cachekeeper.__file__).parent / "FORMAT.md").read_text()
    for event in EVENTS:
        kind, *keys = json.loads(lines(event)[0]).keys()
        name = json.loads(lines(event)[0])[kind]
        [row] = re.findall(rf"^{name} +(.*)$", described, re.MULTILINE)
        assert set(keys) <= set(re.findall(r"\w+", row)) and keys[0] == row.split()[0], name
        assert set(re.findall(r"\w+", row)) - set(keys) <= {"from", "new"}
