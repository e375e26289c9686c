"""A proxy between an S3 client and a real server, which fails in the ways a test asks for.

    with Proxy(server.endpoint) as proxy:
        proxy.fault(lose_reply(), operation="put", key="snapshots/*")

The first rule that fits a request and is not used up decides what happens to it; other requests pass through. A request
goes upstream with the headers as the client signed them, on a connection of its own: a proxy that kept connections
would have to repeat requests, and a repeated conditional write is no longer the client's. Bodies are held in memory.
"""

from __future__ import annotations

import contextlib
import fnmatch
import html
import http.client
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, unquote_plus, urlsplit
from xml.sax.saxutils import escape

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_SUBRESOURCES = (
    "acl",
    "delete",
    "legal-hold",
    "object-lock",
    "retention",
    "tagging",
    "uploads",
    "versioning",
    "versions",
)
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}
_PATIENCE = 60.0


@dataclass
class Request:
    """What a client asked, and what came of it.

    Attributes:
        number: 1, 2, ... in the order of arrival.
        path: as sent, with the query.
        headers: lower-case name -> value.
        received, sent: bytes of body from the client, and to it.
        status: what the client was told; None where nothing was said.
        forwarded: what the server said; None where it was not asked, or could not answer.
        fault: the name of the action of the rule that decided; None where it passed through.
        seconds: from the head of the request until all was done; None while that lasts.
    """

    number: int
    method: str
    path: str
    headers: dict[str, str]
    began: float = field(default_factory=time.monotonic)
    received: int = 0
    sent: int = 0
    status: int | None = None
    forwarded: int | None = None
    fault: str | None = None
    seconds: float | None = None

    @property
    def query(self) -> dict[str, str]:
        """The query, decoded."""
        return dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))

    @property
    def bucket(self) -> str:
        """The bucket, of a request by path."""
        return unquote(urlsplit(self.path).path.lstrip("/").partition("/")[0])

    @property
    def key(self) -> str:
        """The key, decoded; empty for a request about the bucket."""
        return unquote(urlsplit(self.path).path.lstrip("/").partition("/")[2])

    @property
    def operation(self) -> str:
        """The method in small letters and the subresource: put, get, post delete; `list` lists objects."""
        for name in _SUBRESOURCES:
            if name in self.query:
                return f"{self.method.lower()} {name}"
        return "list" if self.method == "GET" and not self.key else self.method.lower()


@dataclass(frozen=True)
class Response:
    """An answer: of the server, or made up."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes
    length: int | None = None

    @property
    def content_length(self) -> int:
        """What the head says: for a HEAD it is not the length of the body."""
        return len(self.body) if self.length is None else self.length


Action = Callable[["Exchange"], None]


@dataclass
class Rule:
    """An action for the requests that fit: from the `skip`-th on, `times` times, or always."""

    action: Action
    fits: Callable[[Request], bool]
    skip: int
    times: int | None
    seen: int = 0
    hits: int = 0

    def takes(self, request: Request) -> bool:
        """True where this request is the rule's; counts it."""
        if not self.fits(request):
            return False
        self.seen += 1
        if self.seen <= self.skip or (self.times is not None and self.hits >= self.times):
            return False
        self.hits += 1
        return True


