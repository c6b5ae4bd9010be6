"""`python -m services.emulated_kubernetes`."""

from services.emulated_kubernetes.command import emulated_kubernetes

if __name__ == "__main__":
    emulated_kubernetes(prog_name="emulated-kubernetes")
