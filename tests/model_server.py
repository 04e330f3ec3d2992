"""A server on loopback that speaks OpenAI's chat completions, and misbehaves as it is told to."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

Request: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """One answer of the server: a completion, or whatever bytes."""

    content: str | None = None
    arguments: str | None = None
    call_id: str = "call_1"
    finish: str = "stop"
    refusal: str | None = None
    status: int = 200
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    hang_up: bool = False


Answer: TypeAlias = Reply | Callable[[Request], Reply]


def error(status: int, message: str = "no", *, code: str | None = None, **headers: str) -> Reply:
    body = json.dumps({"error": {"message": message, "type": "invalid_request_error", "code": code}}).encode()
    return Reply(status=status, body=body, headers={name.replace("_", "-"): value for name, value in headers.items()})


def summary(fields: Mapping[str, object]) -> Reply:
    """Answer in the form that the request asks for, as a well-behaved model does."""
    return Reply(arguments=json.dumps(fields))


class ModelServer(ThreadingHTTPServer):
    """Gives its answers in order, the last one again and again, and keeps what it was asked."""

    daemon_threads = True

    def __init__(self, answers: Sequence[Answer]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = list(answers)
        self.requests: list[Request] = []
        self.bodies: list[bytes] = []
        self.times: list[float] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone, because it would wait no longer, is nothing to report."""

    def next(self, body: bytes) -> Reply:
        request: Request = json.loads(body)
        self.bodies.append(body)
        self.requests.append(request)
        self.times.append(time.monotonic())
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        return answer if isinstance(answer, Reply) else answer(request)

    def prompt(self, number: int = -1) -> str:
        """What the user's first message said in a request."""
        messages = self.requests[number]["messages"]
        return str(next(message["content"] for message in messages if message["role"] == "user"))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ModelServer

    def do_POST(self) -> None:
        reply = self.server.next(self.rfile.read(int(self.headers["Content-Length"])))
        request = self.server.requests[-1]
        time.sleep(reply.delay_s)
        if reply.hang_up:
            self.close_connection = True
            self.connection.close()
            return
        body = _completion(reply, request) if reply.body is None else reply.body
        self.send_response(reply.status)
        for name, value in {"Content-Type": "application/json", **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in http.server
        """Say nothing: what was asked is kept in `ModelServer.requests`."""


def _completion(reply: Reply, request: Request) -> bytes:
    message: dict[str, Any] = {"role": "assistant", "content": reply.content, "refusal": reply.refusal}
    finish = reply.finish
    if reply.arguments is not None and request.get("tools"):
        name = request["tools"][0]["function"]["name"]
        function = {"name": name, "arguments": reply.arguments}
        message["tool_calls"] = [{"id": reply.call_id, "type": "function", "function": function}]
        finish = "tool_calls" if finish == "stop" else finish
    elif reply.arguments is not None:
        message["content"] = reply.arguments
    choice = {"index": 0, "message": message, "finish_reason": finish}
    usage = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
    completion = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return json.dumps({**completion, "usage": usage}).encode()


@contextmanager
def serving(*answers: Answer) -> Iterator[ModelServer]:
    server = ModelServer(answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