class Proxy:
    """A context manager that listens on a port of its own.

    Attributes:
        endpoint: for clients.
        requests: all that arrived, in order.
        faults: the rules in force; a test may change the list.
        written: (bucket, key) -> when its last write through this proxy succeeded, by time.monotonic().
        closing: set when the block ends, which ends every wait.
    """

    def __init__(self, upstream: str) -> None:
        """Args: upstream: the endpoint of the real server."""
        parts = urlsplit(upstream)
        self.upstream = (parts.hostname or "127.0.0.1", parts.port or 80)
        self.requests: list[Request] = []
        self.faults: list[Rule] = []
        self.written: dict[tuple[str, str], float] = {}
        self.closing = threading.Event()
        self._errors: list[BaseException] = []
        self._lock = threading.Lock()
        self._listener = _Listener(self)
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.02,), daemon=True)
        self.endpoint = f"http://127.0.0.1:{self._listener.server_port}"

    def __enter__(self) -> Proxy:
        """Listen."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close every connection; raise what went wrong in the proxy itself, where nothing else did."""
        self.closing.set()
        self._listener.shutdown()
        self._listener.end_connections()
        self._listener.server_close()
        self._thread.join()
        if self._errors and kind is None:
            raise self._errors[0]

    def fault(
        self,
        action: Action,
        *,
        operation: str = "*",
        key: str = "*",
        match: Callable[[Request], bool] = lambda _: True,
        skip: int = 0,
        times: int | None = 1,
    ) -> Rule:
        """Install a rule after those there are.

        Args:
            action: what to do with a request.
            operation, key: patterns, as of fnmatch.
            match: a further condition.
            skip: requests that fit and pass all the same, before the first fault.
            times: faults until the rule is used up; None for ever.
        """

        def fits(request: Request) -> bool:
            return _like(request.operation, operation) and _like(request.key, key) and match(request)

        rule = Rule(action, fits, skip, times)
        self.faults.append(rule)
        return rule

    def said(self, operation: str = "*", key: str = "*") -> list[Request]:
        """The requests so far that fit."""
        return [each for each in self.requests if _like(each.operation, operation) and _like(each.key, key)]

    def arrived(self, method: str, path: str, headers: dict[str, str]) -> tuple[Request, Action]:
        """Record a request, and say what is to be done with it."""
        with self._lock:
            request = Request(len(self.requests) + 1, method, path, headers)
            self.requests.append(request)
            for rule in self.faults:
                if rule.takes(request):
                    request.fault = getattr(rule.action, "__qualname__", repr(rule.action)).partition(".")[0]
                    return request, rule.action
        return request, pass_through

    def failed(self, error: BaseException) -> None:
        """Keep an error of the proxy or of a test's callback, for the end of the block."""
        self._errors.append(error)


