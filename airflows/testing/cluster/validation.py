"""What the API server refuses, in its words: names, labels, the specs of Jobs and Services."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from airflows.testing.cluster.kinds import Kind
from airflows.testing.cluster.messages import Cause, Json, bad_value, invalid, required

_LABEL, _SUBDOMAIN = 63, 253
_DATA_BYTES = 1_048_576
_LABEL_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_SERVICE_NAME = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_VALUE = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_REGEX = "regex used for validation is"
_IN_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    f"start and end with an alphanumeric character (e.g. 'example.com', {_REGEX} '{_SUBDOMAIN_NAME}')"
)
_IN_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    f"and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', {_REGEX} '{_LABEL_NAME}')"
)
_IN_SERVICE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    f"character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', {_REGEX} "
    f"'{_SERVICE_NAME}')"
)
_IN_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', "
    f"{_REGEX} '{_VALUE}')"
)
_DIGIT_FIRST_SINCE = 36
_MOST_RULES, _MOST_INDEXES = 20, 100_000


def check(made: Json, kind: Kind, minor: int) -> None:
    """Refuse a new object that is not valid.

    Raises:
        ApiError: 422 with each cause.
    """
    name = str(made["metadata"].get("name", ""))
    causes = [*_name(name, kind, minor), *labels(made["metadata"].get("labels"), "metadata.labels")]
    if kind.kind == "Job":
        causes += _job(made)
    elif kind.kind in ("ConfigMap", "Secret"):
        causes += _data(made)
    elif kind.kind == "Service" and not made["spec"].get("ports") and made["spec"]["clusterIP"] != "None":
        causes.append(required("spec.ports"))
    if causes:
        raise invalid(kind.kind, kind.group, name, causes)


def labels(given: Mapping[str, Any] | None, field: str) -> list[Cause]:
    """Return what is wrong with labels."""
    causes: list[Cause] = []
    for value in (given or {}).values():
        if not isinstance(value, str):
            causes.append(bad_value(field, value, "must be a string"))
            continue
        if len(value) > _LABEL:
            causes.append(bad_value(field, value, f"must be no more than {_LABEL} bytes"))
        if not re.fullmatch(_VALUE, value):
            causes.append(bad_value(field, value, _IN_VALUE))
    return causes


def _name(name: str, kind: Kind, minor: int) -> Iterable[Cause]:
    if not name:
        return [required("metadata.name", "name or generateName is required")]
    if kind.kind == "Service":
        form, words = (
            (_LABEL_NAME, _IN_LABEL) if minor >= _DIGIT_FIRST_SINCE else (_SERVICE_NAME, _IN_SERVICE)
        )
        return _dns("metadata.name", name, form, words, _LABEL)
    if kind.kind == "Namespace":
        return _dns("metadata.name", name, _LABEL_NAME, _IN_LABEL, _LABEL)
    return _dns("metadata.name", name, _SUBDOMAIN_NAME, _IN_SUBDOMAIN, _SUBDOMAIN)


def _dns(field: str, name: str, form: str, words: str, most: int) -> list[Cause]:
    causes = []
    if len(name) > most:
        causes.append(bad_value(field, name, f"must be no more than {most} characters"))
    if not re.fullmatch(form, name):
        causes.append(bad_value(field, name, words))
    return causes


def _data(made: Json) -> list[Cause]:
    sizes = [len(value) for value in (made.get("data") or {}).values()]
    # Base64 adds a third.
    sizes += [len(value) * 3 // 4 for value in (made.get("binaryData") or {}).values()]
    if sum(sizes) <= _DATA_BYTES:
        return []
    return [Cause("", f"Too long: may not be more than {_DATA_BYTES} bytes", "FieldValueTooLong")]


def _job(made: Json) -> list[Cause]:
    spec = made["spec"]
    template = spec["template"]
    pod = template["spec"]
    # The labels that the server adds are the name's own; it says so twice when the name is too long.
    causes = labels((template.get("metadata") or {}).get("labels"), "spec.template.labels")
    if pod.get("subdomain"):
        causes += _dns("spec.template.spec.subdomain", pod["subdomain"], _LABEL_NAME, _IN_LABEL, _LABEL)
    causes += _numbers(spec)
    causes += _containers(pod)
    if pod["restartPolicy"] not in ("Never", "OnFailure"):
        known = '"Never", "OnFailure"'
        causes.append(
            Cause(
                "spec.template.spec.restartPolicy",
                f'Unsupported value: "{pod["restartPolicy"]}": supported values: {known}',
                "FieldValueNotSupported",
            )
        )
    if spec["completionMode"] == "Indexed":
        causes += _indexed(made["metadata"].get("name", ""), spec)
    if spec.get("podFailurePolicy"):
        causes += _policy(spec)
    return causes


def _numbers(spec: Json) -> list[Cause]:
    fields = (
        "completions",
        "parallelism",
        "backoffLimit",
        "activeDeadlineSeconds",
        "ttlSecondsAfterFinished",
    )
    return [
        bad_value(f"spec.{name}", spec[name], "must be greater than or equal to 0")
        for name in fields
        if isinstance(spec.get(name), int) and spec[name] < 0
    ]


def _containers(pod: Json) -> list[Cause]:
    if not pod.get("containers"):
        return [required("spec.template.spec.containers")]
    causes = []
    mounts = {volume.get("name") for volume in pod.get("volumes") or ()}
    for part in ("initContainers", "containers"):
        for index, container in enumerate(pod.get(part) or ()):
            at = f"spec.template.spec.{part}[{index}]"
            causes += [required(f"{at}.{name}") for name in ("name", "image") if not container.get(name)]
            causes += [
                Cause(
                    f"{at}.volumeMounts[{number}].name",
                    f'Not found: "{mount.get("name")}"',
                    "FieldValueNotFound",
                )
                for number, mount in enumerate(container.get("volumeMounts") or ())
                if mount.get("name") not in mounts
            ]
    return causes


def _indexed(name: str, spec: Json) -> list[Cause]:
    completions = spec.get("completions")
    if completions is None:
        return [required("spec.completions", "when completion mode is Indexed")]
    causes = []
    if spec["parallelism"] > _MOST_INDEXES:
        words = f"must be less than or equal to {_MOST_INDEXES} when completion mode is Indexed"
        causes.append(bad_value("spec.parallelism", spec["parallelism"], words))
    host = f"{name}-{completions - 1}"
    if completions > 0 and (len(host) > _LABEL or not re.fullmatch(_LABEL_NAME, host)):
        words = f"will not able to create pod with invalid DNS label: {host}"
        causes.append(bad_value("metadata.name", name, words))
    return causes


def _policy(spec: Json) -> list[Cause]:
    causes = []
    at = "spec.podFailurePolicy.rules"
    rules = spec["podFailurePolicy"].get("rules") or ()
    restarts = spec["template"]["spec"]["restartPolicy"]
    if restarts != "Never":
        words = 'only "Never" is supported when podFailurePolicy is specified'
        causes.append(bad_value("spec.template.spec.restartPolicy", restarts, words))
    if spec.get("podReplacementPolicy") not in (None, "Failed"):
        known = f'Unsupported value: "{spec["podReplacementPolicy"]}": supported values: "Failed"'
        causes.append(Cause("spec.podReplacementPolicy", known, "FieldValueNotSupported"))
    if len(rules) > _MOST_RULES:
        causes.append(
            Cause(at, f"Too many: {len(rules)}: must have at most {_MOST_RULES} items", "FieldValueTooMany")
        )
    names = {
        container.get("name")
        for part in ("initContainers", "containers")
        for container in spec["template"]["spec"].get(part) or ()
    }
    for index, rule in enumerate(rules):
        causes += _rule(rule, f"{at}[{index}]", names, per_index="backoffLimitPerIndex" in spec)
    return causes


def _rule(rule: Json, at: str, names: set[Any], *, per_index: bool) -> list[Cause]:
    causes: list[Cause] = []
    has = ("onExitCodes" in rule, "onPodConditions" in rule)
    if all(has):
        words = "specifying both OnExitCodes and OnPodConditions is not supported"
        return [Cause(at, f"Invalid value: {words}")]
    if not any(has):
        return [Cause(at, "Invalid value: specifying one of OnExitCodes and OnPodConditions is required")]
    known = ("Count", "FailIndex", "FailJob", "Ignore")
    if rule.get("action") not in known or (rule["action"] == "FailIndex" and not per_index):
        listed = ", ".join(f'"{word}"' for word in known)
        words = f'Unsupported value: "{rule.get("action", "")}": supported values: {listed}'
        causes.append(Cause(f"{at}.action", words, "FieldValueNotSupported"))
    if has[0]:
        causes += _exit_codes(rule["onExitCodes"], f"{at}.onExitCodes", names)
    return causes


def _exit_codes(codes: Json, at: str, names: set[Any]) -> list[Cause]:
    causes: list[Cause] = []
    name = codes.get("containerName")
    if name is not None and name not in names:
        words = "must be one of the container or initContainer names in the pod template"
        causes.append(bad_value(f"{at}.containerName", name, words))
    values = codes.get("values") or []
    if not values:
        causes.append(bad_value(f"{at}.values", values, "at least one value is required"))
    for index, value in enumerate(values):
        if value == 0 and codes.get("operator") == "In":
            causes.append(bad_value(f"{at}.values[{index}]", 0, "must not be 0 for the In operator"))
        if values.count(value) > 1 and values.index(value) != index:
            causes.append(Cause(f"{at}.values[{index}]", f"Duplicate value: {value}", "FieldValueDuplicate"))
    if values != sorted(values):
        causes.append(bad_value(f"{at}.values", values, "must be ordered"))
    return causes
