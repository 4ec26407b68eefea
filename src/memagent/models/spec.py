"""Opens a model: from a spec such as `vllm:Qwen/Qwen3-4B`, the environment, or an object."""

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from memagent.errors import AuthenticationFailed, ConfigError, NoModel
from memagent.models.base import ChatModel, Wrapper
from memagent.models.counting import Counted
from memagent.models.dialects import DialectName
from memagent.models.retry import Retry, RetryPolicy
from memagent.texts import nearest
from memagent.tokens.base import TokenCounter

logger = logging.getLogger("memagent.spec")

ENV_FILE = ".env"
URLS, KEYS = (
    tuple(f"{of}_{end}" for of in ("MEMAGENT", "OPENAI")) for end in ("BASE_URL", "API_KEY")
)
"""Variables of the environment or `.env`, in the order in which they are looked up."""
OPENAI_URL = "https://api.openai.com/v1"
LOCAL_URLS = {
    "vllm": "http://localhost:8000/v1",
    "sglang": "http://localhost:30000/v1",
    "ollama": "http://localhost:11434/v1",
}
"""Default URLs of these servers."""
EXAMPLES = (
    "'vllm:NAME', 'sglang:NAME', 'ollama:NAME', 'openai:NAME', or without a server 'transformers:FOLDER', "
    "'vllm-engine:FOLDER', 'sglang-engine:FOLDER', 'smol', 'nano' or 'extractive'"
)
IN_PROCESS = ("transformers", "vllm-engine", "sglang-engine", "smol", "nano", "extractive")
"""Schemes that need no server."""
ALONE = ("nano", "extractive")
"""Schemes that take no name."""
FOLDER = Path(__file__).parents[1] / "nano"
"""The policy that ships with the package: an export of `memagent-train`, with its reading settings."""
SCHEMES = ("openai", *LOCAL_URLS, *IN_PROCESS)
"""The prefixes of a spec."""
_SECRET = re.compile("auth|cookie|credential|key|pass|secret|token", re.IGNORECASE)
"""Matches names of headers whose values are secret."""


def open_model(
    spec: str | ChatModel | None = None,
    *,
    base_url: str | Sequence[str] | None = None,
    api_key: str | None = None,
    tokenizer: str | PathLike[str] | TokenCounter | None = None,
    window: int | None = None,
    timeout: float | None = None,
    headers: Mapping[str, str] | None = None,
    extra_body: Mapping[str, object] | None = None,
    retry: RetryPolicy | None = None,
) -> ChatModel:
    """Opens the model that a spec names. Nothing is sent yet.

    Args:
        spec: `vllm:NAME`, `sglang:NAME`, `ollama:NAME`, `openai:NAME` (the OpenAI API, or any compatible server with a
            base URL); without a server `transformers:FOLDER`, `vllm-engine:FOLDER`, `sglang-engine:FOLDER` (or a name
            on the hub), `smol`, `nano` or `extractive`. None reads `MEMAGENT_MODEL` from the environment, else from
            `.env` in the working directory. A model object is returned unchanged.
        base_url: the server's URL, up to `/v1`, or a list of several that serve the same model (in a variable:
            separated by commas); else `MEMAGENT_BASE_URL`, `OPENAI_BASE_URL`, then
            localhost 8000 (vllm), 30000 (sglang) or 11434 (ollama), or the OpenAI API (openai).
        api_key: else `MEMAGENT_API_KEY`, `OPENAI_API_KEY`, then none. A key from the environment is not sent to
            a URL that only `.env` names, and `OPENAI_API_KEY` not to the localhost defaults.
        tokenizer: what `load_counter` accepts, instead of the model's own. If the server counts tokens and
            disagrees, its counts are used.
        window: maximum tokens of prompt plus output, instead of asking the server; 8,192 by default for `ollama:`.
        timeout: seconds after which a call without a reply fails; 600 by default.
        headers: sent with every request, and never shown or stored.
        extra_body: fields for every chat request, overriding those that memagent sets; None leaves a field out (see
            `OpenAIModel`).
        retry: how often and how long failed calls are retried.

    Returns:
        The model; servers are wrapped in `Retry`.

    Raises:
        NoModel: no model is named anywhere.
        AuthenticationFailed: there is no key for the OpenAI API.
        ConfigError: the spec or the URL is invalid, or a key (`api_key`, `headers`) would go to a URL that only
            `.env` names.
    """
    server = {"base_url": base_url, "api_key": api_key, "timeout": timeout, "headers": headers}
    server |= {"extra_body": extra_body, "retry": retry}
    if spec is not None and not isinstance(spec, str):
        names = ("name", "complete", "counter", "window", "aclose")
        if missing_names := [name for name in names if not hasattr(spec, name)]:
            raise ConfigError(
                f"{spec!r:.80} is not a model: give a spec such as 'vllm:NAME', or a ChatModel (it lacks "
                f"{', '.join(missing_names)})"
            )
        _refuse(f"the model {spec!r} is already an object", server | {"window": window})
        return spec if tokenizer is None else Counted(spec, tokenizer)
    settings = look("MEMAGENT_MODEL", *URLS, *KEYS)
    if spec is None:
        spec = next((s.value for s in _find(settings, "MEMAGENT_MODEL")), None)
    scheme, name = _split(spec)
    url = next(_find(settings, *URLS), None)
    urls = urls_of(url.value if url else LOCAL_URLS.get(scheme, OPENAI_URL))
    if base_url is not None:
        url, urls = _Setting("base_url=", ""), urls_of(base_url)
    if scheme in IN_PROCESS:
        _refuse(f"the model {scheme!r} needs no server", server)
        model = _in_process(scheme, name, window)
        if tokenizer is not None:
            model = Counted(model, tokenizer)
    else:
        key = _key(scheme, url, server, settings)
        if scheme == "ollama":
            from memagent_engines.ollama import OllamaModel as Served
        else:
            from memagent.models.openai import OpenAIModel as Served
        server_model = Served(
            name,
            base_url=urls,
            api_key=key,
            dialect=_dialect(scheme, name, urls, key),
            window=window,
            tokenizer=tokenizer,
            timeout=600.0 if timeout is None else timeout,
            default_headers=headers,
            extra_body=extra_body,
        )
        model = Retry(server_model, **vars(retry or RetryPolicy()))
    if isinstance(model, Wrapper):
        model.opened_with = {
            **model.recipe,
            "base_url": None if base_url is None else ",".join(map(_without_secrets, urls)),
            "tokenizer": str(tokenizer) if isinstance(tokenizer, str | PathLike) else None,
        }
    return model


