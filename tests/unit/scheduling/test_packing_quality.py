"""The number of hosts that packing uses, compared with an exact solver and with best fit decreasing pod by pod."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest

from peloton.model.ids import Hostname
from peloton.model.pod import PodShape
from peloton.model.resources import Resources
from peloton.scheduling.bin_packing import PodRequest, pack_requests
from peloton.scheduling.fleet import Fleet
from peloton.scheduling.rows import HostRow
from tests.bench.placement import Oracle, batch, hosts
from tests.nightly import nightly
from tests.unit.scheduling.exact_packing import fewest_hosts

pytestmark = pytest.mark.slow

SIZES = [Resources.of(32, 128_000), Resources.of(64, 256_000), Resources.of(48, 384_000)]
CASES = 100


def fleet_of(totals: list[Resources]) -> Fleet:
    return Fleet(HostRow(Hostname(f"h{at}"), total, total, 0, 0, 100, (), at) for at, total in enumerate(totals))


def small_case(random: Random, is_mixed: bool) -> tuple[list[Resources], list[tuple[Resources, int]]]:
    totals = sorted((random.choice(SIZES) if is_mixed else SIZES[0] for _ in range(12)), key=tuple)
    shapes = {
        Resources.of(random.choice([1, 2, 4, 8, 12, 16]), random.choice([2, 4, 8, 16, 32, 48, 64]) * 1_000)
        for _ in range(random.randint(2, 6))
    }
    return totals, [(shape, random.randint(1, 9)) for shape in sorted(shapes, key=tuple)]


@pytest.mark.parametrize("is_mixed", [nightly(False), True])
def test_small_placements_are_within_a_hundredth_of_the_best(is_mixed: bool) -> None:
    """Packing of many small cases, of one size of hosts and of three, is within a hundredth of the optimum."""
    random, used, best = Random(2), 0, 0
    for _ in range(CASES):
        totals, wanted = small_case(random, is_mixed)
        fleet = fleet_of(totals)
        chosen = pack_requests(fleet, [PodRequest(PodShape(resources), (), count) for resources, count in wanted])
        if [len(rows) for rows in chosen] == [count for _, count in wanted]:  # else they need more hosts
            used += len(np.unique(np.concatenate(chosen)))
            best += fewest_hosts(totals, wanted)

    assert best >= 2 * CASES
    assert used <= 1.01 * best


def test_batches_are_within_a_fiftieth_of_best_fit_decreasing() -> None:
    """Mixed pods, a third of them with constraints, onto mixed hosts, batch after batch."""
    random = Random(3)
    rows = hosts(random, 600, in_use=0)
    fleet, oracle = Fleet(rows), Oracle(rows)
    while np.count_nonzero(fleet.is_used) < 400:
        requests = batch(random)
        pack_requests(fleet, requests)
        oracle.put(requests)

    assert np.count_nonzero(fleet.is_used) <= 1.02 * oracle.used_count


def test_the_second_pass_moves_no_pod_to_a_host_that_does_not_take_it() -> None:
    """A host never has more pods than its resources allow, whatever the second pass tries."""
    random = Random(4)
    for _ in range(50):
        totals, wanted = small_case(random, is_mixed=True)
        chosen = pack_requests(
            fleet_of(totals), [PodRequest(PodShape(resources), (), count) for resources, count in wanted]
        )
        taken: dict[int, Resources] = {}
        for (resources, _), rows in zip(wanted, chosen, strict=True):
            for row, count in Counter(rows.tolist()).items():
                taken[row] = taken.get(row, Resources()) + resources * count
        assert all(amounts.fits_in(totals[row]) for row, amounts in taken.items())
