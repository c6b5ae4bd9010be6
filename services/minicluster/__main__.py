"""Entry point of `python -m services.minicluster`, the same as `minicluster`."""

from services.minicluster.command import minicluster

if __name__ == "__main__":
    minicluster(prog_name="minicluster")
