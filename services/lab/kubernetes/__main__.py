"""`python -m services.lab.kubernetes`."""

from services.lab.kubernetes.command import emulated_kubernetes

if __name__ == "__main__":
    emulated_kubernetes(prog_name="emulated-kubernetes")
