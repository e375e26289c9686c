"""Would torch use a snapshot here, and which one?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from cachekeeper.errors import NotFound, Unproven
from cachekeeper.fitting import choose, fit, latest, left_out, mismatch_error, newest_fitting
from cachekeeper.manifest import Count, Snapshot
from cachekeeper.models import Fact
from cachekeeper.repository import Repository
from cachekeeper.stores import MemoryStore
from tests import samples

HERE = samples.fingerprint()
ELSEWHERE = samples.fingerprint(torch="2.9.1")


def with_variable(value: str | None) -> samples.Fingerprint:
    variables = {} if value is None else {"TORCHINDUCTOR_MAX_AUTOTUNE": value}
    return samples.fingerprint(environment=Fact(variables))


@pytest.fixture
def repository() -> Repository:
    found = Repository(MemoryStore())
    found.prepare()
    return found


def commit(repository: Repository, day: int, **changes: object) -> Snapshot:
    return repository.commit(samples.header(created=f"2026-01-{day:02}T00:00:00Z", **changes), samples.tables())


def test_the_same_environment_fits():
    assert fit(samples.header(), HERE).fits


def test_another_torch_does_not():
    assert [item.name for item in fit(samples.header(fingerprint=ELSEWHERE), HERE).must] == ["torch"]


@pytest.mark.parametrize(
    ("targets", "fits"),
    [
        ((), True),
        (("cuda:90",), True),
        (("cuda:80", "cuda:90"), True),
        (("cuda:80",), False),
        (("hip:gfx942",), False),
    ],
)
def test_kernels_built_for_another_gpu_do_not_fit_whatever_the_fingerprint_says(targets: tuple[str, ...], fits: bool):
    """C47."""
    found = fit(samples.header(targets=targets), HERE)
    assert found.fits is fits
    assert [item.name for item in found.must] == ([] if fits else ["kernels"])


def test_kernels_beside_those_for_this_gpu_are_told():
    """C47: Triton's key holds the target, so that those for this GPU are used and the others are not."""
    [found] = fit(samples.header(targets=("cuda:80", "cuda:90")), HERE).should
    assert (found.name, found.theirs, found.ours) == ("kernels", "sm_80, sm_90", "sm_90")
    assert found.effect == "no GPU here can load those for sm_80"


def test_what_only_cpu_code_depends_on_counts_where_there_is_some():
    theirs = samples.fingerprint(threads=Fact(8))
    here = samples.fingerprint(threads=Fact(2))
    assert fit(samples.header(fingerprint=theirs), here).fits
    counts = {"fxgraph": Count(1, 1, 5), "native": Count(1, 1, 5)}
    assert not fit(samples.header(fingerprint=theirs, counts=counts), here).fits


@pytest.mark.parametrize(
    ("kind", "capability", "fits"),
    [
        ("triton", "sm_90", True),
        ("fxgraph", "sm_90", False),
        ("aotautograd", "sm_90", False),
        ("triton", "sm_80", False),
    ],
)
def test_another_name_of_the_same_chip_is_a_warning_where_no_key_holds_it(kind: str, capability: str, fits: bool):
    """C73: Triton's keys hold the architecture, those of graphs the name."""
    theirs = samples.fingerprint(gpu=Fact([{"name": "NVIDIA H200 NVL", "capability": capability}]))
    found = fit(samples.header(fingerprint=theirs, counts={kind: Count(1, 1, 5)}), HERE)
    assert found.fits is fits
    assert [item.name for item in (found.should if fits else found.must)] == ["gpu"]


def with_gpus(number: int | None) -> samples.Fingerprint:
    fact = Fact(unknown="MIG is on") if number is None else Fact(number)
    return replace(samples.fingerprint(), should={"gpu_count": fact})


