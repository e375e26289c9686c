"""A store in a bucket of any server that speaks S3.

An object goes up in one request, with `If-None-Match: *` and its SHA-256: it is there whole or not at all, and of two
writers one wins. Whether the server keeps to that is found out by racing, once for each bucket and machine, when it is
first written to. Only packs are ever so large that they go up in parts, where servers are laxer (SeaweedFS 4.48 has two
winners at times): a pack's name holds a nonce, and no two writers have the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from base64 import b64encode
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any

from ..errors import StoreError
from ..workers import ordered
from .base import Buffer, KeyMissing, ObjectInfo, Store, check_key, is_key
from .racing import one_wins
from .remembered import Remembered
from .s3_errors import code_of, status_of
from .s3_requests import READ_SECONDS, Requests

PART_BYTES = 16 << 20
ONE_REQUEST_BYTES = 64 << 20
_MOST_PARTS = 9_000
_READS_AT_ONCE = 8
_WRITES_AT_ONCE = 4
_RACERS = 4
_REMEMBERED_SECONDS = 7 * 24 * 3600.0
_IF_ABSENT = {"IfNoneMatch": "*"}

NOT_EXCLUSIVE = (
    "this server overwrites what it was told to create only where there is nothing (`If-None-Match: *`): of two "
    "writers that move one name at the same moment, one move can be lost from its history; both snapshots are kept"
)


class S3Store(Store):
    """Objects below a prefix of a bucket.

    Args:
        bucket, prefix: where; the prefix is "" or has no slash at its ends.
        endpoint: URL of the server; None: what the AWS environment and profile say.
        profile, region: of the AWS configuration, where they are not the environment's.
        read_seconds: how long the server may say nothing.
    """

    far = True
    parallel = _READS_AT_ONCE
    writers = _WRITES_AT_ONCE

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        profile: str | None = None,
        region: str | None = None,
        read_seconds: float = READ_SECONDS,
    ) -> None:
        self.bucket = bucket
        self._requests = Requests(
            bucket, prefix, endpoint=endpoint, profile=profile, region=region, read_seconds=read_seconds
        )
        self.url = self._requests.url
        self._race: Future[bool] | None = None

    @property
    def identity(self) -> str:
        """A word for this store: another server or account, or another prefix, has another."""
        return self._requests.identity

    @property
    def endpoint(self) -> str:
        """The URL of the server."""
        return self._requests.endpoint

    # The contract

    def prepare(self) -> None:
        """Begin to find out what the server does with two writers of one key."""
        if self._race is None:
            pool = ThreadPoolExecutor(1)
            self._race = pool.submit(self._creates_once)
            pool.shutdown(wait=False)

    def create(self, key: str, *parts: Buffer) -> bool:
        check_key(key)
        # Nothing waits for the end of a race: until then, what is right on every server is done.
        if (self._undecided or not self._exclusive) and self.has(key):
            return False
        with contextlib.suppress(_NotImplementedThere):
            if self._undecided or self._exclusive:
                return self._send(key, parts, _IF_ABSENT)
        return self._send(key, parts, {})

    def _send(self, key: str, parts: Sequence[Buffer], condition: dict[str, str]) -> bool:
        if sum(map(len, parts)) > ONE_REQUEST_BYTES:
            return self._put_in_parts(key, parts, condition)
        return self._put(key, b"".join(parts), condition)

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        check_key(key)
        if length == 0:
            self.size(key)
            return b""
        return self._requests.get(key, start, length)

    def size(self, key: str) -> int:
        return int(self._requests.ask("HeadObject", check_key(key))["ContentLength"])

    def list(self, prefix: str, most: int | None = None) -> Iterator[ObjectInfo]:
        found: list[ObjectInfo] = []
        more: dict[str, Any] = {"MaxKeys": most} if most else {}
        while True:
            page = self._requests.ask("ListObjectsV2", None, Prefix=self._requests.prefix + prefix, **more)
            for item in page.get("Contents", ()):
                key = item["Key"].removeprefix(self._requests.prefix)
                if is_key(key):
                    found.append(ObjectInfo(key, item["Size"], item["LastModified"].timestamp()))
            if not page.get("IsTruncated") or (most and found):
                return iter(sorted(found))
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def delete(self, key: str) -> None:
        with contextlib.suppress(KeyMissing):
            self._requests.ask("DeleteObject", check_key(key))

    @property
    def caveats(self) -> tuple[str, ...]:
        return () if self._exclusive else (NOT_EXCLUSIVE,)

    def hold(self, key: str) -> bool:
        if not self._locks:
            return False
        self._requests.ask("PutObjectLegalHold", check_key(key), LegalHold={"Status": "ON"})
        return True

    def release(self, key: str) -> None:
        if self._locks:
            self._requests.ask("PutObjectLegalHold", check_key(key), LegalHold={"Status": "OFF"})

    def revive(self, key: str) -> bool:
        whole = self._requests.prefix + check_key(key)
        try:
            listed = self._requests.ask("ListObjectVersions", None, Prefix=whole)
        except StoreError as error:
            if "NotImplemented" in str(error):
                return False
            raise
        newest = [item for item in listed.get("DeleteMarkers", ()) if item["Key"] == whole and item["IsLatest"]]
        kept = any(item["Key"] == whole for item in listed.get("Versions", ()))
        if not newest or not kept:
            return False
        for marker in newest:
            self._requests.ask("DeleteObject", key, VersionId=marker["VersionId"])
        return self.has(key)

    # Whether a key is created once

    @property
    def _undecided(self) -> bool:
        return self._race is not None and not self._race.done()

    @property
    def _exclusive(self) -> bool:
        """False where the server is known to overwrite what is there. Waits for a race that is on."""
        return self._race is None or self._race.result()

    def _creates_once(self) -> bool:
        known = Remembered("s3", f"{self.endpoint}/{self.bucket}", _REMEMBERED_SECONDS)
        if known.value is None:
            known.save(self.creates_once(rounds=1))
        return bool(known.value)

    def creates_once(self, rounds: int = 3) -> bool:
        used: set[str] = set()

        def create(key: str, data: bytes) -> bool:
            used.add(key)
            try:
                return self._put(key, data, _IF_ABSENT)
            except _NotImplementedThere:
                return True

        try:
            return one_wins(create, self.read, _RACERS, rounds)
        finally:
            for key in used:
                with contextlib.suppress(StoreError):  # may not be allowed; it is empty but for a digit
                    self.delete(key)

    # Writing

    def _put(self, key: str, data: bytes, condition: dict[str, str]) -> bool:
        mark = secrets.token_hex(16)
        arguments = {"Body": data, "ChecksumSHA256": _checksum(data), "Metadata": {"mark": mark}, **condition}
        return self._requests.again(lambda: self._try_to_create("PutObject", key, mark, arguments))

    def _try_to_create(self, operation: str, key: str, mark: str, arguments: dict[str, Any]) -> bool:
        try:
            self._requests.call(operation, key, **arguments)
        except Exception as error:
            if status_of(error) == 412:
                # An earlier try may have won and only its answer been lost.
                return self._mark_of(key) == mark
            if code_of(error) == "NotImplemented":
                raise _NotImplementedThere from None
            raise self._requests.to_raise(error, operation, key) from None
        return True

    def _mark_of(self, key: str) -> str | None:
        metadata = self._requests.ask("HeadObject", key).get("Metadata", {})
        return {name.lower(): value for name, value in metadata.items()}.get("mark")

    def _put_in_parts(self, key: str, parts: Sequence[Buffer], condition: dict[str, str]) -> bool:
        size = sum(map(len, parts))
        mark = secrets.token_hex(16)
        begun = self._requests.ask("CreateMultipartUpload", key, ChecksumAlgorithm="SHA256", Metadata={"mark": mark})
        upload = {"UploadId": begun["UploadId"]}
        try:
            pieces = enumerate(_pieces(parts, max(PART_BYTES, -(-size // _MOST_PARTS))), start=1)
            done = ordered(lambda piece: self._put_part(key, *piece, **upload), pieces, ahead=1, threads=4)
            arguments = {"MultipartUpload": {"Parts": [*done]}, **condition, **upload}
            return self._requests.again(lambda: self._try_to_create("CompleteMultipartUpload", key, mark, arguments))
        finally:
            with contextlib.suppress(StoreError):  # there is none where it was completed
                self._requests.ask("AbortMultipartUpload", key, **upload)

    def _put_part(self, key: str, number: int, data: bytes, **upload: str) -> dict[str, Any]:
        checksum = _checksum(data)
        answer = self._requests.ask("UploadPart", key, PartNumber=number, Body=data, ChecksumSHA256=checksum, **upload)
        return {"PartNumber": number, "ETag": answer["ETag"], "ChecksumSHA256": checksum}

    @cached_property
    def _locks(self) -> bool:
        """True where the bucket has object lock."""
        try:
            answer = self._requests.ask("GetObjectLockConfiguration", None)
        except StoreError as error:
            if "NotFound" in str(error) or "NotImplemented" in str(error):
                return False
            raise
        except KeyMissing:
            return False
        return bool(answer.get("ObjectLockConfiguration", {}).get("ObjectLockEnabled") == "Enabled")


class _NotImplementedThere(StoreError):
    """The server knows no conditions."""

    def __init__(self) -> None:
        super().__init__("this server cannot write what is asked of it: NotImplemented")


def _checksum(data: bytes) -> str:
    return b64encode(hashlib.sha256(data).digest()).decode()


def _pieces(parts: Sequence[Buffer], length: int) -> Iterator[bytes]:
    """The parts one after the other, cut into pieces of `length` bytes."""
    piece = bytearray()
    for part in parts:
        view = memoryview(part)
        while len(view):
            taken = view[: length - len(piece)]
            piece += taken
            view = view[len(taken) :]
            if len(piece) == length:
                yield bytes(piece)
                piece.clear()
    if piece:
        yield bytes(piece)
