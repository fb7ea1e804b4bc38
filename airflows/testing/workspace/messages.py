"""Between HTTP and MLflow's own messages. Imports MLflow: loaded late."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from typing import Any

from airflows.testing.workspace.exchange import JSON, Answer, ApiError, Request, invalid
from airflows.testing.workspace.tracking import MlflowStore
from airflows.tracking.loading import load


class Messages:
    """Reads requests as MLflow's messages, and writes its responses."""

    def __init__(self, mlflow: MlflowStore) -> None:
        self._mlflow = mlflow

    @property
    def store(self) -> Any:
        """MLflow's SqlAlchemyStore."""
        return self._mlflow.store

    @cached_property
    def entities(self) -> Any:
        """MLflow's module of entities."""
        return load("mlflow.entities")

    @cached_property
    def _kinds(self) -> Any:
        return load("mlflow.protos.service_pb2")

    def through(self, name: str, answer: Callable[[Any, Any, Request], None]) -> Callable[[Request], Answer]:
        """Return a handler that reads a message, lets `answer` fill in the response, and writes it."""

        def handler(request: Request) -> Answer:
            with self._mlflow.lock:
                kind = getattr(self._kinds, name)
                asked, answered = kind(), kind.Response()
                _read(request, asked)
                try:
                    answer(asked, answered, request)
                except self._mlflow.exceptions.MlflowException as exc:
                    problem = json.loads(exc.serialize_as_json())
                    status = exc.get_http_status_code()
                    raise ApiError(status, problem["error_code"], problem["message"]) from None
            text: str = load("mlflow.utils.proto_json_utils").message_to_json(answered)
            return Answer(200, text.encode(), JSON)

        return handler


def _read(request: Request, message: Any) -> None:
    """Fill a message from the path, and from the query of a GET or the JSON body."""
    fields = message.DESCRIPTOR.fields_by_name
    value: dict[str, Any] = request.json()
    if request.method == "GET":
        value = {
            name: values if _is_repeated(fields[name]) else values[-1]
            for name, values in request.query.items()
            if name in fields
        }
    try:
        load("mlflow.utils.proto_json_utils").parse_dict({**value, **request.parts}, message)
    except Exception as exc:  # noqa: BLE001 - protobuf has several
        message_text = f"Could not parse request object: {exc}"
        raise invalid(message_text) from None


def _is_repeated(field: Any) -> bool:
    repeated = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if repeated is None else repeated)
