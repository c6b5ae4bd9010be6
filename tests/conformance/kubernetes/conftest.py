"""A real Kubernetes, shared by all tests of this folder."""

from tests.kubernetes.fixtures import control_plane, kubernetes, kubernetes_login

__all__ = ["control_plane", "kubernetes", "kubernetes_login"]
