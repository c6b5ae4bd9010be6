"""Entry point of `python -m services.lab.mesos`, the same as `minicluster`."""

from services.lab.mesos.command import minicluster

if __name__ == "__main__":
    minicluster(prog_name="minicluster")
