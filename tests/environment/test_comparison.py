"""What differs between two fingerprints, and how it is said."""

from dataclasses import replace

import pytest

from cachekeeper.environment import compare, shown, summary
from cachekeeper.environment.comparison import _EFFECTS, CPU_FACTS
from cachekeeper.environment.machine import fingerprint
from cachekeeper.models import Fact, Fingerprint, ModelHash

H200 = [{"name": "NVIDIA H200", "capability": "sm_90"}]
H100 = [{"name": "NVIDIA H100 80GB HBM3", "capability": "sm_90"}]
A100 = [{"name": "NVIDIA A100-SXM4-80GB", "capability": "sm_80"}]


def made(must=None, should=None, model=None):
    facts = {"torch": "2.11.0+cu130", "torch_source": "a" * 64, "cuda": "13.0", "gpu": H200, "threads": 8}
    facts.update(must or {})
    wrapped = {name: fact if isinstance(fact, Fact) else Fact(fact) for name, fact in facts.items()}
    should = {name: Fact(value) for name, value in (should or {}).items()}
    return Fingerprint("id", wrapped, should, {}, ModelHash(model) if model else None)


def only(comparison):
    assert comparison.should == ()
    (difference,) = comparison.must
    return difference


def test_the_same_fits():
    assert compare(made(), made()).fits
    assert compare(fingerprint(), fingerprint()).fits


def test_versions():
    difference = only(compare(made({"torch": "2.9.1+cu130", "torch_source": "b" * 64}), made()))
    assert (difference.name, difference.theirs, difference.ours) == ("torch", "2.9.1+cu130", "2.11.0+cu130")
    assert difference.effect == "torch would ignore every entry"


def test_same_version_other_build():
    difference = only(compare(made({"torch_source": "b" * 64}), made()))
    assert difference.name == "torch_source"
    assert (difference.theirs, difference.ours) == ("b" * 12, "a" * 12)
    assert "same version, other build or edited files" in difference.effect


def test_another_version_does_not_hide_an_unknown_source():
    theirs = made({"torch": "2.9.1", "torch_source": Fact(unknown="unreadable")})
    assert [item.name for item in compare(theirs, made()).must] == ["torch", "torch_source"]


def test_unknown_never_fits():
    unknown = made({"gpu": Fact(unknown="no driver")})
    difference = only(compare(unknown, unknown))
    assert difference.theirs == "unknown (no driver)"
    assert "cannot be checked" in difference.effect
    assert not compare(made(), unknown).fits


def test_a_fact_of_one_side_only():
    theirs = made({"new_fact": "x"})
    assert only(compare(theirs, made())).ours == "not recorded"
    assert only(compare(made(), theirs)).theirs == "not recorded"


@pytest.mark.parametrize(
    ("gpu", "words"),
    [(H100, "Triton's own kernels fit"), (A100, "kernels for sm_80 do not run here"), (None, "ignore every entry")],
)
def test_gpus(gpu, words):
    difference = only(compare(made({"gpu": gpu}), made()))
    assert difference.ours == "NVIDIA H200 sm_90"
    assert words in difference.effect
    assert not {"{", "["} & set(difference.theirs + difference.ours)


def test_without_cpu_code_its_facts_only_warn():
    theirs = made({"threads": 4})
    assert only(compare(theirs, made())).name == "threads"
    comparison = compare(theirs, made(), cpu_code=False)
    assert comparison.fits
    assert [(item.group, item.name) for item in comparison.should] == [("should", "threads")]
    assert not compare(made({"cuda": "12.8"}), made(), cpu_code=False).fits


def test_variables_one_by_one():
    theirs = made({"environment": {"TORCHINDUCTOR_MAX_AUTOTUNE": "1", "TRITON_INTERPRET": "0", "SAME": "1"}})
    ours = made({"environment": {"TRITON_INTERPRET": "1", "SAME": "1", "CI": "set"}})
    found = [(item.name, item.theirs, item.ours) for item in compare(theirs, ours).must]
    assert found == [
        ("CI", "not set", "set"),
        ("TORCHINDUCTOR_MAX_AUTOTUNE", "1", "not set"),
        ("TRITON_INTERPRET", "0", "1"),
    ]


def test_an_empty_value_is_not_an_unset_one():
    (item,) = compare(made({"environment": {"X": ""}}), made({"environment": {}})).must
    assert (item.theirs, item.ours) == ("(empty)", "not set")


def test_should_only_warns():
    comparison = compare(made(should={"driver": "570.86.10"}), made(should={"driver": "580.65.06"}))
    assert comparison.fits
    assert comparison.should[0].theirs == "570.86.10"


def test_another_number_of_processes_only_warns():
    """C35. Which of them it was makes no difference, and what only one side knows is none."""

    def of(**job):
        return replace(made(), recorded={"job": Fact(job)})

    [found] = compare(of(WORLD_SIZE="8", RANK="0"), of(WORLD_SIZE="16", RANK="3")).should
    assert (found.name, found.theirs, found.ours) == ("WORLD_SIZE", "8", "16")
    assert compare(of(WORLD_SIZE="8"), of()).should == compare(of(), of(RANK="3")).should == ()


def test_models():
    assert compare(made(model="a"), made(model="a")).fits
    difference = only(compare(made(model="a" * 64), made(model="b" * 64)))
    assert (difference.group, difference.theirs) == ("model", "a" * 12)
    one_sided = compare(made(model="a"), made())
    assert one_sided.fits
    assert one_sided.should[0].ours == "not recorded"


def test_every_fact_has_an_effect():
    found = fingerprint()
    assert set(_EFFECTS) == set(found.must) | set(found.should)
    assert set(found.must) >= CPU_FACTS


@pytest.mark.parametrize(
    ("must", "expected"),
    [
        ({}, "H200 sm_90 cu130 2.11.0"),
        ({"gpu": H200 + A100}, "H200 sm_90 + A100-SXM4-80GB sm_80 cu130 2.11.0"),
        ({"gpu": None, "cuda": None, "instruction_set": "avx2"}, "CPU avx2 2.11.0"),
        ({"gpu": Fact(unknown="x")}, "GPU unknown cu130 2.11.0"),
        (
            {"gpu": [{"name": "gfx942", "capability": "gfx942"}], "cuda": None, "hip": "6.4.43482-0f2d60242"},
            "gfx942 rocm6.4 2.11.0",
        ),
        ({"torch": Fact(unknown="x")}, "H200 sm_90 cu130 torch unknown"),
    ],
)
def test_summary(must, expected):
    assert summary(made(must)) == expected


def test_shown():
    assert shown("cuda", Fact(None)) == "none"
    assert shown("cuda", None) == "not recorded"
    assert shown("threads", Fact(8)) == "8"
    assert shown("environment", Fact({"A": "1", "B": "2"})) == "A=1, B=2"
    assert shown("command", Fact(["a", "b"])) == "a, b"
