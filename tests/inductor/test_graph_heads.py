"""The beginning of a graph's entry, without walking the pickle."""

from __future__ import annotations

import gzip
import pickle
from typing import Any

import pytest

from cachekeeper.inductor.graph_heads import autograd_head, graph_head, wrapper_named
from cachekeeper.inductor.graphs import autograd_entry, graph_entry
from tests.inventory.caches import GOLDEN, WRAPPER_MODULE, WRAPPER_TEXT, graph_pickle


def golden(name: str) -> bytes:
    return gzip.decompress((GOLDEN / "sources" / f"cpu-{name}.pickle.gz").read_bytes())


def test_a_real_entry_says_the_same_as_when_it_is_walked():
    data = golden("graph")
    walked, head = graph_entry(data), graph_head(data, with_source=True)
    assert walked
    assert head
    assert (head.wrapper, head.source, head.code) == (walked.wrapper, walked.source, walked.code)
    assert head.components == walked.components
    assert len(head.components) > 600
    assert head.seconds == walked.seconds
    assert head.seconds
    assert wrapper_named(data) == walked.wrapper


def test_without_source_it_is_left_out():
    head = graph_head(golden("graph"))
    assert head
    assert head.source == ""


def test_a_real_autograd_entry_names_the_same_graphs():
    walked, head = autograd_entry(golden("autograd")), autograd_head(golden("autograd"))
    assert walked
    assert head
    assert set(filter(None, head)) == set(filter(None, walked))


@pytest.mark.parametrize("end", [0, 1, 100, 5000, 20000, -1])
def test_a_cut_entry_is_none(end: int):
    assert graph_head(golden("graph")[:end]) is None


def test_lengths_that_lie_are_no_strings():
    data = golden("graph")
    at = data.find(b"inductor_post_grad_graph_str") + len(b"inductor_post_grad_graph_str") + 2
    assert data[at - 1 : at] == b"X"
    assert graph_head(data[:at] + b"\xff\xff\xff\x7f" + data[at + 4 :]) is None


def test_what_is_not_written_as_torch_does_is_to_be_walked():
    # Without the graph's code, as older versions of torch write it.
    assert graph_head(graph_pickle(WRAPPER_MODULE, WRAPPER_TEXT)) is None
    assert wrapper_named(graph_pickle(WRAPPER_MODULE, WRAPPER_TEXT)) == WRAPPER_MODULE


@pytest.mark.parametrize("value", [b"", b"\x80", b"no pickle", pickle.dumps(["cache_key", 3])])
def test_other_bytes_are_none(value: Any):
    assert graph_head(value) is None
    assert autograd_head(value) is None
    assert wrapper_named(value) == ""
