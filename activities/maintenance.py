"""Activities of a host's maintenance. The host manager carries out each, and returns the host's state after it."""

from __future__ import annotations

from activities.definition import define_activity
from peloton.errors import Aborted, NotFound
from peloton.model.maintenance import HostMaintenance, MaintenanceAct, make_in_service
from peloton.ports import MaintenanceControllers, MaintenanceRecords


class MaintenanceActivities:
    def __init__(self, controllers: MaintenanceControllers, records: MaintenanceRecords) -> None:
        self._controllers = controllers
        self._records = records

    @define_activity("look_at_host")
    def read(self, cluster: str, hostname: str) -> HostMaintenance:
        """Return the state of the host."""
        return self._records.get(cluster, hostname) or make_in_service(cluster, hostname)

    @define_activity("cordon_host")
    def cordon(self, cluster: str, hostname: str) -> HostMaintenance:
        return self._controllers.controller(cluster).cordon(hostname) or self.read(cluster, hostname)

    @define_activity("drain_host")
    def drain(self, cluster: str, hostname: str) -> HostMaintenance:
        return self._controllers.controller(cluster).drain(hostname) or self.read(cluster, hostname)

    @define_activity("take_host_down")
    def take_down(self, cluster: str, hostname: str) -> HostMaintenance:
        return self._controllers.controller(cluster).take_down(hostname) or self.read(cluster, hostname)

    @define_activity("relabel_host")
    def relabel(self, cluster: str, hostname: str) -> HostMaintenance:
        return self._controllers.controller(cluster).relabel(hostname) or self.read(cluster, hostname)

    @define_activity("bring_host_up")
    def bring_up(self, cluster: str, hostname: str) -> HostMaintenance:
        return self._controllers.controller(cluster).bring_up(hostname) or self.read(cluster, hostname)

    @define_activity("cancel_maintenance")
    def cancel(self, cluster: str, hostname: str) -> str:
        """Cancel the maintenance. Return the reason of a refusal, or an empty text."""
        try:
            self._controllers.controller(cluster).steer(hostname, MaintenanceAct.CANCEL)
        except (Aborted, NotFound) as refusal:
            return refusal.message
        return ""

    @define_activity("steer_maintenance", is_request=True)
    def steer(self, cluster: str, hostname: str, act: MaintenanceAct) -> HostMaintenance:
        """Complete, cancel or force the maintenance, as the API does."""
        self._controllers.controller(cluster).steer(hostname, act)
        return self.read(cluster, hostname)
