"""The Kubernetes backend: one attempt is one Indexed Job. lightkube is imported in `client`, late."""

from airflows.backends.kubernetes.backend import KubernetesBackend
from airflows.backends.kubernetes.settings import KubernetesSettings

__all__ = ["KubernetesBackend", "KubernetesSettings"]
