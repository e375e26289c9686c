"""What boto3 raises -> what happened, and what to do about it. No credential is ever part of the words."""

from __future__ import annotations

from typing import Any

from ..errors import (
    AccessDenied,
    BadCredentials,
    ClockSkew,
    CredentialsExpired,
    ForeignServer,
    NoCredentials,
    NoSuchBucket,
    StoreError,
    TlsFailed,
    Unreachable,
    WrongRegion,
)
from .base import KeyMissing

_KIND_OF_CODE: dict[str, type[StoreError]] = {
    "NoSuchBucket": NoSuchBucket,
    "AccessDenied": AccessDenied,
    "AllAccessDisabled": AccessDenied,
    "403": AccessDenied,
    "InvalidAccessKeyId": BadCredentials,
    "SignatureDoesNotMatch": BadCredentials,
    "InvalidToken": BadCredentials,
    "ExpiredToken": CredentialsExpired,
    "ExpiredTokenException": CredentialsExpired,
    "TokenRefreshRequired": CredentialsExpired,
    "AuthorizationHeaderMalformed": WrongRegion,
    "IllegalLocationConstraintException": WrongRegion,
    "PermanentRedirect": WrongRegion,
    "TemporaryRedirect": WrongRegion,
    "301": WrongRegion,
    "307": WrongRegion,
    "RequestTimeTooSkewed": ClockSkew,
}

_KIND_OF_EXCEPTION: dict[str, type[StoreError]] = {
    "NoCredentialsError": NoCredentials,
    "PartialCredentialsError": NoCredentials,
    "CredentialRetrievalError": NoCredentials,
    "ProfileNotFound": NoCredentials,
    "ConfigParseError": NoCredentials,
    "SSOError": NoCredentials,
    "TokenRetrievalError": CredentialsExpired,
    "SSLError": TlsFailed,
    "HTTPClientError": Unreachable,
    "ConnectionError": Unreachable,
    "IncompleteReadError": Unreachable,
    "HTTPError": Unreachable,
    "OSError": Unreachable,
}

_HINTS: dict[type[StoreError], str] = {
    NoCredentials: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE to a profile that has them",
    CredentialsExpired: "renew them (`aws sso login`, or a new AWS_SESSION_TOKEN) and try again",
    BadCredentials: "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN (or AWS_PROFILE); are they "
    "for this endpoint?",
    NoSuchBucket: "make it (`aws s3 mb s3://BUCKET`), or name another; is the endpoint right (--s3-endpoint)?",
    WrongRegion: "set AWS_REGION to the bucket's region",
    ClockSkew: "set this machine's clock (NTP): requests are signed with the time",
    Unreachable: "is the endpoint right (--s3-endpoint), is it up, and is it reached from here (proxy, firewall)?",
    ForeignServer: "is the endpoint right (--s3-endpoint)? A web server or a proxy answers there",
    TlsFailed: "is it https there? For a certificate authority of your own set AWS_CA_BUNDLE to its file",
}

# What a policy must allow for an operation, where it is not the operation's own name.
_ACTIONS = {
    "HeadObject": "s3:GetObject",
    "ListObjectsV2": "s3:ListBucket",
    "CreateMultipartUpload": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
    "GetObjectLockConfiguration": "s3:GetBucketObjectLockConfiguration",
}
# Without permission to list, a server says "denied" of what is not there.
_ALSO = {"GetObject": " and s3:ListBucket", "HeadObject": " and s3:ListBucket"}

MISSING = ("NoSuchKey", "NotFound", "404", "MethodNotAllowed")


def code_of(error: Exception) -> str:
    """The server's own code for an error, or "" where no server answered."""
    return str(_answer(error).get("Error", {}).get("Code", ""))


def status_of(error: Exception) -> int:
    """The HTTP status of an error, or 0."""
    return int(_answer(error).get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _answer(error: Exception) -> dict[str, Any]:
    answer = getattr(error, "response", None)
    return answer if isinstance(answer, dict) else {}


def explained(error: Exception, operation: str, url: str, endpoint: str, key: str) -> StoreError | KeyMissing:
    """The error to raise for what an S3 operation on `key` (or a prefix) of the store `url` ended with."""
    code = code_of(error)
    if code in MISSING and not _is_foreign(error, operation):
        return KeyMissing(f"cannot read {key}: it is not in the store", facts=[f"store  {url}"])
    kind = ForeignServer if _is_foreign(error, operation) else _kind(error, code)
    facts = [f"store     {url}", f"endpoint  {endpoint}", f"reason    {_reason(error, code)}"]
    hint = _HINTS.get(kind, "")
    if kind is AccessDenied:
        action = _ACTIONS.get(operation, f"s3:{operation}")
        facts.append(f"action    {action} on {key or 'the bucket'}")
        hint = f"allow {action}{_ALSO.get(operation, '')} to these credentials, or use others"
    if kind is WrongRegion and (region := _answer(error)["Error"].get("Region")):
        hint = f"set AWS_REGION={region}"
    what = f"{_WORDS.get(operation, 'use')} {key}" if key and kind in (AccessDenied, StoreError) else f"use {url}"
    return kind(f"cannot {what}: {_SAID[kind]}", facts=facts, hint=hint)


def _is_foreign(error: Exception, operation: str) -> bool:
    """True for an answer that no S3 server gives: where it may have a body, an error of S3 has a name and no number."""
    code = code_of(error)
    return code.isdecimal() and operation != "HeadObject" and (400 <= int(code) < 500 or code == "501")


_WORDS = {
    "GetObject": "read",
    "HeadObject": "read",
    "ListObjectsV2": "list",
    "PutObject": "write",
    "CreateMultipartUpload": "write",
    "UploadPart": "write",
    "CompleteMultipartUpload": "write",
    "DeleteObject": "delete",
}
_SAID: dict[type[StoreError], str] = {
    NoCredentials: "no usable credentials",
    CredentialsExpired: "the credentials have expired",
    BadCredentials: "the server does not accept the credentials",
    AccessDenied: "access denied",
    NoSuchBucket: "no such bucket",
    WrongRegion: "the bucket is in another region",
    ClockSkew: "this machine's clock is wrong",
    Unreachable: "the server cannot be reached",
    TlsFailed: "no trusted connection (TLS)",
    ForeignServer: "what answers there does not speak S3",
    StoreError: "the server refused",
}


def _kind(error: Exception, code: str) -> type[StoreError]:
    if code:
        return _KIND_OF_CODE.get(code) or (Unreachable if status_of(error) >= 500 else StoreError)
    for parent in type(error).__mro__:
        if parent.__name__ in _KIND_OF_EXCEPTION:
            return _KIND_OF_EXCEPTION[parent.__name__]
    return StoreError


def _reason(error: Exception, code: str) -> str:
    if code:
        message = _answer(error)["Error"].get("Message", "")
        tries = _answer(error).get("ResponseMetadata", {}).get("RetryAttempts", 0)
        return f"{code}: {message}" + (f" (tried {tries + 1} times)" if tries else "")
    return str(error)
