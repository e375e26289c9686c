"""Save a cache directory as a snapshot.

taking   what of the cache can be saved     draft    its header, and the commit
checks   what keeps it from being saved     notes    what a person should know
given    numbers and tags of the work       result   what became of it
marking  the directory, told of it          generations   what another environment left there
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ... import ownership, signatures
from ...beside import directories_beside
from ...capture import Rules
from ...config import model_files, setting
from ...environment import fingerprint
from ...keyfiles import chosen_private_key
from ...livecache import LiveCache, chosen_cache_dir, wait_for_quiet
from ...manifest import Snapshot
from ...models import Fingerprint, Proof
from ...naming import move_name_unless_smaller
from ...progress import Progress
from ...repository import check_name, locations, open_repository
from ...restored import read
from ...runs import RunInfo
from ...seen import SeenFiles
from ...signing import PrivateKey
from ...stores import Store
from ...telemetry import Log
from ...units import now_utc
from .checks import check_scan, check_there
from .draft import Draft, commit
from .generations import Left, left_over, notes_of
from .given import checked_metrics, checked_tags
from .marking import mark, why_less
from .notes import not_marked, notes
from .result import SnapshotResult
from .taking import Taking

__all__ = ["DEFAULT_WAIT", "SnapshotResult", "checked_metrics", "checked_tags", "snapshot"]

DEFAULT_WAIT = 10.0


def snapshot(
    name: str | None = None,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    store: str | os.PathLike[str] | Store | None = None,
    also: Sequence[str | os.PathLike[str]] = (),
    message: str = "",
    metrics: Mapping[str, float] | None = None,
    tags: Mapping[str, str] | None = None,
    model_config: str | os.PathLike[str] | None = None,
    model_sources: Sequence[str | os.PathLike[str]] = (),
    wait: float | None = None,
    allow_damaged: bool = False,
    force: bool = False,
    with_headers: bool = False,
    full: bool = False,
    proof: Proof | None = None,
    origin: str = "",
    made_on: Fingerprint | None = None,
    run: RunInfo | None = None,
    told: Sequence[Log] = (),
    sign: str | os.PathLike[str] | PrivateKey | None = None,
    allow_secrets: bool = False,
    progress: Progress = lambda stage, done, total: None,
) -> SnapshotResult:
    """Save a cache directory as a snapshot, and point `name` to it.

    From then on the directory is compared with it, by `status`, `watch` and `clear`: where nothing was left out, `name`
    was moved, and it is not much smaller than what was restored or saved there before. Else they go on with that.

    Args:
        cache_dir: default: the directory that torch would use here.
        store: URL or directory; default as configured.
        also: further directories of compiled kernels to keep with it.
        metrics: numbers of the run, as {"tok_s": 21500}.
        tags: what the work was, as {"dataset": "pile-v2", "batch": "8"}: numbers of other work do not compare.
        wait: seconds to wait at most until nothing writes into the cache; else it is marked as taken live.
        allow_damaged: save structurally damaged entries too, and note them.
        force: move the name, and compare the directory with it, even where it is much smaller.
        with_headers: keep precompiled headers, about 147 MB for each set of compiler flags, of use on CPU only.
        full: store every file again, trusting nothing that is in the store.
        proof: the certificate of a warmup that ended with this cache.
        origin: where the cache came from, if it is only unpacked in this directory; then that is not recorded, nothing
            is remembered of it, and no directory belongs with it that it does not hold.
        made_on: the environment to record, where it is not this one.
        run: the run that used this cache: what its processes told of the graphs is kept with the snapshot.
        told: what other processes told of them.
        sign: the private key that signs it, or its file; "" for the one configured, or this user's own. By default it
            is signed where a key is configured.
        allow_secrets: save files that hold what looks like secrets, too; a note and its header say which.

    Raises:
        EmptyCache: nothing to save.
        DamagedCache: entries are structurally damaged; nothing is saved.
        SecretsFound: files hold what looks like secrets; nothing is saved.
        UnsafePath: the directory, or a file in it, belongs to somebody who is not trusted, or every user may change it.
        LocalDiskError: a file or the store's disk cannot be used.
        StoreError: the store cannot be used.
    """
    name = setting("name", name)
    if name is not None:
        check_name(name)
    metrics, tags = checked_metrics(metrics or {}), checked_tags(tags or {})
    directory = chosen_cache_dir(cache_dir)
    extra = {} if origin else directories_beside(also, directory)
    patience = setting("wait", wait)
    key = sign if isinstance(sign, PrivateKey) else chosen_private_key(sign)
    repository = open_repository(store)
    check_there(directory)
    repository.refuse_inside(directory, *extra.values())
    for place in () if origin else (directory, *extra.values()):
        ownership.check(place, ownership.CACHE)
    with ThreadPoolExecutor(1) as beside, LiveCache(directory, extra) as live:
        # Reaching a store that is far takes as long as looking at a cache; what is wrong with it, `prepare` says.
        beside.submit(repository.exists)
        before = read(live.root)
        scan, busy = wait_for_quiet(live, DEFAULT_WAIT if patience is None else patience, with_headers)
        check_scan(scan, directory)
        environment = beside.submit(fingerprint, **model_files(model_config, model_sources))
        repository.prepare()
        left: tuple[Left, ...] = ()
        with repository.writing() as work:
            memory = SeenFiles(directory)
            known = {} if full else locations(repository.store, work.condemned)
            # What was imported is the importer's word for it, whoever owned the files.
            rules = Rules(allow_damaged, allow_secrets, None if origin else ownership.trusted_owners())
            command = () if origin else _command(name, directory)
            whole = Taking(repository, live, command, scan, busy, memory, known, rules, progress).run()
            draft = Draft(
                created=now_utc(),
                name=name or "",
                message=message,
                metrics=metrics,
                tags=tags,
                cache_dir="" if origin else str(directory),
                also=extra,
                fingerprint=made_on or environment.result(),
                origin=origin,
                proof=proof,
                run=run,
                told=tuple(told),
            )
            manifest = commit(repository, work, whole, draft)
            saved = Snapshot(manifest.id, manifest.header)
            if not origin:
                whole.remember(memory, scan.began)
                places = [item.source.place for item in whole.kept]
                left = left_over(repository, before, places, draft.fingerprint)
    moved, shrunk_from = move_name_unless_smaller(repository, name, saved, force=force)
    signed_by = signatures.sign_saved(repository, key, saved.id, name if moved else None)
    unmarked = ""
    if whole.left_out or (name is not None and not moved):
        unmarked = "" if origin else "it is not the whole cache"
    elif not origin and not force:
        unmarked = why_less(repository, before, saved.header)
    if not (origin or unmarked):
        unmarked = mark(directory, before, manifest, repository.store.url, scan.began, extra.keys(), left)
    return SnapshotResult(
        saved,
        draft.name,
        moved,
        shrunk_from,
        whole.captured.written,
        whole.new_files,
        tuple(scan.skipped),
        scan.scratch,
        (
            *notes(
                scan, whole.kept, extra, whole.secrets, draft.fingerprint, before is None and not saved.header.parent
            ),
            *notes_of(left, manifest.header.entries),
            *not_marked(unmarked),
            *repository.store.caveats,
        ),
        signed_by,
    )


def _command(name: str | None, directory: Path) -> tuple[str, ...]:
    """What saves a directory under a name."""
    return ("cachekeeper", "snapshot", *filter(None, [name]), "--cache-dir", str(directory))
