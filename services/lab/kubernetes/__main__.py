"""`python -m services.lab.kubernetes`."""

from services.lab.kubernetes.command import run_emulated_kubernetes

if __name__ == "__main__":
    run_emulated_kubernetes(prog_name="emulated-kubernetes")