def _like(text: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(text, pattern)


class Exchange:
    """One request and its answer, as an action sees them."""

    def __init__(self, proxy: Proxy, request: Request, handler: _Handler) -> None:
        """Nothing of the body is read, and nothing said, until the action asks for it."""
        self.proxy = proxy
        self.request = request
        self._handler = handler
        self._body: bytes | None = None
        self._expected = handler.headers.get("Expect", "").lower() == "100-continue"

    @property
    def body(self) -> bytes:
        """The body of the request, read as a whole."""
        if self._body is None:
            chunked = self._handler.headers.get("Transfer-Encoding", "").lower() == "chunked"
            self._body = self._read_chunks() if chunked else self.read(self.announced)
        return self._body

    @property
    def announced(self) -> int:
        """The length of the request's body that its head announces."""
        return int(self._handler.headers.get("Content-Length", "0"))

    def read(self, size: int) -> bytes:
        """Some bytes of the request's body."""
        if self._expected:
            self._expected = False
            self._handler.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        data = self._handler.rfile.read(size)
        self.request.received += len(data)
        if len(data) < size:
            raise ConnectionResetError("the client went away in its request")
        return data

    def _read_chunks(self) -> bytes:
        parts = []
        self.read(0)
        while size := int(self._handler.rfile.readline().partition(b";")[0], 16):
            parts.append(self.read(size))
            self._handler.rfile.readline()
        while self._handler.rfile.readline().strip():
            pass
        return b"".join(parts)

    # To the server

    def forward(self, body: bytes | None = None) -> Response:
        """Ask the server, with another body where one is given."""
        body = self.body if body is None else body
        connection = self._ask(len(body))
        with contextlib.closing(connection):
            # A server may refuse by the head, and close: its answer is still there to read.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.send(body)
            response = _read(connection.getresponse())
        self.request.forwarded = response.status
        self._note_writing(response)
        return response

    def forward_part(self, body: bytes) -> None:
        """Send the head and less of a body than it announces to the server, then reset that connection."""
        connection = self._ask(self.announced)
        connection.send(body)
        _reset(connection.sock)

    def _ask(self, length: int) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(*self.proxy.upstream, timeout=_PATIENCE)
        connection.putrequest(self.request.method, self.request.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self._handler.headers.items():
            if name.lower() not in (*_HOP_BY_HOP, "expect"):
                connection.putheader(name, value)
        if length or "Content-Length" in self._handler.headers:
            connection.putheader("Content-Length", str(length))
        connection.putheader("Connection", "close")
        connection.endheaders()
        return connection

    def _note_writing(self, response: Response) -> None:
        wrote = self.request.method == "PUT" or "uploadId" in self.request.query
        if wrote and response.status == 200 and self.request.operation in ("put", "post"):
            self.proxy.written[self.request.bucket, self.request.key] = time.monotonic()

    # To the client

    def reply(self, response: Response) -> None:
        """Give an answer as it is."""
        self.send_head(response)
        self.send(response.body)

    def refuse(self, response: Response) -> None:
        """Give an answer without asking the server; a client that waits for 100 Continue keeps its body."""
        if self._expected:
            self._handler.close_connection = True
            response = Response(response.status, [*response.headers, ("Connection", "close")], response.body)
        else:
            _ = self.body
        self.reply(response)

    def send_head(self, response: Response) -> None:
        """The status and the headers of an answer."""
        self.request.status = response.status
        handler = self._handler
        handler.send_response_only(response.status)
        for name, value in response.headers:
            handler.send_header(name, value)
        if response.status != 204:
            handler.send_header("Content-Length", str(response.content_length))
        handler.end_headers()

    def send(self, data: bytes) -> None:
        """Some bytes of an answer's body."""
        self._handler.wfile.write(data)
        self.request.sent += len(data)

    def close(self) -> None:
        """End the connection in good order, once what was sent is delivered."""
        self._handler.close_connection = True

    def reset(self) -> None:
        """End the connection with RST."""
        self._handler.close_connection = True
        _reset(self._handler.connection)

    def wait(self, seconds: float) -> None:
        """Let time pass; a proxy that closes meanwhile does no more."""
        if self.proxy.closing.wait(seconds):
            raise ConnectionAbortedError("the proxy is closing")


def _read(answer: http.client.HTTPResponse) -> Response:
    body = answer.read()
    headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in _HOP_BY_HOP]
    length = answer.getheader("Content-Length")
    return Response(answer.status, headers, body, int(length) if length and not body else None)


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    # Files made of a socket keep it open after its close(), and a shutdown() would send FIN.
    os.close(connection.detach())


# Actions


def pass_through(exchange: Exchange) -> None:
    """What happens to requests that no rule fits."""
    exchange.reply(exchange.forward())


def answer_error(status: int, code: str, message: str = "", headers: Sequence[tuple[str, str]] = ()) -> Action:
    """Refuse with an error of S3, without asking the server."""

    def answer(exchange: Exchange) -> None:
        exchange.refuse(error_response(exchange.request, status, code, message, headers))

    return _named("answer_error", answer)


def slow_down() -> Action:
    """503, as when there are too many requests."""
    return answer_error(503, "SlowDown", "Please reduce your request rate.")


def internal_error() -> Action:
    """500, as any server answers at times."""
    return answer_error(500, "InternalError", "We encountered an internal error. Please try again.")


def reset_at_once() -> Action:
    """Reset the connection before the server is asked."""

    def reset(exchange: Exchange) -> None:
        exchange.reset()

    return _named("reset_at_once", reset)


def cut_request(after: int) -> Action:
    """Pass on the head and `after` bytes of the request's body, then reset both connections."""

    def cut(exchange: Exchange) -> None:
        exchange.forward_part(exchange.read(min(after, exchange.announced)))
        exchange.reset()

    return _named("cut_request", cut)


def lose_reply() -> Action:
    """Let the server do it, then reset the connection before a word is said."""

    def lose(exchange: Exchange) -> None:
        exchange.forward()
        exchange.reset()

    return _named("lose_reply", lose)


def cut_reply(after: int) -> Action:
    """Reset the connection after `after` bytes of the answer's body."""

    def cut(exchange: Exchange) -> None:
        response = exchange.forward()
        exchange.send_head(response)
        exchange.send(response.body[:after])
        exchange.reset()

    return _named("cut_reply", cut)


def truncate_reply(after: int) -> Action:
    """Close the connection in good order after `after` bytes of the answer's body, before its Content-Length."""

    def truncate(exchange: Exchange) -> None:
        response = exchange.forward()
        exchange.send_head(response)
        exchange.send(response.body[:after])
        exchange.close()

    return _named("truncate_reply", truncate)


def slow_reply(size: int, seconds: float) -> Action:
    """Give the answer's body in pieces of `size` bytes, with a pause of `seconds` before each but the first."""

    def slow(exchange: Exchange) -> None:
        response = exchange.forward()
        exchange.send_head(response)
        for start in range(0, len(response.body), size):
            exchange.wait(seconds if start else 0)
            exchange.send(response.body[start : start + size])

    return _named("slow_reply", slow)


def stall(seconds: float, then: Action = pass_through) -> Action:
    """Nothing for a while: the server is asked only after that."""

    def wait(exchange: Exchange) -> None:
        exchange.wait(seconds)
        then(exchange)

    return _named("stall", wait)


def stall_reply(seconds: float) -> Action:
    """Let the server do it, and say nothing of it for a while."""

    def wait(exchange: Exchange) -> None:
        response = exchange.forward()
        exchange.wait(seconds)
        exchange.reply(response)

    return _named("stall_reply", wait)


def flip_reply(offset: int) -> Action:
    """Change one byte of the answer's body; a negative offset counts from its end."""

    def flip(exchange: Exchange) -> None:
        response = exchange.forward()
        exchange.reply(Response(response.status, response.headers, _flipped(response.body, offset)))

    return _named("flip_reply", flip)


def flip_request(offset: int) -> Action:
    """Change one byte of the request's body before the server sees it, and pass on its answer."""

    def flip(exchange: Exchange) -> None:
        exchange.reply(exchange.forward(_flipped(exchange.body, offset)))

    return _named("flip_request", flip)


def lag_listing(seconds: float = 0, hidden: Callable[[str], bool] = lambda _: False) -> Action:
    """Leave out of a listing the keys written through this proxy in the last `seconds`, and those that are `hidden`."""

    def lag(exchange: Exchange) -> None:
        response, request, now = exchange.forward(), exchange.request, time.monotonic()

        def keep(found: re.Match[bytes]) -> bytes:
            key = _listed_key(found[1], request.query.get("encoding-type") == "url")
            written = exchange.proxy.written.get((request.bucket, key), now - seconds - 1)
            return b"" if hidden(key) or now - written < seconds else found[0]

        body = re.sub(rb"<Contents>.*?<Key>(.*?)</Key>.*?</Contents>", keep, response.body, flags=re.DOTALL)
        count = b"<KeyCount>%d</KeyCount>" % body.count(b"<Contents>")
        body = re.sub(rb"<KeyCount>\d+</KeyCount>", count, body)
        exchange.reply(Response(response.status, response.headers, body))

    return _named("lag_listing", lag)


def call_before(function: Callable[[Request], object], then: Action = pass_through) -> Action:
    """Call a function before the server is asked."""

    def call(exchange: Exchange) -> None:
        _ = exchange.body
        function(exchange.request)
        then(exchange)

    return _named("call_before", call)


def call_after(function: Callable[[Request], object]) -> Action:
    """Call a function when the server has done it, and before the client is told."""

    def call(exchange: Exchange) -> None:
        response = exchange.forward()
        function(exchange.request)
        exchange.reply(response)

    return _named("call_after", call)


def error_response(
    request: Request, status: int, code: str, message: str = "", headers: Sequence[tuple[str, str]] = ()
) -> Response:
    """An error as S3 words it; a HEAD has no body to tell the code in."""
    text = f"<Code>{escape(code)}</Code><Message>{escape(message or code)}</Message><Key>{escape(request.key)}</Key>"
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error>{text}<RequestId>{request.number:016X}</RequestId></Error>'
    return Response(
        status,
        [("Content-Type", "application/xml"), ("x-amz-request-id", f"{request.number:016X}"), *headers],
        b"" if request.method == "HEAD" else body.encode(),
    )


def _named(name: str, action: Action) -> Action:
    action.__qualname__ = name
    return action


def _flipped(data: bytes, offset: int) -> bytes:
    changed = bytearray(data)
    changed[offset] ^= 1
    return bytes(changed)


def _listed_key(text: bytes, url_encoded: bool) -> str:
    key = html.unescape(text.decode())
    return unquote_plus(key) if url_encoded else key


# Listening


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        """Wake the threads that wait for a client's next request."""
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients go away in many tests: that is no error of the proxy."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def handle_expect_100(self) -> bool:
        """Let the action decide whether the client is to go on."""
        return True

    def log_message(self, *_: object) -> None:
        """Requests are recorded, not printed."""

    def _handle(self) -> None:
        proxy = self.server.proxy
        headers = {name.lower(): value for name, value in self.headers.items()}
        request, action = proxy.arrived(self.command, self.path, headers)
        try:
            action(Exchange(proxy, request, self))
        except (OSError, http.client.HTTPException):
            # The client or the server went away: the other one finds its connection cut as well.
            self.close_connection = True
            with contextlib.suppress(OSError):
                _reset(self.connection)
        except BaseException as error:
            self.close_connection = True
            proxy.failed(error)
        finally:
            request.seconds = time.monotonic() - request.began

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _handle
