"""Which fields objects have: unknown ones are refused or dropped, young ones are dropped by old servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflows.testing.cluster.messages import Json


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_METADATA = _names(
    """annotations creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generateName
    generation labels managedFields name namespace ownerReferences resourceVersion selfLink uid"""
)
_JOB_SPEC = _names(
    """activeDeadlineSeconds backoffLimit backoffLimitPerIndex completionMode completions managedBy
    manualSelector maxFailedIndexes parallelism podFailurePolicy podReplacementPolicy selector
    successPolicy suspend template ttlSecondsAfterFinished"""
)
_POD_SPEC = _names(
    """activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig dnsPolicy
    enableServiceLinks ephemeralContainers hostAliases hostIPC hostNetwork hostPID hostUsers hostname
    imagePullSecrets initContainers nodeName nodeSelector os overhead preemptionPolicy priority
    priorityClassName readinessGates resourceClaims resources restartPolicy runtimeClassName
    schedulerName schedulingGates securityContext serviceAccount serviceAccountName setHostnameAsFQDN
    shareProcessNamespace subdomain terminationGracePeriodSeconds tolerations topologySpreadConstraints
    volumes"""
)
_CONTAINER = _names(
    """args command env envFrom image imagePullPolicy lifecycle livenessProbe name ports readinessProbe
    resizePolicy resources restartPolicy restartPolicyRules securityContext startupProbe stdin
    stdinOnce terminationMessagePath terminationMessagePolicy tty volumeDevices volumeMounts workingDir"""
)
_SERVICE_SPEC = _names(
    """allocateLoadBalancerNodePorts clusterIP clusterIPs externalIPs externalName externalTrafficPolicy
    healthCheckNodePort internalTrafficPolicy ipFamilies ipFamilyPolicy loadBalancerClass
    loadBalancerIP loadBalancerSourceRanges ports publishNotReadyAddresses selector sessionAffinity
    sessionAffinityConfig trafficDistribution type"""
)
_TOP = _names("apiVersion kind metadata spec status")
_TEMPLATE: Mapping[str, Any] = {
    "": frozenset({"metadata", "spec"}),
    "metadata": {"": _METADATA},
    "spec": {"": _POD_SPEC, "containers": {"": _CONTAINER}, "initContainers": {"": _CONTAINER}},
}
_RULE = frozenset({"action", "onExitCodes", "onPodConditions"})
_SHAPES: dict[str, Mapping[str, Any]] = {
    "Job": {
        "": _TOP,
        "metadata": {"": _METADATA},
        "spec": {
            "": _JOB_SPEC,
            "template": _TEMPLATE,
            "podFailurePolicy": {"": frozenset({"rules"}), "rules": {"": _RULE}},
        },
    },
    "Pod": {"": _TOP, "metadata": {"": _METADATA}, "spec": _TEMPLATE["spec"]},
    "Service": {"": _TOP, "metadata": {"": _METADATA}, "spec": {"": _SERVICE_SPEC}},
    "ConfigMap": {
        "": frozenset({"apiVersion", "kind", "metadata", "data", "binaryData", "immutable"}),
        "metadata": {"": _METADATA},
    },
}
# Minor version in which each is on by default: https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates/
_JOB_FIELDS_SINCE = {
    "podFailurePolicy": 26,
    "podReplacementPolicy": 29,
    "backoffLimitPerIndex": 29,
    "maxFailedIndexes": 29,
    "successPolicy": 31,
    "managedBy": 32,
}


def without_unknown(body: Json, kind: str) -> tuple[Json, list[str]]:
    """Return an object without the fields that its kind does not have, and their paths."""
    shape = _SHAPES.get(kind)
    unknown: list[str] = []
    return (_known(body, shape, "", unknown) if shape else body), unknown


def without_young(spec: Json, minor: int) -> Json:
    """Return a Job's spec without the fields that a server of this version has switched off."""
    return {name: value for name, value in spec.items() if _JOB_FIELDS_SINCE.get(name, 0) <= minor}


def _known(body: Any, shape: Mapping[str, Any], path: str, unknown: list[str]) -> Any:
    if isinstance(body, list):
        return [_known(item, shape, f"{path}[{index}]", unknown) for index, item in enumerate(body)]
    if not isinstance(body, dict):
        return body
    kept: Json = {}
    for name, value in body.items():
        at = f"{path}.{name}" if path else name
        if name not in shape[""]:
            unknown.append(at)
        else:
            kept[name] = _known(value, shape[name], at, unknown) if name in shape else value
    return kept
