"""Numbers of gpus that pods on emulated hosts get."""

from __future__ import annotations

from services.lab.shared.gpus import Gpus


def test_pods_of_a_host_share_no_gpu() -> None:
    """A pod has the lowest free numbers, and the same ones whenever it asks; they are free when it ends."""
    gpus = Gpus()
    first, second = gpus.grant("a", "one", 2), gpus.grant("a", "two", 1)
    elsewhere, none = gpus.grant("b", "three", 1), gpus.grant("a", "four", 0)
    again = gpus.grant("a", "one", 2)
    gpus.give_back("a", "one")
    gpus.give_back("a", "unknown")
    later = gpus.grant("a", "five", 3)

    name = "CUDA_VISIBLE_DEVICES"
    assert ({name: "0,1"}, {name: "2"}, {name: "0"}, {}) == (first, second, elsewhere, none)
    assert (first, {name: "0,1,3"}) == (again, later)
