"""Controls who may send requests, and how many at once, on all paths but `/health`."""

import hashlib
import hmac

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memagent_serve.refusals import Refusal
from memagent_serve.settings import Settings, is_local

OPEN = "/health"
"""The one path that needs no key and isn't counted as a request: orchestrators poll it, even on a full endpoint."""
BUSY_SECONDS = 1
"""Seconds that a client is asked to wait if there are too many requests."""


class Guard:
    """Lets a request in if it has a key; if there are no keys, if it names this machine as the host."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings
        self._keys = [_digest(key) for key in settings.keys]
        self.at_work = 0
        """Requests that were let in and not answered yet."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request that isn't let in; passes everything else to the app."""
        if scope["type"] != "http" or scope["path"] == OPEN:
            await self._app(scope, receive, send)
            return
        try:
            scope["owner"] = self._check(Headers(scope=scope))
        except Refusal as refusal:
            await refusal.response()(scope, receive, send)
            return
        self.at_work += 1
        is_over = False

        async def answer(message: Message) -> None:
            nonlocal is_over
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                # Before the end is sent: a client that has the whole reply may immediately ask again.
                self.at_work -= not is_over
                is_over = True
            await send(message)

        try:
            await self._app(scope, receive, answer)
        finally:
            self.at_work -= not is_over

    def _check(self, headers: Headers) -> str:
        """Checks a request; returns its owner, in a word that doesn't reveal the key."""
        owner = self._owner(headers)
        if self.at_work >= self._settings.max_requests:
            raise Refusal(
                429,
                f"{self._settings.max_requests} requests are at work, the most that this endpoint allows: retry later",
                code="rate_limit_exceeded",
                headers={"Retry-After": str(BUSY_SECONDS)},
            )
        return owner

    def _owner(self, headers: Headers) -> str:
        if not self._keys:
            host = headers.getlist("host")
            # A web page that points its own host name here can't send an address or localhost as the host.
            if len(host) != 1 or not is_local(_without_port(host[0])):
                raise Refusal(403, "this endpoint has no keys, so it answers to localhost only")
            return "local"
        authorizations = headers.getlist("authorization")
        scheme, _, key = (authorizations[0] if len(authorizations) == 1 else "").partition(" ")
        digest = _digest(key.strip())
        # Compares all of them, so that the time doesn't reveal which one it was.
        matches = [hmac.compare_digest(digest, key_digest) for key_digest in self._keys]
        if scheme.lower() != "bearer" or not any(matches):
            raise Refusal(
                401,
                "a key is needed: send it as 'Authorization: Bearer KEY'",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return hashlib.blake2b(digest, digest_size=4).hexdigest()


def _digest(key: str) -> bytes:
    """Digests a key. All digests have the same length, so comparing them doesn't reveal the key's."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _without_port(host: str) -> str:
    name = host.strip().lower()
    if ":" in name and not name.endswith("]"):
        name = name.rpartition(":")[0]
    return name.removeprefix("[").removesuffix("]")
