"""What autotuning found, read."""

from __future__ import annotations

import json

import pytest

from cachekeeper.inductor.tuning import Chosen, Measured, chosen, inputs_in_words, measured

# Written by torch 2.11 on an H200.
RECORDED = b"""{"XBLOCK": 8, "num_warps": 2, "num_stages": 1, "configs_hash": "b14aec259222f7b44b1dad3167d12a680f5f58\
8c0b65f17b7babaec5bb8b1c62", "found_by_coordesc": false, "time_taken_ms": 17, "triton_cache_hash": \
"3RMESI5Z7FRMB3A4YT4XC4TOPWGRKHMQOXUP446CA3E5SZ7UYIOQ"}"""
BY_DESCENT = b"""{"XBLOCK": 512, "num_warps": 4, "num_stages": 1, "configs_hash": "3ca5c3e34d35093f3c9ab2829a9faeeb\
ad5e61c4ca13d5ed6053d7b71ce60d5a", "found_by_coordesc": true, "time_taken_ms": 662, "triton_cache_hash": null}"""
PRODUCT = "[('cuda', 'torch.bfloat16', 4096, 256, 256, 1, 0), ('cuda', 'torch.bfloat16', 256, 1024, 1024, 1, 0)]"
LIBRARY = "mm-cqrjyn5jqdhj5q3lohxxeq3fxnpvy6qsigzdm2ykqas7fpkl7zrz"
TEMPLATE = "triton_mm-ckc3o2hdczqtyikwqvzifxu7oyeblxqoinnz5ecqecyvtogky57o"
TIMES = {LIBRARY: 0.02332800067961216, TEMPLATE: 0.011168000288307667}


def timings(table):
    return json.dumps({"system": {"device": {"name": "NVIDIA H200"}}, "cache": table}).encode()


def test_a_configuration():
    config = {"XBLOCK": 8, "num_warps": 2, "num_stages": 1}
    assert chosen(RECORDED) == Chosen(config, False, 0.017, "3RMESI5Z7FRMB3A4YT4XC4TOPWGRKHMQOXUP446CA3E5SZ7UYIOQ")
    assert chosen(BY_DESCENT) == Chosen({"XBLOCK": 512, "num_warps": 4, "num_stages": 1}, True, 0.662, "")


def test_a_configuration_of_an_older_torch():
    assert chosen(b'{"XBLOCK": 64, "num_warps": 4, "ok": true}') == Chosen(
        {"XBLOCK": 64, "num_warps": 4, "ok": True}, False, None, ""
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b"\xff",
        RECORDED[:-5],
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"XBLOCK": ' + b"9" * 5000 + b"}",
    ],
    ids=range(9),
)
def test_no_configuration(data):
    assert chosen(data) is None


def test_values_of_other_kinds_are_left_out():
    data = b'{"XBLOCK": 8, "a": [1], "b": {}, "c": null, "time_taken_ms": "soon", "triton_cache_hash": 5}'
    assert chosen(data) == Chosen({"XBLOCK": 8}, False, None, "")
    assert chosen(b'{"XBLOCK": 8, "time_taken_ms": ' + b"9" * 400 + b"}").seconds is None


def test_times_of_products():
    data = timings({"mm": {PRODUCT: {"highest": TIMES, "high": {LIBRARY: 0.02}}}, "bmm": {"[]": {"highest": {}}}})
    assert measured(data) == [
        Measured("mm", PRODUCT, "highest", TIMES),
        Measured("mm", PRODUCT, "high", {LIBRARY: 0.02}),
        Measured("bmm", "[]", "highest", {}),
    ]


def test_times_of_a_torch_without_precisions():
    assert measured(timings({"mm": {PRODUCT: TIMES}})) == [Measured("mm", PRODUCT, "", TIMES)]


def test_failed_choices_have_no_time():
    table = {"a": float("inf"), "b": float("nan"), "c": None, "d": "x", "e": True, "f": 2}
    (found,) = measured(timings({"mm": {PRODUCT: {"highest": table}}}))
    assert found.times == {"a": None, "b": None, "c": None, "d": None, "e": None, "f": 2.0}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"cache": []}',
        b'{"cache": {"mm": 1}}',
        b'{"cache": {"mm": {"a": 1}}}',
        b'{"cache": {"mm": {"a": {}}}}',
    ],
)
def test_no_times(data):
    assert measured(data) == []


def test_not_more_times_are_read_than_can_be_shown():
    one = {f"c{at}": 1.0 for at in range(60_000)}
    found = measured(timings({"mm": {"a": {"highest": one}, "b": {"highest": one}}}))
    assert [entry.inputs for entry in found] == ["a"]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (PRODUCT, "bf16[4096, 256] x bf16[256, 1024]"),
        ("[('cpu', 'torch.float32', 8, 1, 0)]", "f32[8]"),
        ("[('cuda', 'torch.float32', 0)]", "f32[]"),
        ("[('cuda', 'torch.float8_e4m3fn', 2, 3, 4, 12, 4, 1, 0)]", "f8e4m3fn[2, 3, 4]"),
        ("[('cuda', 'torch.float32', 8, 4, 0)]", "f32[8]"),
        ("[('cuda',)]", "[('cuda',)]"),
        ("[('cuda', 'torch.float32', 8, 4, 1, 0)]", "[('cuda', 'torch.float32', 8, 4, 1, 0)]"),  # no pairs
        ("[]", "[]"),
        ("mm(a, b)", "mm(a, b)"),
        ("", ""),
    ],
)
def test_inputs_in_words(raw, words):
    assert inputs_in_words(raw) == words


@pytest.mark.parametrize(
    "raw", ["[" * 100_000, "(" * 1000, "9" * 60_000, "[('\\d',)]", "[__import__('os')]"], ids=range(5)
)
def test_hostile_inputs_stay_as_they_are(raw):
    assert inputs_in_words(raw) == raw[:200]


def test_a_number_that_is_none_or_has_no_end():
    data = b'{"XBLOCK": 8, "a": NaN, "b": 1e999, "c": -Infinity, "time_taken_ms": 1e999}'
    assert chosen(data) == Chosen({"XBLOCK": 8}, False, None, "")
    assert chosen(b'{"XBLOCK": NaN}') is None
    [found] = measured(b'{"cache": {"mm": {"x": {"high": {"a": NaN, "b": 1e999, "c": 1}}}}}')
    assert found.times == {"a": None, "b": None, "c": 1.0}
