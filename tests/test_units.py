"""Numbers and times as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachekeeper import units


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1,023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (100 * 1024, "100 KiB"),
        (1024**2 - 1, "1,024 KiB"),
        (1024**2, "1.0 MiB"),
        (412 * 1024**2, "412 MiB"),
        (1024**3, "1.0 GiB"),
        (5000 * 1024**3, "5,000 GiB"),
    ],
)
def test_bytes(count: int, text: str):
    assert units.format_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (0.44, "0.4 s"),
        (12.4, "12 s"),
        (60, "1 minute"),
        (75, "1 minute"),
        (120, "2 minutes"),
        (3599, "59 minutes"),
        (3600, "1 hour"),
        (7300, "2 hours"),
        (86400, "1 day"),
        (6 * 86400 + 5, "6 days"),
        (4000 * 86400, "4,000 days"),
    ],
)
def test_durations(seconds: float, text: str):
    assert units.format_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("0s", 0),
        ("45s", 45),
        ("30min", 1800),
        ("1.5h", 5400),
        ("24h", 86400),
        ("14d", 1209600),
        ("2w", 1209600),
    ],
)
def test_a_duration_as_people_write_it(text: str, seconds: float):
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "14", "d", "5m", "-1d", "1 d", "1e3s", "infd", "nans", "1d2h", "1D", "\u0661d", "1d\n"]
)
def test_what_is_no_duration(text: str):
    with pytest.raises(ValueError, match="is no duration: write it as 90s, 30min, 12h, 14d or 2w") as raised:
        units.parse_duration(text)
    assert ("(m could be minutes or months)" in str(raised.value)) == (text == "5m")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(9.96, "10.0 s"), (59.6, "1 minute"), (3599, "1 hour"), (14 * 86400 - 1, "14 days"), (13.4 * 86400, "13 days")],
)
def test_durations_to_the_nearest(seconds: float, text: str):
    assert units.format_duration(seconds, nearest=True) == text


@pytest.mark.parametrize("text", ["0", "45s", "90s", "30min", "12h", "2w", "3d", "1.5s"])
def test_a_duration_is_written_as_it_is_read(text: str):
    assert units.as_duration(units.parse_duration(text)) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1769847300.9, "2026-01-31T08:15:00Z"),
        (-5.0, "1970-01-01T00:00:00Z"),
        *((beyond, "9999-12-31T23:59:59Z") for beyond in (1e12, float("inf"), float("nan"))),
    ],
)
def test_seconds_since_the_epoch_as_a_time(seconds: float, text: str):
    assert units.timestamp_of(seconds) == text and units.is_timestamp(text)


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "file", "0 files"),
        (1, "file", "1 file"),
        (2, "file", "2 files"),
        (1, "entry", "1 entry"),
        (1200, "entry", "1,200 entries"),
        (2, "day", "2 days"),
        (3, "damaged entry", "3 damaged entries"),
    ],
)
def test_counts(number: int, noun: str, text: str):
    assert units.count(number, noun) == text


def test_an_age_is_never_negative():
    assert units.age_seconds("2999-01-01T00:00:00Z") == 0
    assert units.age_seconds("2020-01-01T00:00:00Z") > 6 * 365 * 86400
    assert units.age_seconds(units.now_utc()) < 5


def test_a_time_as_stored():
    assert units.is_timestamp("2026-01-31T08:15:00Z")
    assert units.is_timestamp(units.now_utc())


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "2026-1-31T08:15:00Z", "2026-02-30T00:00:00Z", "2026-01-31T08:15:00+00:00", "2026-01-31"),
        *("2026-01-31T08:15:00", "2026-01-31T08:15:00ZZ", "2026-01-31 08:15:00Z", "20260131T081500Z", "2026-01-31T08Z"),
        *("2026-01-31T08:15:00.5Z", "2026-01-31T24:00:00Z", "٢٠٢٦-01-31T08:15:00Z"),
    ],
)
def test_what_is_no_time(text: str):
    assert not units.is_timestamp(text)


def test_short_ids():
    assert units.short_id("7c1e04ab" + "0" * 56) == "7c1e04ab"


@given(st.text())
def test_harmless_text_can_be_printed(text: str):
    shown = units.harmless(text)
    assert shown.isprintable() and len(shown) == len(text)


def test_harmless_text_stays_readable():
    assert units.harmless("größe \x1b[31m\n\udcff") == "größe ?[31m??"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (2.0568, "2.0568"),
        (-0.0571234, "-0.0571234"),
        (999, "999"),
        (1000, "1,000"),
        (13_423_560.4, "13,423,560"),
        (-21_500.6, "-21,501"),
        (1e20, "1e+20"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
    ],
)
def test_numbers(number: float, text: str):
    assert units.format_number(number) == text


def test_long_names():
    name = "triton_poi_fused_add_mul_native_layer_norm_50"
    assert units.shortened(name, 40, 12) == "triton_poi_fused_add_mul_...ayer_norm_50"
    assert units.shortened(name) == name == units.shortened(name, len(name))
    long = "a_" * 40 + "7"
    assert units.with_short_names(f"likely {long}, `diff --kernel {long}` and {name}") == (
        f"likely {units.shortened(long)}, `diff --kernel {long}` and {name}"
    )
    assert len(units.shortened(long)) == 60 and units.shortened(long).endswith("_a_7")


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ("2026-01-31T08:15:00Z", "2026-01-31T08:14:20Z", "b was saved 40 s before a"),
        ("2026-01-31T08:15:00Z", "2026-01-28T08:14:20Z", "b was saved 3 days before a"),
        ("2026-01-31T08:15:00Z", "2026-01-31T08:15:00Z", ""),
        ("2026-01-30T08:15:00Z", "2026-01-31T08:15:00Z", ""),
        ("", "2026-01-31T08:15:00Z", ""),
        ("2026-01-31T08:15:00Z", "", ""),
        ("x", "a", ""),
    ],
)
def test_which_is_older(a: str, b: str, words: str):
    assert units.older_than(a, b).partition(":")[0] == words


def test_the_first_of_many_and_how_many_more():
    assert units.few(["a", "b"], 2) == ("a", "b")
    assert units.few(["a", "b", "c"], 2) == ("a", "b", "and 1 more")
    assert units.listed(["a", "b"], 2) == "a, b"
    assert units.listed([str(number) for number in range(1003)], 3) == "0, 1, 2 and 1,000 more"
