"""Requests about the objects below a prefix of a bucket. boto3 is imported when one is first made.

botocore tries again what a server refuses for the moment; what breaks off in the body of an answer, or is damaged on
the way, is tried again here. What is raised is an error of ours.
"""

from __future__ import annotations

import hashlib
import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from .s3_errors import code_of, explained, status_of

Answer = TypeVar("Answer")

_CONNECTIONS = 32
_ATTEMPTS = 5
_CONNECT_SECONDS = 10.0
READ_SECONDS = 30.0
# What sends a URL to another server or account.
_ELSEWHERE = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_PROFILE")
# Damaged on the way, or two requests for one key at the same moment: the server took nothing.
_AGAIN = ("BadDigest", "XAmzContentSHA256Mismatch", "IncompleteBody", "ConditionalRequestConflict", "OperationAborted")
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


class Requests:
    """Requests about a bucket.

    Args:
        bucket, prefix: where; the prefix is "" or has no slash at its ends.
        endpoint: URL of the server; None: what the AWS environment and profile say.
        profile, region: of the AWS configuration, where they are not the environment's.
        read_seconds: how long the server may say nothing.

    Attributes:
        url: of the store.
        prefix: what keys begin with in the bucket.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str,
        *,
        endpoint: str | None,
        profile: str | None,
        region: str | None,
        read_seconds: float,
    ) -> None:
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self.prefix = f"{prefix}/" if prefix else ""
        self._bucket = bucket
        self._endpoint, self._profile, self._region = endpoint, profile, region
        self._read_seconds = read_seconds
        self._making = threading.Lock()
        self._made: Any = None

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

    def ask(self, operation: str, key: str | None, **arguments: Any) -> Any:
        """One request, tried again where that can help; `key` None: about the bucket.

        Raises:
            KeyMissing, StoreError: see `explained`.
        """
        return self.again(lambda: self._once(operation, key, **arguments))

    def _once(self, operation: str, key: str | None, **arguments: Any) -> Any:
        try:
            return self.call(operation, key, **arguments)
        except Exception as error:
            raise self.to_raise(error, operation, key or "") from None

    def call(self, operation: str, key: str | None, **arguments: Any) -> Any:
        """One request, as boto3 answers it or fails."""
        client = self._client
        method = getattr(client, _METHODS[operation])
        if key is not None:
            arguments["Key"] = self.prefix + key
        return method(Bucket=self._bucket, **arguments)

    def to_raise(self, error: Exception, operation: str, key: str) -> Exception:
        """What to raise instead of an error of `call`, for `again` to see."""
        said = self._explained(error, operation, key)
        return _TryAgain(said) if code_of(error) in _AGAIN or _broke_off(error) else said

    def _explained(self, error: Exception, operation: str, key: str) -> Exception:
        from botocore.exceptions import BotoCoreError, ClientError

        if isinstance(error, (BotoCoreError, ClientError)) or _broke_off(error):
            return explained(error, operation, self.url, self.endpoint, key)
        return error

    def again(self, work: Callable[[], Answer]) -> Answer:
        """Do what can fail where botocore does not try again: in the body of an answer, or damaged on the way."""
        for attempt in range(_ATTEMPTS):
            try:
                return work()
            except _TryAgain as again:
                if attempt == _ATTEMPTS - 1:
                    raise again.error from None
            time.sleep(random.random() * 0.2 * 2**attempt)
        raise AssertionError

    def get(self, key: str, start: int, length: int | None) -> bytes:
        """The bytes of an object, or of a part of it."""
        return self.again(lambda: self._get(key, start, length))

    def _get(self, key: str, start: int, length: int | None) -> bytes:
        last = "" if length is None else start + length - 1
        part = {} if start == 0 and length is None else {"Range": f"bytes={start}-{last}"}
        try:
            answer = self.call("GetObject", key, **part)
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


class _TryAgain(Exception):
    """Something that another try can mend; `error` is what to raise when it did not."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _broke_off(error: Exception) -> bool:
    """True for a connection that broke in the body of an answer, which botocore hands on as urllib3's error."""
    from urllib3.exceptions import HTTPError

    return isinstance(error, (HTTPError, OSError))
