"""What is warm for what: modes, shapes, and what torch has of its own. Each case is in warm_targets.py."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.models import StepReport
from cachekeeper.verbs.warmup import WarmupResult

from .test_warmup import ENVIRONMENT, TARGETS, numbers, replayed, said, small_start

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("warmup-matrix")]
__all__ = ["small_start"]

CASES = (
    "autocast",
    "without-autocast",
    "autocast-inside",
    "checkpoint",
    "subclass",
    "custom-op",
    "custom-function",
    "custom-pass",
    "dynamic-5",
    "dynamic-7",
    "graph-break",
    "forward-only",
)


@pytest.fixture(scope="session")
def cases(clean_environment: None, tmp_path_factory: pytest.TempPathFactory) -> WarmupResult:
    """Every case for training and inference, warmed and proved."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        cache = tmp_path_factory.mktemp("cases") / "inductor"
        return cachekeeper.warmup(f"{TARGETS}:case", shapes=CASES, cache_dir=cache)


@pytest.fixture
def bare(cases: WarmupResult, tmp_path: Path) -> Path:
    """A cache with what torch knows of this machine's compiler, and no graph."""
    cache = shutil.copytree(cases.cache_dir, tmp_path / "inductor")
    shutil.rmtree(cache / "fxgraph")
    shutil.rmtree(cache / "aotautograd")
    return cache


def of(reports: tuple[StepReport, ...], mode: str, shape: str) -> StepReport:
    return next(report for report in reports if (report.mode, report.shape) == (mode, shape))


def test_every_case_is_proved_but_two(cases: WarmupResult):
    assert len(cases.warmed) == len(cases.proved) == 2 * len(CASES) and cases.failed == ()
    assert set(cases.doubts) == {"cpu train forward-only", "cpu train custom-pass", "cpu infer custom-pass"}
    assert all("never cached" in said(cases.doubts[f"cpu {mode} custom-pass"]) for mode in ("train", "infer"))
    for report in cases.proved:
        assert report.fallbacks == () and report.calls > 0
        assert ("backward" in said(report.notes)) == ((report.mode, report.shape) == ("train", "forward-only"))


def test_a_backward_that_never_ran_is_not_warm(cases: WarmupResult):
    cold, warm = (of(reports, "train", "forward-only") for reports in (cases.warmed, cases.proved))
    (note,) = cold.notes
    assert note.startswith("no backward was run in a train step")
    assert warm.number_of("aot", "miss") == 1
    assert "missed in the autograd cache" in said(cases.doubts["cpu train forward-only"])
    assert of(cases.proved, "infer", "forward-only").notes == ()


# (hits, misses, bypasses) of Inductor's cache and of AOTAutograd's, in the second process
WARM = {
    ("train", "autocast"): (2, 0, 0, 1, 0, 0),
    ("train", "without-autocast"): (2, 0, 0, 1, 0, 0),
    ("train", "autocast-inside"): (2, 0, 0, 0, 0, 1),
    ("train", "checkpoint"): (2, 0, 0, 1, 0, 0),
    ("train", "subclass"): (2, 0, 0, 1, 0, 0),
    ("train", "custom-op"): (2, 0, 0, 1, 0, 0),
    ("train", "custom-function"): (2, 0, 0, 0, 0, 1),
    ("train", "custom-pass"): (0, 0, 2, 0, 0, 1),
    ("train", "dynamic-5"): (2, 0, 0, 1, 0, 0),
    ("train", "dynamic-7"): (0, 0, 0, 0, 0, 0),
    ("train", "graph-break"): (4, 0, 0, 2, 0, 0),
    ("infer", "autocast"): (1, 0, 0, 1, 0, 0),
    ("infer", "without-autocast"): (1, 0, 0, 1, 0, 0),
    ("infer", "autocast-inside"): (1, 0, 0, 0, 0, 1),
    ("infer", "checkpoint"): (1, 0, 0, 1, 0, 0),
    ("infer", "subclass"): (1, 0, 0, 1, 0, 0),
    ("infer", "custom-op"): (1, 0, 0, 1, 0, 0),
    ("infer", "custom-function"): (1, 0, 0, 1, 0, 0),
    ("infer", "custom-pass"): (0, 0, 1, 0, 0, 1),
    ("infer", "dynamic-5"): (1, 0, 0, 1, 0, 0),
    ("infer", "dynamic-7"): (0, 0, 0, 0, 0, 0),
    ("infer", "graph-break"): (2, 0, 0, 2, 0, 0),
}


@pytest.mark.parametrize(("mode", "shape"), WARM)
def test_what_the_caches_said(cases: WarmupResult, mode: str, shape: str):
    assert numbers(of(cases.proved, mode, shape)) == WARM[mode, shape]


