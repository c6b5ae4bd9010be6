"""The smallest number of hosts on which pods fit, by an exact solver (HiGHS): for small cases only."""

from __future__ import annotations

from collections.abc import Sequence

import highspy

from peloton.model.resources import Resources


def fewest_hosts(hosts: Sequence[Resources], wanted: Sequence[tuple[Resources, int]]) -> int:
    """Return the smallest number of the empty hosts that fits the given count of pods of each shape."""
    model = highspy.Highs()  # type: ignore[no-untyped-call]
    model.setOptionValue("output_flag", False)
    used = [model.addBinary(obj=1.0) for _ in hosts]
    laid = [[model.addIntegral(lb=0, ub=count) for _, count in wanted] for _ in hosts]
    for at, (_, count) in enumerate(wanted):
        model.addConstr(sum(on_host[at] for on_host in laid) == count)
    for host, is_used, on_host in zip(hosts, used, laid, strict=True):
        for kind, have in enumerate(host):
            needs = [tuple(need)[kind] for need, _ in wanted]
            model.addConstr(sum(n * pods for n, pods in zip(needs, on_host, strict=True)) <= have * is_used)
    for (one, its_use), (other, other_use) in zip(
        zip(hosts, used, strict=True), list(zip(hosts, used, strict=True))[1:], strict=False
    ):
        if one == other:  # like hosts are used in their order
            model.addConstr(other_use <= its_use)
    model.minimize()
    assert model.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return round(model.getInfo().objective_function_value)
