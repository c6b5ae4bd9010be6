"""Activities of rebalancing, carried out by the host manager of the cluster; storage holds their results."""

from __future__ import annotations

from temporalio import activity

from activities.definition import define_activity
from peloton.errors import Aborted, NotFound
from peloton.model.rebalance import RebalanceAct, RebalanceProgress
from peloton.ports import ClusterRebalancers, RebalanceRecords


class RebalanceActivities:
    def __init__(self, rebalancers: ClusterRebalancers, records: RebalanceRecords) -> None:
        self._rebalancers = rebalancers
        self._records = records

    @define_activity("advance_rebalance")
    def advance(self, cluster: str) -> RebalanceProgress:
        """Take one step. A cluster without rows of rebalancing is not rebalanced."""
        self._rebalancers.controller(cluster).advance_rebalance()
        found = self._records.get(cluster)
        return found.progress if found is not None else RebalanceProgress()

    @define_activity("stop_rebalance")
    def stop(self, cluster: str) -> None:
        try:
            self._records.steer([cluster], RebalanceAct.STOP)
        except (Aborted, NotFound) as refusal:
            activity.logger.info("rebalancing not stopped: %s", refusal)
