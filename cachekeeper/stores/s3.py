"""A store in a bucket of any server that speaks S3. boto3 is imported when a request is first made.

An object goes up in one request, with `If-None-Match: *` and its SHA-256: it is there whole or not at all, and of two
writers one wins. Whether the server keeps to that is found out by racing, once for each bucket and machine, when it is
first written to. Only packs are ever so large that they go up in parts, where servers are laxer (SeaweedFS 4.48 has two
winners at times): a pack's name holds a nonce, and no two writers have the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import secrets
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any

from ..errors import StoreError
from ..workers import ordered
from .base import Buffer, KeyMissing, ObjectInfo, Store, check_key, is_key
from .racing import one_wins
from .remembered import Remembered
from .s3_errors import code_of, explained, status_of

PART_BYTES = 16 << 20
ONE_REQUEST_BYTES = 64 << 20
_MOST_PARTS = 9_000
_READS_AT_ONCE = 8
_WRITES_AT_ONCE = 4
_CONNECTIONS = 32
_ATTEMPTS = 5
_CONNECT_SECONDS = 10.0
READ_SECONDS = 30.0
_RACERS = 4
_REMEMBERED_SECONDS = 7 * 24 * 3600.0
_IF_ABSENT = {"IfNoneMatch": "*"}
# What sends a URL to another server or account.
_ELSEWHERE = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_PROFILE")
# Damaged on the way, or two requests for one key at the same moment: the server took nothing.
_AGAIN = ("BadDigest", "XAmzContentSHA256Mismatch", "IncompleteBody", "ConditionalRequestConflict", "OperationAborted")

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
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._endpoint, self._profile, self._region = endpoint, profile, region
        self._read_seconds = read_seconds
        self._making = threading.Lock()
        self._made: Any = None
        self._race: Future[bool] | None = None

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
        return self._again(lambda: self._get(key, start, length))  # type: ignore[no-any-return]

    def size(self, key: str) -> int:
        return int(self._ask("HeadObject", check_key(key))["ContentLength"])

    def list(self, prefix: str, most: int | None = None) -> Iterator[ObjectInfo]:
        found: list[ObjectInfo] = []
        more: dict[str, Any] = {"MaxKeys": most} if most else {}
        while True:
            page = self._ask("ListObjectsV2", None, Prefix=self._prefix + prefix, **more)
            for item in page.get("Contents", ()):
                key = item["Key"].removeprefix(self._prefix)
                if is_key(key):
                    found.append(ObjectInfo(key, item["Size"], item["LastModified"].timestamp()))
            if not page.get("IsTruncated") or (most and found):
                return iter(sorted(found))
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def delete(self, key: str) -> None:
        with contextlib.suppress(KeyMissing):
            self._ask("DeleteObject", check_key(key))

    @property
    def caveats(self) -> tuple[str, ...]:
        return () if self._exclusive else (NOT_EXCLUSIVE,)

    def hold(self, key: str) -> bool:
        if not self._locks:
            return False
        self._ask("PutObjectLegalHold", check_key(key), LegalHold={"Status": "ON"})
        return True

    def release(self, key: str) -> None:
        if self._locks:
            self._ask("PutObjectLegalHold", check_key(key), LegalHold={"Status": "OFF"})

    def revive(self, key: str) -> bool:
        whole = self._prefix + check_key(key)
        try:
            listed = self._ask("ListObjectVersions", None, Prefix=whole)
        except StoreError as error:
            if "NotImplemented" in str(error):
                return False
            raise
        newest = [item for item in listed.get("DeleteMarkers", ()) if item["Key"] == whole and item["IsLatest"]]
        kept = any(item["Key"] == whole for item in listed.get("Versions", ()))
        if not newest or not kept:
            return False
        for marker in newest:
            self._ask("DeleteObject", key, VersionId=marker["VersionId"])
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

    # Requests

    @property
    def identity(self) -> str:
        """A word for this store: another server or account, or another prefix, has another."""
        variables = (os.environ.get(name) for name in _ELSEWHERE)
        told = (self.url, self._endpoint, self._profile, self._region, *variables)
        return hashlib.sha256(repr(told).encode()).hexdigest()[:12]

    @property
    def endpoint(self) -> str:
        """The URL of the server."""
        return str(self._client.meta.endpoint_url)

    @property
    def _client(self) -> Any:
        with self._making:
            if self._made is None:
                self._made = self._connect()
            return self._made

    def _connect(self) -> Any:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        retries: dict[str, Any] = {"mode": "standard"}
        if not os.environ.get("AWS_MAX_ATTEMPTS"):
            retries["total_max_attempts"] = _ATTEMPTS
        config = Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=self._read_seconds,
            max_pool_connections=_CONNECTIONS,
            retries=retries,
            # We give SHA-256 with what goes up and check all that comes down; some servers stumble over more.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        try:
            session = boto3.session.Session(profile_name=self._profile)
            region = self._region or session.region_name or os.environ.get("AWS_REGION") or "us-east-1"
            return session.client("s3", region_name=region, endpoint_url=self._endpoint, config=config)
        except (BotoCoreError, ValueError) as error:
            raise explained(error, "", self.url, self._endpoint or "of the AWS configuration", "") from None

    def _ask(self, operation: str, key: str | None, **arguments: Any) -> Any:
        """One request, tried again where that can help; `key` None: about the bucket.

        Raises:
            KeyMissing, StoreError: see `explained`.
        """
        return self._again(lambda: self._once(operation, key, **arguments))

    def _once(self, operation: str, key: str | None, **arguments: Any) -> Any:
        try:
            return self._call(operation, key, **arguments)
        except Exception as error:
            raise self._to_raise(error, operation, key or "") from None

    def _call(self, operation: str, key: str | None, **arguments: Any) -> Any:
        client = self._client
        method = getattr(client, _METHODS[operation])
        if key is not None:
            arguments["Key"] = self._prefix + key
        return method(Bucket=self.bucket, **arguments)

    def _explained(self, error: Exception, operation: str, key: str) -> Exception:
        from botocore.exceptions import BotoCoreError, ClientError

        if isinstance(error, (BotoCoreError, ClientError)) or _broke_off(error):
            return explained(error, operation, self.url, self.endpoint, key)
        return error

    def _to_raise(self, error: Exception, operation: str, key: str) -> Exception:
        said = self._explained(error, operation, key)
        return _TryAgain(said) if code_of(error) in _AGAIN or _broke_off(error) else said

    def _again(self, work: Callable[[], Any]) -> Any:
        """Do what can fail where botocore does not try again: in the body of an answer, or damaged on the way."""
        for attempt in range(_ATTEMPTS):
            try:
                return work()
            except _TryAgain as again:
                if attempt == _ATTEMPTS - 1:
                    raise again.error from None
            time.sleep(random.random() * 0.2 * 2**attempt)
        raise AssertionError

    def _get(self, key: str, start: int, length: int | None) -> bytes:
        last = "" if length is None else start + length - 1
        part = {} if start == 0 and length is None else {"Range": f"bytes={start}-{last}"}
        try:
            answer = self._call("GetObject", key, **part)
        except Exception as error:
            if status_of(error) == 416:
                return b""
            raise self._explained(error, "GetObject", key) from None
        try:
            data = bytes(answer["Body"].read())
        except Exception as error:
            raise _TryAgain(self._explained(error, "GetObject", key)) from None
        # A server that passes over ranges sends everything. The status does not tell: rclone says 200 to a part too.
        return data if not part or answer.get("ContentRange") else data[start:][:length]

    # Writing

    def _put(self, key: str, data: bytes, condition: dict[str, str]) -> bool:
        mark = secrets.token_hex(16)
        arguments = {"Body": data, "ChecksumSHA256": _checksum(data), "Metadata": {"mark": mark}, **condition}
        return bool(self._again(lambda: self._try_to_create("PutObject", key, mark, arguments)))

    def _try_to_create(self, operation: str, key: str, mark: str, arguments: dict[str, Any]) -> bool:
        try:
            self._call(operation, key, **arguments)
        except Exception as error:
            if status_of(error) == 412:
                # An earlier try may have won and only its answer been lost.
                return self._mark_of(key) == mark
            if code_of(error) == "NotImplemented":
                raise _NotImplementedThere from None
            raise self._to_raise(error, operation, key) from None
        return True

    def _mark_of(self, key: str) -> str | None:
        metadata = self._ask("HeadObject", key).get("Metadata", {})
        return {name.lower(): value for name, value in metadata.items()}.get("mark")

    def _put_in_parts(self, key: str, parts: Sequence[Buffer], condition: dict[str, str]) -> bool:
        size = sum(map(len, parts))
        mark = secrets.token_hex(16)
        begun = self._ask("CreateMultipartUpload", key, ChecksumAlgorithm="SHA256", Metadata={"mark": mark})
        upload = {"UploadId": begun["UploadId"]}
        try:
            pieces = enumerate(_pieces(parts, max(PART_BYTES, -(-size // _MOST_PARTS))), start=1)
            done = ordered(lambda piece: self._put_part(key, *piece, **upload), pieces, ahead=1, threads=4)
            arguments = {"MultipartUpload": {"Parts": [*done]}, **condition, **upload}
            return bool(self._again(lambda: self._try_to_create("CompleteMultipartUpload", key, mark, arguments)))
        finally:
            with contextlib.suppress(StoreError):  # there is none where it was completed
                self._ask("AbortMultipartUpload", key, **upload)

    def _put_part(self, key: str, number: int, data: bytes, **upload: str) -> dict[str, Any]:
        checksum = _checksum(data)
        answer = self._ask("UploadPart", key, PartNumber=number, Body=data, ChecksumSHA256=checksum, **upload)
        return {"PartNumber": number, "ETag": answer["ETag"], "ChecksumSHA256": checksum}

    @cached_property
    def _locks(self) -> bool:
        """True where the bucket has object lock."""
        try:
            answer = self._ask("GetObjectLockConfiguration", None)
        except StoreError as error:
            if "NotFound" in str(error) or "NotImplemented" in str(error):
                return False
            raise
        except KeyMissing:
            return False
        return bool(answer.get("ObjectLockConfiguration", {}).get("ObjectLockEnabled") == "Enabled")


_METHODS = {
    "GetObject": "get_object",
    "HeadObject": "head_object",
    "ListObjectsV2": "list_objects_v2",
    "PutObject": "put_object",
    "DeleteObject": "delete_object",
    "CreateMultipartUpload": "create_multipart_upload",
    "UploadPart": "upload_part",
    "CompleteMultipartUpload": "complete_multipart_upload",
    "AbortMultipartUpload": "abort_multipart_upload",
    "GetObjectLockConfiguration": "get_object_lock_configuration",
    "PutObjectLegalHold": "put_object_legal_hold",
    "ListObjectVersions": "list_object_versions",
}


class _NotImplementedThere(StoreError):
    """The server knows no conditions."""

    def __init__(self) -> None:
        super().__init__("this server cannot write what is asked of it: NotImplemented")


class _TryAgain(Exception):
    """Something that another try can mend; `error` is what to raise when it did not."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _broke_off(error: Exception) -> bool:
    """True for a connection that broke in the body of an answer, which botocore hands on as urllib3's error."""
    from urllib3.exceptions import HTTPError

    return isinstance(error, (HTTPError, OSError))


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