@pytest.mark.parametrize(
    ("devices", "here", "made_on", "said"),
    [
        (["cuda:0"], 8, 1, "cuda:1 to cuda:7, of the 8 GPUs here"),
        (["cuda:0"], 1, 2, "cuda:1, of the 2 GPUs there"),
        (["cuda:0, cuda:2", "cuda:5", "cpu"], 8, 8, "cuda:1, cuda:3 to cuda:4, cuda:6 to cuda:7, of the 8 GPUs here"),
        (["cuda:0", "cuda:1"], 2, None, ""),
        (["cuda:0"], None, None, ""),
        (["cuda:0"], 1, 10**12, ""),  # as no machine has, but a manifest may say
        (["cpu", "unknown", "cuda:x"], 8, 8, ""),
        ([], 8, 8, ""),
    ],
)
def test_the_gpus_that_are_left_out(devices: list[str], here: int | None, made_on: int | None, said: str):
    """C34."""
    assert left_out(devices, {"here": with_gpus(here), "there": with_gpus(made_on)}) == said


def test_latest_is_the_newest_that_fits(repository: Repository):
    commit(repository, 1)
    right = commit(repository, 2)
    commit(repository, 3, fingerprint=ELSEWHERE)
    assert choose(repository, "latest", HERE) == right
    assert newest_fitting(repository.snapshots().snapshots, HERE) == right


def holding(repository: Repository, day: int, graphs: int, native: int = 4, **changes: object) -> Snapshot:
    """A snapshot of so many files, each an entry."""
    kinds = {"fxgraph": graphs, "native": native}
    counts = {kind: Count(number, number, 5) for kind, number in kinds.items() if number}
    tables = samples.tables()
    files = tuple(tables.files[0]._replace(path=f"fxgraph/ab/fx/{number}") for number in range(graphs + native))
    header = samples.header(created=f"2026-01-{day:02}T00:00:00Z", counts=counts, **changes)
    return repository.commit(header, replace(tables, files=files))


def test_latest_passes_over_one_without_any_work(repository: Repository):
    right = holding(repository, 1, 1)
    bare = holding(repository, 2, 0)
    note = f"the newer {bare.id[:8]} was passed over: it holds no graph and no kernel"
    assert latest(repository, HERE) == (right, (note,))


def test_latest_takes_one_without_any_work_where_there_is_no_other(repository: Repository):
    commit(repository, 1, fingerprint=ELSEWHERE)
    bare = holding(repository, 2, 0)
    assert latest(repository, HERE) == (bare, ())


def named(repository: Repository, parent: dict[str, object], *moved: str) -> tuple[Snapshot, Snapshot]:
    """A snapshot with 8 graphs, and one with 2 that was saved after it; `moved`: the names that moved to that."""
    before = holding(repository, 1, 8, **parent)
    repository.move_name("drafter", before.id)
    after = holding(repository, 2, 2, parent=before.id)
    for name in moved:
        repository.move_name(name, after.id)
    return before, after


def test_latest_passes_over_one_that_was_refused_its_name(repository: Repository):
    before, after = named(repository, {})
    found, [note] = latest(repository, HERE)
    assert found == before == choose(repository, "latest", HERE)
    said = f"the newer {after.id[:8]} was passed over: drafter did not move to it, as it is much smaller"
    assert note == f"{said} (6 entries, 12 before)"


def test_latest_takes_a_much_smaller_one_that_has_its_name_by_force(repository: Repository):
    _, after = named(repository, {}, "drafter")
    repository.move_name("drafter", holding(repository, 1, 9).id)
    assert latest(repository, HERE) == (after, ())


def test_what_is_smaller_than_another_machines_is_not_passed_over(repository: Repository):
    older = holding(repository, 1, 2, name="")
    _, after = named(repository, {"fingerprint": ELSEWHERE})
    assert latest(repository, HERE) == (after, ()) and older != after


def test_none_fits_and_the_newest_says_why(repository: Repository):
    commit(repository, 1, fingerprint=ELSEWHERE)
    newest = commit(repository, 2, fingerprint=samples.fingerprint(torch="2.10.0"))
    with pytest.raises(NotFound, match="none of 2 snapshots in memory://memory fits") as caught:
        choose(repository, "latest", HERE)
    assert caught.value.facts == (f"the newest, {newest.id[:8]}, differs in", "torch  2.10.0 -> 2.11.0")


