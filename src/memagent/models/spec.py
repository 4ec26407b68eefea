"""Which model: from a name such as `vllm:Qwen/Qwen3-4B`, the environment, or an object."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import SecretStr

from memagent.errors import AuthenticationFailed, ConfigError, NoModel
from memagent.models.base import ChatModel
from memagent.models.extractive import ExtractiveModel
from memagent.models.openai import Dialect, OpenAIModel
from memagent.models.retry import Retry

ENV_FILE = ".env"
OPENAI_URL = "https://api.openai.com/v1"
LOCAL_URLS = {"vllm": "http://localhost:8000/v1", "sglang": "http://localhost:30000/v1"}
"""Where these servers listen unless told otherwise."""
EXAMPLES = "'vllm:NAME', 'sglang:NAME', 'openai:NAME' or 'extractive' (which needs no server)"


@dataclass(frozen=True)
class Access:
    """How to reach a model: arguments first, then the environment, then `.env`."""

    base_url: str | None
    api_key: str | None
    tokenizer: str | None
    window: int | None


def open_model(
    spec: str | ChatModel | None = None,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    tokenizer: str | None = None,
    window: int | None = None,
) -> ChatModel:
    """The model that a spec names. Nothing is sent yet.

    Args:
        spec: `vllm:NAME`, `sglang:NAME`, `openai:NAME` (the OpenAI API, or any compatible server with a
            base URL) or `extractive`. None takes `MEMAGENT_MODEL` from the environment, else from `.env` in
            the working folder. A model object is given back as it is.
        base_url: of the server, up to `/v1`; else `MEMAGENT_BASE_URL`, `OPENAI_BASE_URL`, then
            localhost 8000 (vllm), localhost 30000 (sglang) or the OpenAI API (openai).
        api_key: else `MEMAGENT_API_KEY`, `OPENAI_API_KEY`, then none.
        tokenizer: what `load_counter` takes, instead of the model's own.
        window: most tokens of prompt plus output, instead of asking the server.

    Returns:
        The model; servers come with `Retry` around them.

    Raises:
        NoModel: no model is named anywhere.
        AuthenticationFailed: the OpenAI API without a key.
        ConfigError: the spec or the URL cannot be right.
    """
    if spec is not None and not isinstance(spec, str):
        _refuse(
            f"the model {spec!r} is an object already",
            {"base_url": base_url, "api_key": api_key, "tokenizer": tokenizer, "window": window},
        )
        return spec
    found = _Found.look()
    scheme, name = _split(found.model if spec is None else spec)
    if scheme == "extractive":
        _refuse(
            "the model 'extractive' needs no server",
            {"base_url": base_url, "api_key": api_key, "tokenizer": tokenizer},
        )
    access = Access(
        base_url=found.base_url if base_url is None else base_url,
        api_key=found.api_key if api_key is None else api_key,
        tokenizer=tokenizer,
        window=window,
    )
    return SCHEMES[scheme](name, access)


def _openai(name: str, access: Access) -> ChatModel:
    url = access.base_url or OPENAI_URL
    its_own = urlsplit(url).hostname == urlsplit(OPENAI_URL).hostname
    if its_own and not access.api_key:
        raise AuthenticationFailed(
            f"openai:{name} at {OPENAI_URL} wants an API key; set OPENAI_API_KEY or MEMAGENT_API_KEY, or "
            f"give the base URL of another server (base_url=, MEMAGENT_BASE_URL)"
        )
    return _server(name, url, "openai" if its_own else "plain", access)


def _vllm(name: str, access: Access) -> ChatModel:
    return _server(name, access.base_url or LOCAL_URLS["vllm"], "vllm", access)


def _sglang(name: str, access: Access) -> ChatModel:
    return _server(name, access.base_url or LOCAL_URLS["sglang"], "sglang", access)


def _extractive(name: str, access: Access) -> ChatModel:
    return ExtractiveModel() if access.window is None else ExtractiveModel(window=access.window)


def _server(name: str, url: str, dialect: Dialect, access: Access) -> ChatModel:
    return Retry(
        OpenAIModel(
            name,
            base_url=url,
            api_key=access.api_key,
            dialect=dialect,
            window=access.window,
            tokenizer=access.tokenizer,
        )
    )


SCHEMES: dict[str, Callable[[str, Access], ChatModel]] = {
    "openai": _openai,
    "vllm": _vllm,
    "sglang": _sglang,
    "extractive": _extractive,
}
"""What may stand before the colon. `extractive` stands alone."""


def _split(spec: str | None) -> tuple[str, str]:
    """Scheme and name.

    Raises:
        NoModel: there is no spec.
        ConfigError: it has no known scheme, or no name.
    """
    if spec is None or not spec.strip():
        raise NoModel(
            f"no model is named. Looked for: the model argument, MEMAGENT_MODEL in the environment, "
            f"MEMAGENT_MODEL in {ENV_FILE} of the working folder. Give {EXAMPLES}, for example "
            f"--model extractive or MEMAGENT_MODEL=vllm:Qwen/Qwen3-4B"
        )
    spec = spec.strip()
    scheme, colon, name = spec.partition(":")
    if scheme == "extractive" and not name:
        return scheme, ""
    if scheme == "extractive":
        raise ConfigError(f"the model {spec!r} takes no name; give 'extractive'")
    if scheme not in SCHEMES:
        close = difflib.get_close_matches(
            scheme.lower(), [s for s in SCHEMES if s != "extractive"], n=1
        )
        meant = f"{close[0]}:{name}" if colon and close else f"vllm:{spec}"
        if not colon and difflib.get_close_matches(scheme.lower(), ["extractive"]):
            meant = "extractive"
        raise ConfigError(
            f"the model {spec!r} does not say where it runs; did you mean {meant!r}? "
            f"Possible are {EXAMPLES}"
        )
    if not name.strip():
        raise ConfigError(
            f"the model {spec!r} has no name after the colon; give the name under which the server "
            f"serves it, such as 'vllm:Qwen/Qwen3-4B'"
        )
    return scheme, name.strip()


def _refuse(why: str, given: dict[str, str | int | None]) -> None:
    names = [f"{name}=" for name, value in given.items() if value is not None]
    if names:
        raise ConfigError(f"{why}, so {', '.join(names)} has no effect; leave it out")


@dataclass(frozen=True)
class _Found:
    """What the environment and `.env` say; for each name the environment wins."""

    model: str | None
    base_url: str | None
    api_key: str | None

    @classmethod
    def look(cls) -> _Found:
        # Imported here: reading settings is the only use, and `import memagent` stays light.
        from pydantic_settings import BaseSettings, SettingsConfigDict

        class Settings(BaseSettings):
            model_config = SettingsConfigDict(
                env_file=ENV_FILE, env_file_encoding="utf-8", env_ignore_empty=True, extra="ignore"
            )
            memagent_model: str | None = None
            memagent_base_url: str | None = None
            memagent_api_key: SecretStr | None = None
            openai_base_url: str | None = None
            openai_api_key: SecretStr | None = None

        try:
            found = Settings()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{ENV_FILE} in the working folder cannot be read ({error}); make it readable UTF-8, or "
                f"remove it"
            ) from error
        key = found.memagent_api_key or found.openai_api_key
        return cls(
            model=found.memagent_model,
            base_url=found.memagent_base_url or found.openai_base_url,
            api_key=None if key is None else key.get_secret_value(),
        )