@pytest.mark.parametrize(
    ("shape", "modes", "caches", "reason"),
    [
        ("autocast-inside", ("train", "infer"), {"aot"}, "_enter_autocast"),
        ("custom-function", ("train",), {"aot"}, "autograd_function_apply"),
        ("custom-pass", ("train", "infer"), {"aot", "fx"}, "Unsupported post grad custom pass"),
    ],
)
def test_what_is_passed_by_has_its_reason(
    cases: WarmupResult, shape: str, modes: tuple[str, ...], caches: set[str], reason: str
):
    for mode in modes:
        for reports in (cases.warmed, cases.proved):
            passed = [graph for graph in of(reports, mode, shape).graphs if graph.state == "bypass"]
            assert {graph.cache for graph in passed} == caches
            assert all(reason in graph.reason and "0x" not in graph.reason for graph in passed)


def test_nothing_else_is_passed_by(cases: WarmupResult):
    for report in (*cases.warmed, *cases.proved):
        passed = [graph for graph in report.graphs if graph.state == "bypass"]
        assert passed == [] or report.shape in ("autocast-inside", "custom-function", "custom-pass")


def test_autocast_has_graphs_of_its_own(cases: WarmupResult):
    """The step after it compiles the same function again, and finds nothing in the cache."""
    for mode in ("train", "infer"):
        report = of(cases.warmed, mode, "without-autocast")
        assert report.number_of("fx", "miss") >= 1
        assert "autocast(cpu)_enabled" in said(report.recompiles)


def test_a_broken_graph_says_why(cases: WarmupResult):
    for report in (*cases.warmed, *cases.proved):
        if report.shape == "graph-break":
            (line,) = report.graph_breaks
            assert line.startswith("_broken_graph (warm_targets.py:") and "for a test" in line
        else:
            assert report.graph_breaks == ()


def test_dynamic_shapes_are_served(cases: WarmupResult, tmp_path: Path):
    """Another size than the one that was warmed, first in a fresh process."""
    report = of(cases.warmed, "train", "dynamic-7")
    assert report.graphs == report.recompiles == () and report.calls == 2
    cache = shutil.copytree(cases.cache_dir, tmp_path / "inductor")
    run, doubts, proof = replayed(cache, "case", ["train", "infer"], ["dynamic-7"])
    assert doubts == {} and proof is not None
    assert [numbers(report) for report in run.reports] == [(2, 0, 0, 1, 0, 0), (1, 0, 0, 1, 0, 0)]


def test_inference_and_its_shape_serve_nothing_else(bare: Path):
    warmed = cachekeeper.warmup(f"{TARGETS}:line", modes=["infer"], shapes=[8], cache_dir=bare, prove=False)
    assert warmed.ok and warmed.proof is None and numbers(warmed.warmed[0]) == (0, 1, 0, 0, 1, 0)
    run, doubts, proof = replayed(bare, "line", ["infer", "train"], [8, 9])
    assert proof is None and list(doubts) == ["cpu infer 9", "cpu train 8", "cpu train 9"]
    assert [numbers(report) for report in run.reports][:2] == [(1, 0, 0, 1, 0, 0), (0, 1, 0, 0, 1, 0)]
    assert run.reports[2].number_of("aot", "miss") == 1
    assert "missed in the graph cache: inference of _line (warm_targets.py:" in said(doubts["cpu infer 9"])
    assert said(doubts["cpu infer 9"]).count("against the nearest known: input 0: shape (8, 8) -> (9, 8)") == 2
    assert "size mismatch" in said(run.reports[1].recompiles) and "grad_mode" in said(run.reports[2].recompiles)
    mode = said(doubts["cpu train 8"])
    assert "missed in the graph cache: forward of _line" in mode and "missed in the graph cache: backward of" in mode
    assert "missed in the autograd cache" in mode and "grad mode: off -> on" in mode


def test_training_does_not_serve_inference(bare: Path):
    warmed = cachekeeper.warmup(f"{TARGETS}:line", modes=["train"], shapes=[8], cache_dir=bare, prove=False)
    assert numbers(warmed.warmed[0]) == (0, 2, 0, 0, 1, 0)
    run, doubts, proof = replayed(bare, "line", ["train", "infer"], [8])
    assert proof is None and list(doubts) == ["cpu infer 8"]
    assert numbers(run.reports[0]) == (2, 0, 0, 1, 0, 0) and run.reports[1].number_of("aot", "miss") == 1
    mode = said(doubts["cpu infer 8"])
    assert "missed in the autograd cache" in mode and "grad mode: on -> off" in mode
    assert "missed in the graph cache: inference of _line" in mode