def test_none_at_all(repository: Repository):
    with pytest.raises(NotFound, match="none of 0 snapshots"):
        choose(repository, "latest", HERE)


def test_latest_proven_is_the_newest_that_fits_and_has_a_certificate(repository: Repository):
    commit(repository, 1, proof=samples.proof())
    right = commit(repository, 2, proof=samples.proof())
    commit(repository, 3)
    commit(repository, 4, fingerprint=ELSEWHERE, proof=samples.proof())
    assert choose(repository, "latest", HERE, proven=True) == right


def test_an_unproven_snapshot_is_refused_and_a_proven_one_is_named(repository: Repository):
    proven = commit(repository, 1, proof=samples.proof())
    unproven = commit(repository, 2)
    with pytest.raises(Unproven, match=f"{unproven.id[:8]} has no proof") as caught:
        choose(repository, unproven.id, HERE, proven=True)
    assert caught.value.exit_code == 3 and proven.id[:8] in caught.value.hint


def test_no_proven_snapshot_at_all(repository: Repository):
    commit(repository, 1)
    with pytest.raises(Unproven, match="that fits this machine has a proof") as caught:
        choose(repository, "latest", HERE, proven=True)
    assert "warmup TARGET" in caught.value.hint


def test_a_snapshot_by_name_is_given_whether_it_fits_or_not(repository: Repository):
    saved = commit(repository, 1, fingerprint=ELSEWHERE)
    repository.move_name("drafter", saved.id)
    assert choose(repository, "drafter", HERE) == saved


def hint(repository: Repository, snapshot: Snapshot, here: samples.Fingerprint) -> str:
    error = mismatch_error(repository, snapshot, fit(snapshot.header, here), here)
    assert error.exit_code == 4
    return error.hint


def test_a_mismatch_shows_both_sides_and_names_one_that_fits(repository: Repository):
    wrong, right = commit(repository, 2, fingerprint=ELSEWHERE), commit(repository, 1)
    error = mismatch_error(repository, wrong, fit(wrong.header, HERE), HERE)
    assert error.message == f"snapshot {wrong.id[:8]} was made on another environment"
    assert error.facts == ("torch  2.9.1   here 2.11.0   (torch would ignore every entry)",)
    assert error.hint == f"{right.id[:8]} matches this machine: `cachekeeper restore {right.id[:8]}`"


def test_a_mismatch_of_variables_says_what_to_set(repository: Repository):
    saved = commit(repository, 1, fingerprint=with_variable("1"))
    assert hint(repository, saved, with_variable(None)).endswith("export TORCHINDUCTOR_MAX_AUTOTUNE=1")
    assert hint(repository, saved, with_variable("a b")).endswith("export TORCHINDUCTOR_MAX_AUTOTUNE=1")
    saved = commit(repository, 2, fingerprint=with_variable("a b"))
    assert hint(repository, saved, with_variable("2")).endswith("export TORCHINDUCTOR_MAX_AUTOTUNE='a b'")
    saved = commit(repository, 3, fingerprint=with_variable(None))
    assert hint(repository, saved, with_variable("2")).endswith("unset TORCHINDUCTOR_MAX_AUTOTUNE")


def test_a_mismatch_with_no_way_out(repository: Repository):
    saved = commit(repository, 1, fingerprint=ELSEWHERE)
    assert "--allow-mismatch" in hint(repository, saved, HERE)


def test_without_torch_it_is_one_line_that_says_so(repository: Repository):
    """Not all facts as unknown on one side, as if the two differed."""
    saved = commit(repository, 1)
    here = replace(HERE, must={**HERE.must, "torch": Fact(unknown="torch is not installed in this Python")})
    error = mismatch_error(repository, saved, fit(saved.header, here), here)
    whether = f"torch is not installed in this Python: whether snapshot {saved.id[:8]} fits is not known"
    assert (error.message, error.facts) == (whether, ())
    assert error.hint.endswith("run it with the job's Python")
    with pytest.raises(NotFound, match=r"which of 1 snapshot in .* fits is not known") as caught:
        choose(repository, "latest", here)
    assert caught.value.facts == () and caught.value.hint == error.hint
