"""One snapshot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import DamagedStore, NotFound
from cachekeeper.models import Fact
from tests import samples

from .conftest import Machine

pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture
def saved(cache: Path, store: Path) -> str:
    """The id of a snapshot with two names."""
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, metrics={"tok_s": 1})
    from cachekeeper.repository import open_repository

    [identifier] = set(open_repository(store).names().values())
    open_repository(store).move_name("best", identifier)
    return identifier


@pytest.mark.parametrize("reference", ["drafter", "best", "latest", "drafter@{0}"])
def test_by_any_name(store: Path, saved: str, reference: str):
    found = cachekeeper.show(reference, store=store)
    assert found.snapshot.id == saved
    assert found.names == ("best", "drafter")
    assert found.snapshot.header.metrics == {"tok_s": 1.0}
    assert found.here.fits


def test_by_id(store: Path, saved: str):
    assert cachekeeper.show(saved[:6], store=store) == cachekeeper.show(saved, store=store)


def test_a_name_that_moved_on_is_not_its_name(cache: Path, store: Path, saved: str):
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, message="other")
    assert cachekeeper.show(saved, store=store).names == ("best",)


def test_why_it_does_not_fit(store: Path, saved: str, machine: Machine):
    machine.fingerprint = samples.fingerprint(torch="2.12.0")
    found = cachekeeper.show("drafter", store=store)
    assert [(item.name, item.theirs, item.ours) for item in found.here.must] == [("torch", "2.11.0", "2.12.0")]


def test_nothing_of_that_name(store: Path, saved: str):
    with pytest.raises(NotFound) as caught:
        cachekeeper.show("bst", store=store)
    assert caught.value.hint == "did you mean `best`?"


def test_a_damaged_one(store: Path, saved: str):
    path = store / "snapshots" / f"{saved}.json.zst"
    path.chmod(0o644)
    path.write_bytes(b"garbage")
    with pytest.raises(DamagedStore):
        cachekeeper.show("drafter", store=store)


def of_proof(cache: Path, store: Path, *steps: int) -> tuple[str, ...]:
    """What is noted of a snapshot that was proved by these steps: train on cuda:0, infer on cuda:0."""
    proof = samples.proof()
    proof = replace(proof, steps=tuple(proof.steps[number] for number in steps))
    saved = cachekeeper.snapshot(cache_dir=cache, store=store, wait=0, proof=proof).snapshot
    return cachekeeper.show(saved.id, store=store).notes


def test_what_a_proof_of_inference_does_not_say(cache: Path, store: Path):
    """C64: whether there are backward graphs is in no header; what was proved is."""
    [note] = of_proof(cache, store, 1)
    assert note.startswith("its proof is of inference alone: it says nothing of backward graphs")
    assert of_proof(cache, store, 0) == of_proof(cache, store, 0, 1) == ()


def test_the_gpus_here_of_which_a_proof_says_nothing(cache: Path, store: Path, machine: Machine):
    """C34: a graph of cuda:0 serves no other."""
    machine.fingerprint = replace(machine.fingerprint, should={"gpu_count": Fact(8)})
    [note] = of_proof(cache, store, 0, 1)
    assert note.startswith("its proof says nothing of cuda:1 to cuda:7, of the 8 GPUs here")
