"""Requests as bytes on a socket, for what no client would send."""

import json
import socket

from tests.serve.conftest import MODEL

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
RAW = json.dumps(BODY).encode()


def port_of(url: str) -> int:
    """The port that a URL names."""
    return int(root(url).rpartition(":")[2])


def root(url: str) -> str:
    return url.removesuffix("/v1")


def talk(url: str, raw: bytes, seconds: float = 5) -> bytes:
    """Sends bytes as they are, and returns all that comes until the connection is closed."""
    with socket.create_connection(("127.0.0.1", port_of(url)), seconds) as plain:
        plain.sendall(raw)
        said = b""
        while piece := plain.recv(65536):
            said += piece
        return said


def request_of(raw: bytes = RAW, path: str = "/v1/chat/completions", **headers: str) -> bytes:
    named = {"Host": "localhost", "Content-Type": "application/json", "Connection": "close"}
    named |= {"Content-Length": str(len(raw))}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + raw


def status_of(said: bytes) -> int:
    """The status of the first response."""
    return int(said.split(b" ")[1])
