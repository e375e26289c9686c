"""The history of a name, with headers, as far as they can be read."""

from __future__ import annotations

import pytest

from cachekeeper.errors import NotFound, UsageError
from cachekeeper.histories import history, require_history
from cachekeeper.repository import Repository, manifest_key
from cachekeeper.stores import MemoryStore
from tests import samples


@pytest.fixture
def repository() -> Repository:
    """drafter was moved to a, to b, to a again, and to c."""
    made = Repository(MemoryStore())
    made.prepare()
    for message in ("a", "b", "a", "c"):
        saved = made.commit(samples.header(message=message), samples.tables())
        made.move_name("drafter", saved.id)
    return made


def test_oldest_first_with_what_each_can_be_called_by(repository: Repository):
    past = history(repository, "drafter")
    assert [step.reference for step in past] == ["drafter@{3}", "drafter@{2}", "drafter@{1}", "drafter"]
    assert [step.snapshot and step.snapshot.header.message for step in past] == ["a", "b", "a", "c"]
    assert [step.move.number for step in past] == [1, 2, 3, 4]
    assert all(repository.resolve(step.reference) == step.move.snapshot for step in past)


def test_the_last_ones(repository: Repository):
    assert history(repository, "drafter", 2) == history(repository, "drafter")[2:]
    assert history(repository, "drafter", 9) == history(repository, "drafter")
    assert history(repository, "drafter", 0) == history(repository, "other") == []


def test_what_cannot_be_read_is_a_part_of_it(repository: Repository):
    one, two, _, three = [step.move.snapshot for step in history(repository, "drafter")]
    repository.store.delete(manifest_key(one))
    for key in (manifest_key(two), "names/drafter/00000004"):
        repository.store.delete(key)
        repository.store.create(key, b"garbage")
    past = history(repository, "drafter")
    assert [step.snapshot for step in past] == [None] * 4
    assert [step.trouble for step in past] == [
        "its manifest is not in the store",
        past[1].trouble,
        "its manifest is not in the store",
        "what the name pointed to is damaged",
    ]
    assert past[1].trouble.startswith("a manifest does not decompress")
    assert repository.has(three)


def test_a_name_that_is_none(repository: Repository):
    with pytest.raises(NotFound) as caught:
        require_history(repository, "draftr")
    assert caught.value.hint == "did you mean `drafter`?"
    identifier = history(repository, "drafter")[0].move.snapshot
    with pytest.raises(NotFound, match="is no name") as caught:
        require_history(repository, identifier)
    assert caught.value.hint == f"see one snapshot with `cachekeeper show {identifier}`"
    with pytest.raises((NotFound, UsageError)):
        require_history(Repository(MemoryStore()), "drafter")
