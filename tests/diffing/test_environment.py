"""Fingerprints side by side."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cachekeeper.diffing.environment import environment, is_idle
from cachekeeper.models import Fact, ModelHash
from tests.samples import fingerprint


def compare(a, b, cpu_code=True):
    return environment(a, b, (), cpu_code)


def recorded(**facts):
    return replace(fingerprint(), recorded={name: Fact(value) for name, value in facts.items()})


def said(changes):
    return [(change.name, change.a, change.b) for change in changes]


def test_another_torch_breaks_every_key():
    found = compare(fingerprint("2.11.0"), fingerprint("2.13.0"))
    assert said(found.facts) == [("torch", "2.11.0", "2.13.0")]
    assert found.breaking == ("torch",)
    assert found.facts[0].words == "torch would ignore every entry"


def test_another_driver_breaks_nothing():
    found = compare(fingerprint(), replace(fingerprint(), should={"driver": Fact("999")}))
    assert said(found.facts) == [("driver", "570.86.10", "999")]
    assert found.breaking == ()


def test_another_gpu_is_not_said_to_be_here():
    found = compare(fingerprint(), fingerprint(capability="sm_100"))
    assert found.breaking == ("gpu",)
    assert "here" not in found.facts[0].words
    assert "kernels for sm_90 do not run on the other GPU" in found.facts[0].words


def test_what_is_not_known_of_one_side_cannot_be_said_to_break():
    found = compare(fingerprint(), fingerprint(cuda=Fact(unknown="no reason")))
    assert said(found.facts) == [("cuda", "13.0", "unknown (no reason)")]
    assert found.breaking == ()


def test_what_nobody_knows_is_no_difference():
    unknown = fingerprint(cuda=Fact(unknown="no reason"))
    assert compare(unknown, unknown) == compare(fingerprint(), fingerprint())


@pytest.mark.parametrize("cpu_code", [True, False])
def test_threads_matter_to_cpu_code(cpu_code):
    found = compare(fingerprint(threads=Fact(8)), fingerprint(threads=Fact(1)), cpu_code)
    assert ("no effect on GPU kernels" in found.facts[0].words) is not cpu_code


def test_variables_one_by_one():
    a = fingerprint(environment=Fact({"TORCHINDUCTOR_MAX_AUTOTUNE": "1", "OMP": "1"}))
    b = fingerprint(environment=Fact({"OMP": "1"}))
    found = compare(a, b)
    assert said(found.variables) == [("TORCHINDUCTOR_MAX_AUTOTUNE", "1", "not set")]
    assert (found.facts, is_idle(found.variables[0])) == ((), False)


def test_variables_without_effect_are_idle_and_the_place_of_a_cache_is_none():
    a = recorded(variables_without_effect={"TORCH_LOGS": "a", "TORCHINDUCTOR_CACHE_DIR": "/a"})
    b = recorded(variables_without_effect={"TORCHINDUCTOR_CACHE_DIR": "/b"})
    found = compare(a, b)
    assert said(found.variables) == [("TORCH_LOGS", "a", "not set")]
    assert is_idle(found.variables[0])


def test_packages():
    a = recorded(packages={"transformers": "5.6.0", "numpy": "2.0", "old": "1"})
    b = recorded(packages={"transformers": "5.8.1", "numpy": "2.0", "new": "1"})
    assert said(compare(a, b).packages) == [
        ("new", "not installed", "1"),
        ("old", "1", "not installed"),
        ("transformers", "5.6.0", "5.8.1"),
    ]
    assert compare(a, fingerprint()).packages == ()


def test_a_package_is_not_said_twice():
    a = replace(fingerprint("2.11.0"), recorded={"packages": Fact({"torch": "2.11.0"})})
    b = replace(fingerprint("2.13.0"), recorded={"packages": Fact({"torch": "2.13.0"})})
    assert compare(a, b).packages == ()


def test_the_model_is_no_environment():
    a, b = (replace(fingerprint(), model=ModelHash(digit * 64)) for digit in "ab")
    assert compare(a, b) == compare(a, a)


def test_the_number_of_processes_is_no_environment():
    a, b = (replace(fingerprint(), recorded={"job": Fact({"WORLD_SIZE": number})}) for number in ("8", "16"))
    assert compare(a, b) == compare(a, a)


def test_without_a_fingerprint_nothing_is_said():
    assert compare(None, fingerprint()).facts == ()