def open_nano(window: int | None = None) -> ChatModel:
    """Opens the shipped policy, with its own window by default. Raises a `ConfigError` if this build has no weights."""
    if not (FOLDER / "model.safetensors").is_file():
        raise ConfigError(
            f"the weights of 'nano' are not in this build of memagent (no 'model.safetensors' in {str(FOLDER)!r}): "
            f"install a release that has them, or name another model, such as 'transformers:FOLDER'"
        )
    from memagent_engines.transformers.model import TransformersModel

    return TransformersModel(FOLDER, window=window, name="nano")


def _in_process(scheme: str, name: str, window: int | None) -> ChatModel:
    # Imported here, since the engines import memagent's models: either may be imported first.
    if scheme == "nano":
        return open_nano(window)
    if scheme == "extractive":
        from memagent_engines.extractive import ExtractiveModel

        return ExtractiveModel() if window is None else ExtractiveModel(window=window)
    if scheme == "smol":
        from memagent_engines.smol import open_smol

        return open_smol(name, window)
    if scheme == "transformers":
        from memagent_engines.transformers.model import TransformersModel as Own
    elif scheme == "vllm-engine":
        from memagent_engines.vllm import VllmModel as Own
    else:
        from memagent_engines.sglang import SglangModel as Own
    return Own(name, window=window)


def _dialect(scheme: str, name: str, urls: tuple[str, ...], key: str | None) -> DialectName:
    if scheme == "vllm" or scheme == "sglang" or scheme == "ollama":
        return scheme
    if all(urlsplit(url).hostname != urlsplit(OPENAI_URL).hostname for url in urls):
        return "plain"
    if not key:
        raise AuthenticationFailed(
            f"openai:{name} at {OPENAI_URL} needs an API key; set OPENAI_API_KEY or MEMAGENT_API_KEY, or "
            f"give the base URL of another server (base_url=, MEMAGENT_BASE_URL)"
        )
    return "openai"


def _without_secrets(url: str) -> str:
    """Removes user, password and query from a server's URL."""
    return re.sub(r"^(https?://)?.*@", r"\1", url, flags=re.IGNORECASE).partition("?")[0]


