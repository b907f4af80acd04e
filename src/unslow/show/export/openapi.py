"""An OpenAPI 3.1 document made from operations and the structs they take and give."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

JSON = "application/json"


class Parameter(NamedTuple):
    """A parameter of a path (`required`) or query."""

    name: str
    place: str
    text: str
    schema: dict[str, Any]

    @property
    def required(self) -> bool:
        """Parameters of a path always are."""
        return self.place == "path"


class Answer(NamedTuple):
    """An answer: a struct as JSON, or another media type (`body` None: text or nothing)."""

    status: int
    text: str
    body: type | None = None
    media: str | None = JSON


class Operation(NamedTuple):
    """One method of one path."""

    method: str
    path: str
    name: str
    text: str
    answers: Sequence[Answer]
    parameters: Sequence[Parameter] = ()
    takes: type | None = None
    open: bool = False


def document(
    operations: Iterable[Operation], *, title: str, version: str, text: str, refusal: type, cookie: str
) -> dict[str, Any]:
    """The document. Every operation also answers refusals (4xx) of the shape `refusal`."""
    listed = list(operations)
    structs = {refusal, *(a.body for o in listed for a in o.answers), *(o.takes for o in listed)} - {None}
    ordered = sorted((s for s in structs if s is not None), key=lambda s: s.__name__)
    template = "#/components/schemas/{name}"
    schemas, components = msgspec.json.schema_components(ordered, schema_hook=_anything, ref_template=template)
    refs = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in listed:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, refs, refs[refusal])
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version, "description": text},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "cookie": {"type": "apiKey", "in": "cookie", "name": cookie},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{"cookie": []}, {"bearer": []}],
    }


def _anything(kind: type) -> dict[str, Any]:
    """The schema of `object`: any JSON."""
    if kind is object:
        return {"description": "Any JSON."}  # msgspec takes an empty schema for none
    raise NotImplementedError(f"no JSON schema for {kind}")


def _operation(operation: Operation, refs: dict[type, dict[str, Any]], refusal: dict[str, Any]) -> dict[str, Any]:
    responses = {str(a.status): _answer(a, refs) for a in operation.answers}
    responses["4XX"] = {"description": "Refused.", "content": {JSON: {"schema": refusal}}}
    built: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.text,
        "responses": responses,
    }
    if operation.parameters:
        built["parameters"] = [
            {"name": p.name, "in": p.place, "required": p.required, "description": p.text, "schema": p.schema}
            for p in operation.parameters
        ]
    if operation.takes is not None:
        built["requestBody"] = {"required": True, "content": {JSON: {"schema": refs[operation.takes]}}}
    if operation.open:
        built["security"] = []
    return built


def _answer(answer: Answer, refs: dict[type, dict[str, Any]]) -> dict[str, Any]:
    if answer.media is None:
        return {"description": answer.text}
    schema = {"type": "string"} if answer.media != JSON else {"type": "object"}
    if answer.body is not None:
        schema = refs[answer.body]
    return {"description": answer.text, "content": {answer.media: {"schema": schema}}}
