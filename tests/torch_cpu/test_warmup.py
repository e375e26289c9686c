"""What `cachekeeper warmup` reports of real compiles is true, and a plain job finds what it says it left."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import CachekeeperError, NotFound
from cachekeeper.inside.job import Job
from cachekeeper.models import Proof, StepReport
from cachekeeper.plans import axes
from cachekeeper.verbs.warmup import WarmupResult
from cachekeeper.warming import Listener, Run, replay

from . import running
from .job import files_in
from .running import Started

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("warmup")]

TARGETS = Path(__file__).with_name("warm_targets.py")
# Every process would preprocess a header first, and the first of a user build 147 MB of it.
ENVIRONMENT = {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}
Plain = Callable[..., running.Run]


@pytest.fixture(autouse=True)
def small_start(own_environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@dataclass(frozen=True)
class Warmed:
    """A warmed cache, and the compilers that both processes started, by a record of their own."""

    cache: Path
    result: WarmupResult
    launches: tuple[str, ...]


@pytest.fixture(scope="session")
def warmed(clean_environment: None, compilers: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warmed]:
    """`net` for training and inference, proved; tests that change the cache take a copy."""
    work = tmp_path_factory.mktemp("warmed")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setenv("PATH", str(compilers), prepend=":")
        patch.setenv("COMPILER_LOG", str(work / "log"))
        result = cachekeeper.warmup(f"{TARGETS}:net", shapes=[8], cache_dir=work / "inductor")
    yield Warmed(work / "inductor", result, tuple((work / "log").read_text().splitlines()))


@pytest.fixture
def cache(warmed: Warmed, tmp_path: Path) -> Path:
    """A copy of the warmed cache."""
    return shutil.copytree(warmed.cache, tmp_path / "inductor")


@pytest.fixture
def plain(compilers: Path, monkeypatch: pytest.MonkeyPatch) -> Plain:
    """Run steps in a process that has nothing of cachekeeper: plain(cache, "net,train,8")."""
    monkeypatch.setattr(running, "JOB", TARGETS)

    def run(cache: Path, *steps: str) -> running.Run:
        done = Started(compilers, cache, steps).finish()
        assert done.code == 0, done.errors[-3000:]
        return done

    return run


def replayed(
    cache: Path, name: str, modes: object, shapes: object = (), target: Path = TARGETS
) -> tuple[Run, Mapping[str, tuple[str, ...]], Proof | None]:
    """Run a plan on a cache that is to hold everything."""
    job = Job(f"{target}:{name}", axes(["cpu"], modes, shapes))  # type: ignore[arg-type]
    return replay(job, False, cache, Listener())


def numbers(report: StepReport) -> tuple[int, ...]:
    """(hits, misses, bypasses) of Inductor's cache and of AOTAutograd's."""
    return tuple(report.number_of(cache, state) for cache in ("fx", "aot") for state in ("hit", "miss", "bypass"))


def said(lines: object) -> str:
    assert isinstance(lines, (tuple, list))
    return "\n".join(lines)


def test_a_cold_process_and_a_warm_one(warmed: Warmed):
    result = warmed.result
    assert result.ok and result.doubts == {} and result.steps == (("cpu", "train", "8"), ("cpu", "infer", "8"))
    assert [numbers(report) for report in result.warmed] == [(0, 2, 0, 0, 1, 0), (0, 1, 0, 0, 1, 0)]
    assert [numbers(report) for report in result.proved] == [(2, 0, 0, 1, 0, 0), (1, 0, 0, 1, 0, 0)]
    assert [report.calls for report in (*result.warmed, *result.proved)] == [2, 1, 2, 1]
    cold, warm = result.warmed, result.proved
    assert all(report.new_files and report.new_entries for report in cold)
    assert all(report.new_files == report.compilers == () and not report.new_entries for report in warm)
    assert [graph.direction for graph in cold[0].graphs if graph.cache == "fx"] == ["forward", "backward"]
    assert {graph.function.partition(" ")[0] for report in cold for graph in report.graphs} == {"_net"}
    assert cold[1].recompiles == warm[1].recompiles and "grad_mode" in said(cold[1].recompiles)
    for report in (*cold, *warm):
        assert report.notes == report.fallbacks == report.graph_breaks == () and report.error == ""
        assert 50 << 20 < report.left_memory <= report.peak_memory < 4 << 30


def test_the_files_of_the_cache_are_those_that_the_steps_wrote(warmed: Warmed):
    assert {path for report in warmed.result.warmed for path in report.new_files} == set(files_in(warmed.cache))


def test_every_compiler_was_noticed(warmed: Warmed):
    """By a record that the compiler itself kept; the questions after its version are no builds."""
    builds = [line for line in warmed.launches if " -o " in line]
    assert len(builds) == sum(len(report.compilers) for report in warmed.result.warmed) > 0


def test_the_certificate_says_the_same(warmed: Warmed):
    proof, result = warmed.result.proof, warmed.result
    assert proof is not None
    assert [(step.mode, step.shape, step.hits, step.bypasses, step.graphs) for step in proof.steps] == [
        ("train", "8", 2, 0, 2),
        ("infer", "8", 1, 0, 1),
    ]
    assert [step.built for step in proof.steps] == [report.new_entries for report in result.warmed]


def test_a_plain_job_finds_everything(warmed: Warmed, plain: Plain):
    """Being watched changes no key."""
    done = plain(warmed.cache, "net,train,8", "net,infer,8")
    assert (done.hits, done.misses, done.bypasses) == (3, 0, 0)
    assert done.new_files == () and done.builds == []


def test_a_plain_job_of_another_shape_does_not(cache: Path, plain: Plain):
    done = plain(cache, "net,infer,9")
    assert done.misses == 2 and done.new_files and done.builds


def test_what_was_taken_from_the_cache_is_noticed(warmed: Warmed, cache: Path):
    """Without its libraries torch counts nothing but hits; without an entry it misses."""
    _, infer = warmed.result.warmed
    for path in cache.glob("??/*.main.so"):
        path.unlink()
    (key,) = [graph.key for graph in infer.graphs if graph.cache == "fx"]
    shutil.rmtree(cache / "fxgraph" / key[1:3] / key)
    run, doubts, proof = replayed(cache, "net", ["train", "infer"], [8])
    assert proof is None
    assert numbers(run.reports[0]) == (2, 0, 0, 1, 0, 0)
    found = said(doubts["cpu train 8"])
    assert "native" in found and "compiler" in found and "missed" not in found
    assert {path.rpartition(".")[2] for path in run.reports[0].new_files} <= {"so", "cpp"}
    assert len(run.reports[0].compilers) == sum(path.endswith(".so") for path in run.reports[0].new_files) > 0
    assert run.reports[1].number_of("fx", "miss") >= 1
    assert "missed in the graph cache: inference of _net" in said(doubts["cpu infer 8"])


@pytest.mark.parametrize("variable", ["TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"])
def test_nothing_is_proved_where_nothing_is_compiled(cache: Path, monkeypatch: pytest.MonkeyPatch, variable: str):
    monkeypatch.setenv(variable, "1")
    run, doubts, proof = replayed(cache, "net", ["infer"], [8])
    assert proof is None and doubts == {"cpu infer 8": ("no compiled graph was called",)}
    assert "no compiled graph was called" in said(run.reports[0].notes)


def test_nothing_is_proved_where_the_cache_is_off(cache: Path, monkeypatch: pytest.MonkeyPatch):
    """torch counts no miss, writes nothing the second time and starts no compiler, and compiles every graph."""
    monkeypatch.setenv("TORCHINDUCTOR_FX_GRAPH_CACHE", "0")
    replayed(cache, "line", ["infer"], [8])
    run, doubts, proof = replayed(cache, "line", ["infer"], [8])
    (report,) = run.reports
    assert proof is None and report.new_files == report.compilers == () and report.calls == 1
    assert "the cache is off" in said(doubts["cpu infer 8"])


AT_IMPORT = """
import time, torch
ones = torch.ones(8, 8)
compiled = torch.compile(lambda x: torch.addmm(x, x, x, alpha={alpha}))
compiled(ones)
def step(): compiled(ones)
"""


def test_what_an_import_builds_counts(cache: Path, tmp_path: Path):
    """It never builds the same twice."""
    path = tmp_path / "early.py"
    path.write_text(AT_IMPORT.format(alpha="time.time_ns() % 1_000_003"))
    run, doubts, _ = replayed(cache, "step", ["infer"], target=path)
    assert "files written" in said(doubts["cpu infer"])
    assert any(name.startswith("fxgraph/") for name in run.reports[0].new_files)


@pytest.fixture(scope="session")
def troubled(warmed: Warmed, tmp_path_factory: pytest.TempPathFactory) -> WarmupResult:
    """Steps that run, and are not what they seem."""
    cache = shutil.copytree(warmed.cache, tmp_path_factory.mktemp("troubled") / "inductor")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        shapes = ["fine", "keeps", "passing", "dense", "again", "limited", "looping", "suppressed", "quiet", "quietly"]
        return cachekeeper.warmup(f"{TARGETS}:trouble", modes=["infer"], shapes=shapes, cache_dir=cache)


def of(reports: tuple[StepReport, ...], shape: str) -> StepReport:
    return next(report for report in reports if report.shape == shape)


def test_only_what_is_clean_is_not_in_doubt(troubled: WarmupResult):
    assert not troubled.ok and troubled.proof is None and troubled.failed == ()
    clean = ("fine", "keeps", "passing", "again")
    assert [step.rpartition(" ")[2] for step in troubled.doubts] == [
        report.shape for report in troubled.proved if report.shape not in clean
    ]
    for report in troubled.proved:
        assert report.new_files == report.compilers == () and report.number_of("fx", "miss") == 0


def test_dense_attention_is_told_of_its_step_alone(troubled: WarmupResult):
    for reports in (troubled.warmed, troubled.proved):
        assert ["flex_attention runs uncompiled: dense" in said(report.fallbacks) for report in reports] == [
            report.shape == "dense" for report in reports
        ]


def test_a_reached_limit_is_told_from_then_on(troubled: WarmupResult):
    report = of(troubled.warmed, "limited")
    (line,) = report.fallbacks
    assert line.startswith("_often_recompiled (warm_targets.py:")
    assert "runs uncompiled: recompile_limit (1) reached" in line and "size mismatch" in line
    assert len(report.recompiles) == 1 and report.calls == 1
    (note,) = report.notes
    assert note == "torch._dynamo.config.recompile_limit: 1 in the main thread, 8 in a worker thread"
    for later in troubled.proved[report.number + 1 :]:
        assert f"{line} (since an earlier step)" in later.fallbacks
        assert later.notes == ()
    for earlier in troubled.proved[: report.number]:
        assert "recompile_limit" not in said(earlier.fallbacks)


def test_a_function_that_breaks_in_a_loop_runs_uncompiled(troubled: WarmupResult):
    """torch says so in no log; other graphs of the step are found."""
    for reports in (troubled.warmed, troubled.proved):
        report = of(reports, "looping")
        assert report.calls == 1 and "for a test of loops" in said(report.graph_breaks)
        (line,) = [line for line in report.fallbacks if line.startswith("_breaking_in_a_loop")]
        assert "runs uncompiled" in line and "for a test of loops" in line


def test_a_suppressed_failure_is_told_with_its_reason(troubled: WarmupResult):
    (line,) = [line for line in of(troubled.proved, "suppressed").fallbacks if "earlier" not in line]
    assert line.startswith("_never_compiled (warm_targets.py:") and "this backend never works" in line


def test_a_limit_is_told_where_the_log_is_off(troubled: WarmupResult):
    (line,) = [line for line in of(troubled.proved, "quietly").fallbacks if "earlier" not in line]
    assert line.startswith("_recompiled_quietly (warm_targets.py:") and "recompile limit exceeded" in line


def test_memory_that_is_kept_and_that_is_not(troubled: WarmupResult):
    for reports in (troubled.warmed, troubled.proved):
        fine, keeps, passing = (of(reports, name) for name in ("fine", "keeps", "passing"))
        size = 300 << 20
        slack = 40 << 20
        assert abs(keeps.left_memory - fine.left_memory - size) < slack
        assert abs(passing.left_memory - keeps.left_memory) < slack
        assert abs(passing.peak_memory - keeps.left_memory - size) < slack


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_plan_goes_on_where_it_is_to(cache: Path, tmp_path: Path, in_thread: bool):
    result = cachekeeper.warmup(
        f"{TARGETS}:trouble",
        modes=["infer"],
        shapes=["fine", "raises", "exits", "interrupts", "again"],
        cache_dir=cache,
        keep_going=True,
        in_thread=in_thread,
        name="never",
        store=tmp_path / "store",
    )
    assert not result.ok and result.proved == () and result.proof is result.saved is None
    assert [report.shape for report in result.warmed] == ["fine", "raises", "exits", "interrupts", "again"]
    assert [report.shape for report in result.failed] == ["raises", "exits", "interrupts"]
    raises, exits, interrupts = (report.error.rstrip().splitlines() for report in result.failed)
    assert (raises[-1], exits[-1], interrupts[-1]) == (
        "ValueError: no such row",
        "SystemExit: 7",
        "KeyboardInterrupt: by the target",
    )
    assert any("IndexError" in line for line in raises)
    assert any("warm_targets.py" in line for line in raises) and not any("/inside/" in line for line in raises)
    assert of(result.warmed, "again").calls == 1 and of(result.warmed, "raises").calls == 1
    with pytest.raises(NotFound):
        cachekeeper.show("never", store=tmp_path / "store")


def test_a_plan_stops_where_a_step_raises(cache: Path):
    result = cachekeeper.warmup(
        f"{TARGETS}:trouble", modes=["infer"], shapes=["fine", "raises", "again"], cache_dir=cache
    )
    assert not result.ok and len(result.steps) == 3 and result.proved == ()
    assert [(report.shape, bool(report.error)) for report in result.warmed] == [("fine", False), ("raises", True)]


def test_a_process_that_is_killed_is_told_with_its_step(cache: Path):
    with pytest.raises(CachekeeperError, match="was killed by SIGKILL in step cpu infer killed") as caught:
        cachekeeper.warmup(f"{TARGETS}:trouble", modes=["infer"], shapes=["fine", "killed"], cache_dir=cache)
    assert "out of memory" in caught.value.hint


CONFIGURED = """
import sys
import torch
import torch._inductor.config
sys.path.insert(0, {here!r})
import warm_targets

