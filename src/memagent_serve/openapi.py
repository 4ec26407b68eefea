"""Description of the endpoint as OpenAPI (`/openapi.json`)."""

from typing import Any

import memagent

_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "integer", "null"]},
            },
        }
    },
}
_MODEL: dict[str, Any] = {
    "type": "object",
    "required": ["id", "object"],
    "properties": {"id": {"type": "string"}, "object": {"const": "model"}},
}


def _json(schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


_FAILURE = _json(_ERROR, "Why there is no answer.")
_ANSWER: dict[str, Any] = {
    "description": "The engine's answer, or that of a reading. With `stream` it is an event stream.",
    "content": {
        "application/json": {"schema": {"type": "object"}},
        "text/event-stream": {"schema": {"type": "string"}},
    },
}


def _post(description: str, required: list[str], fields: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "required": required, "properties": fields}
    return {
        "post": {
            "summary": description,
            "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
            "responses": {"200": _ANSWER, "default": _FAILURE},
        }
    }


def _get(description: str, schema: dict[str, Any], *parameters: dict[str, Any]) -> dict[str, Any]:
    responses = {"200": _json(schema, description), "default": _FAILURE}
    return {"get": {"summary": description, "parameters": list(parameters), "responses": responses}}


_MESSAGES: dict[str, Any] = {"type": "array", "minItems": 1, "items": {"type": "object"}}
_ITEMS: dict[str, Any] = {
    "model": {"type": ["string", "null"]},
    "input": {"oneOf": [{"type": "string"}, _MESSAGES]},
    "instructions": {"type": ["string", "null"]},
    "stream": {"type": ["boolean", "null"]},
    "max_output_tokens": {"type": ["integer", "null"]},
}
_NAME: dict[str, Any] = {
    "name": "name",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
}
_LIST: dict[str, Any] = {
    "type": "object",
    "required": ["object", "data"],
    "properties": {"object": {"const": "list"}, "data": {"type": "array", "items": _MODEL}},
}

DESCRIPTION: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "memagent", "version": memagent.__version__},
    "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    "security": [{"key": []}],
    "paths": {
        "/health": {
            "get": {**_get("Whether the endpoint runs.", {"type": "object"})["get"], "security": []}
        },
        "/v1/models": _get("The model.", _LIST),
        "/v1/models/{name}": _get("The model.", _MODEL, _NAME),
        "/v1/chat/completions": _post(
            "Answers a conversation of any length.",
            ["messages"],
            {
                "model": {"type": ["string", "null"]},
                "messages": _MESSAGES,
                "stream": {"type": ["boolean", "null"]},
                "max_tokens": {"type": ["integer", "null"]},
                "temperature": {"type": ["number", "null"]},
                "seed": {"type": ["integer", "null"]},
                "tools": {"type": ["array", "null"], "items": {"type": "object"}},
            },
        ),
        "/v1/responses": _post("Answers items of any length.", ["input"], _ITEMS),
        "/v1/responses/compact": _post("Shortens a conversation to one item.", ["input"], _ITEMS),
    },
}
