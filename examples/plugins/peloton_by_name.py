"""Placement: jobs with PLACEMENT_STRATEGY_DEFRAGMENT fill hosts in the order of their names."""

import numpy as np

from peloton.model.pod import Strategy
from peloton.scheduling.recipes import RECIPES, Candidates
from peloton.scheduling.tree import Ints


def fill_by_name(hosts: Candidates, count: int) -> Ints:
    equal = np.zeros(len(hosts.rows), np.int64)
    return hosts.fill_hosts(lambda wanted: hosts.first(wanted, equal, by_name=True), count)


def register() -> None:
    RECIPES[Strategy.DEFRAGMENT] = fill_by_name