def _split(spec: str | None) -> tuple[str, str]:
    """Splits a spec into scheme and name."""
    if spec is None or not spec.strip():
        raise NoModel(
            f"no model was named. Looked for: --model (model=, SPEC of `serve`), MEMAGENT_MODEL in the environment and "
            f"in {ENV_FILE} in the working directory. Give {EXAMPLES}, such as MEMAGENT_MODEL=vllm:NAME"
        )
    spec = spec.strip()
    scheme, colon, name = spec.partition(":")
    if scheme == "smol":
        return scheme, name.strip()
    if scheme in ALONE:
        if name:
            raise ConfigError(f"the model {spec!r} takes no name; give {scheme!r}")
        return scheme, ""
    if scheme not in SCHEMES:
        schemes = [s for s in SCHEMES if s not in ALONE]
        if close := nearest(scheme.lower(), schemes if colon else [*ALONE, "smol"]):
            hint = repr(f"{close}:{name}" if colon else close)
        else:  # names on the hub have a slash, Ollama's a colon
            hint = repr(f"{'vllm' if '/' in spec else 'ollama' if colon else 'openai'}:{spec}")
        raise ConfigError(
            f"the model {spec!r} does not say where it runs; did you mean {hint}? Give {EXAMPLES}"
        )
    if not name.strip():
        raise ConfigError(
            f"the model {spec!r} has no name after the colon; give the folder of its weights, or the name under "
            f"which the server serves it, such as 'vllm:Qwen/Qwen3-4B'"
        )
    return scheme, name.strip()


def urls_of(base_url: str | Sequence[str]) -> tuple[str, ...]:
    """Lists the servers in a setting: a list, or comma-separated text (a comma inside a URL is kept)."""
    if not isinstance(base_url, str):
        urls: tuple[Any, ...] = tuple(base_url if hasattr(base_url, "__iter__") else [base_url])
        if not all(isinstance(url, str) for url in urls):
            raise ConfigError(f"base_url={base_url!r:.80} must be a URL or a list of URLs")
        return urls
    separator = r"\s*,\s*(?=https?://|,)|\s+(?=https?://)"
    parts = re.split(separator, base_url.strip(), flags=re.IGNORECASE)
    return tuple(url.rstrip(", ") for url in parts)


def _refuse(reason: str, options: Mapping[str, object]) -> None:
    names = [f"{name}=" for name, value in options.items() if value is not None]
    if names:
        raise ConfigError(f"{reason}, so {', '.join(names)} has no effect; leave it out")


@dataclass(frozen=True)
class _Setting:
    """A variable that is set, in the environment or in `.env`."""

    name: str
    value: str = field(repr=False)
    from_file: bool = False
    """Whether it is from `.env`, whose author may be whoever made the working directory."""


def look(*names: str) -> list[_Setting]:
    """Looks up settings by name in the environment, then in `.env`."""
    from dotenv import dotenv_values  # here, so that `import memagent` stays light

    try:
        file = dotenv_values(ENV_FILE, encoding="utf-8-sig", interpolate=False)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{ENV_FILE} in the working directory cannot be read ({error}); make it readable UTF-8, or remove it"
        ) from error
    for name in names:
        if "${" in (file.get(name) or ""):
            # Expanded, it could send a secret of the environment to the file's own URL.
            if not os.environ.get(name):
                raise ConfigError(f"{name} in {ENV_FILE} has ${{…}}: write the value itself there")
            del file[name]
    sources = {False: os.environ, True: file}
    return [
        _Setting(name, value, from_file=from_file)
        for from_file, source in sources.items()
        for name in names
        if (value := source.get(name))
    ]


def _find(settings: Sequence[_Setting], *names: str) -> Iterator[_Setting]:
    """Yields the settings of these names, in that order; for each name the environment comes first."""
    return (setting for name in names for setting in settings if setting.name == name)


def _key(
    scheme: str, url: _Setting | None, options: Mapping[str, Any], settings: Sequence[_Setting]
) -> str | None:
    """Returns the first key that may be sent to `url` (None: the scheme's default); None if none may."""
    file_url = url if url is not None and url.from_file else None
    urls = ", ".join(repr(_without_secrets(u)) for u in urls_of(file_url.value if file_url else ""))
    names = map(str, getattr(options["headers"], "keys", tuple)())  # headers may be anything here
    secret = [f"the header {name!r}" for name in names if _SECRET.search(name)]
    secret += ["api_key="] * bool(options["api_key"])
    if file_url is not None and secret:
        raise ConfigError(
            f"{' and '.join(secret)} would be sent to {urls}, which only {ENV_FILE} in the working directory names; "
            f"give the URL as base_url=, or set {file_url.name} in the environment"
        )
    if options["api_key"] is not None:
        return options["api_key"]
    for key in _find(settings, *KEYS):
        if file_url is not None and not key.from_file:
            logger.warning(
                "%s from the environment is not sent to %s, which only %s in the working directory names: set %s in "
                "the environment too, or the key in %s",
                *(key.name, urls, ENV_FILE, file_url.name, ENV_FILE),
            )
        elif url is None and scheme in LOCAL_URLS and key.name == "OPENAI_API_KEY":
            # The key is for OpenAI or the URL set with it, not for whatever listens here.
            logger.debug("%s: OPENAI_API_KEY is not sent to localhost", scheme)
        else:
            return key.value
    return None