torch._inductor.config.max_fusion_size = 65
torch.set_autocast_enabled("cpu", True)
line = warm_targets.line
"""


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A target that sets things when it is imported, in the main thread."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("TORCHINDUCTOR_UNIQUE_KERNEL_NAMES", "0")
    path = tmp_path / "configured.py"
    path.write_text(CONFIGURED.format(here=str(TARGETS.parent)))
    return path


def test_what_the_main_thread_sets_is_not_what_a_worker_thread_compiles_with(
    cache: Path, configured: Path, plain: Plain
):
    """Each warning is true: the jobs that it speaks of miss, and those with --in-thread hit."""
    warned = [
        "autocast of cpu: True in the main thread, False in a worker thread",
        "torch._inductor.config.max_fusion_size: 65 in the main thread, 64 in a worker thread",
    ]
    one = cachekeeper.warmup(f"{configured}:line", shapes=[8, 7], modes=["infer"], cache_dir=cache, prove=False)
    assert [list(report.notes) for report in one.warmed] == [warned, []]
    main = plain(cache, "configured:line,infer,8")
    assert (main.hits, main.misses) == (1, 0)
    threaded = plain(cache, "threads", "configured:line,infer,8")
    assert threaded.misses > 0 and threaded.hits == 0

    shutil.rmtree(cache / "fxgraph")
    shutil.rmtree(cache / "aotautograd")
    two = cachekeeper.warmup(
        f"{configured}:line", shapes=[8], modes=["infer"], cache_dir=cache, in_thread=True, prove=True
    )
    assert two.ok and two.proof is not None and two.proof.in_thread
    assert list(two.warmed[0].notes) == warned
    threaded = plain(cache, "threads", "configured:line,infer,8")
    assert (threaded.hits, threaded.misses, threaded.new_files) == (1, 0, ())


DECLARED = """
import cachekeeper

@cachekeeper.plan(devices=["cpu"], modes=["train"], shapes=[1])
def step(device, mode, shape): raise ValueError("a dry run runs nothing")
"""


def test_flags_win_over_the_file_and_that_over_the_decorator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "train.py").write_text(DECLARED)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.cachekeeper.warmup."train.py:step"]\nmodes = ["infer"]\nshapes = [2, "3x4"]\n'
    )
    monkeypatch.chdir(tmp_path)
    result = cachekeeper.warmup(shapes=[5], cache_dir=tmp_path / "inductor", dry_run=True)
    assert result.steps == (("cpu", "infer", "5"),) and result.ok and result.warmed == ()
    (tmp_path / "cachekeeper.toml").write_text('[warmup."train.py:step"]\nshapes = ["3x4"]\n')
    result = cachekeeper.warmup("train.py:step", cache_dir=tmp_path / "inductor", dry_run=True)
    assert result.steps == (("cpu", "train", "3x4"),)


def test_a_device_that_is_not_there(tmp_path: Path):
    with pytest.raises(NotFound, match="no device cuda:99") as caught:
        cachekeeper.warmup(f"{TARGETS}:net", devices=["cuda:99"], cache_dir=tmp_path / "inductor")
    assert caught.value.facts
