"""The ports of the updates of services on a ``Cluster``, and of lock-downs."""

from __future__ import annotations

from peloton.errors import Aborted, InvalidArgument
from peloton.lifecycle import rollout
from peloton.model.ids import EntityVersion, Hostname, JobId, RespoolId
from peloton.model.job import JobRecord, JobState, JobType, SlaSpec
from peloton.model.update import UpdateAct, UpdateKey, UpdateProgress, UpdateRecord
from tests.workflow.cluster import Cluster
from tests.workflow.port import Port, call
from tests.workflow.rolled import RolledService

STEERS = {UpdateAct.PAUSE: rollout.pause, UpdateAct.RESUME: rollout.resume, UpdateAct.ABORT: rollout.abort}


class FakeUpdates(Port):
    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.rolled_back: set[str] = set()  # keys of rollbacks

    def get(self, update_id: str) -> UpdateRecord | None:
        updates = [rolled.update for rolled in self.cluster.rolled.values()]
        return next((update for update in updates if update is not None and update.update_id == update_id), None)

    @call
    def advance(self, job_id: JobId, now_ns: int) -> UpdateProgress:
        return self.cluster.rolled[job_id].advance(now_ns)

    @call
    def roll_back_failed(self, job_id: JobId, now_ns: int) -> None:
        self.cluster.rolled[job_id].roll_back_failed(now_ns)

    @call
    def images_to_prefetch(self, job_id: JobId) -> dict[str, list[Hostname]]:
        return self.cluster.rolled[job_id].coming_images()

    @call
    def abort_active(self, job_id: JobId, now_ns: int) -> None:
        rolled = self.cluster.rolled.get(job_id)
        if rolled is not None and rolled.update is not None and rolled.update.is_active:
            rolled.steer(rollout.abort)

    @call
    def steer(
        self,
        job_id: JobId,
        version: EntityVersion | None,
        act: UpdateAct,
        opaque: str | None,
        now_ns: int,
        update_id: str = "",
    ) -> JobRecord:
        rolled, update = self._latest(job_id)
        if update_id and update_id != update.update_id:
            raise Aborted(rollout.not_latest_text(update_id, job_id, update.update_id))
        rolled.steer(STEERS[act])
        return self._job(rolled)

    @call
    def pulse(self, job_id: JobId, key_text: str, now_ns: int) -> tuple[JobRecord, UpdateRecord]:
        rolled, update = self._latest(job_id)
        if not update.spec.pulse_s:
            raise InvalidArgument(rollout.no_pulse_text(job_id))
        rolled.pulse(now_ns)
        return self._job(rolled), self._latest(job_id)[1]

    @call
    def roll_back(self, update_id: str, key: UpdateKey, now_ns: int) -> JobRecord:
        (rolled,) = self.cluster.rolled.values()
        if key.text not in self.rolled_back:
            if (update := self._latest(rolled.job_id)[1]).update_id != update_id:
                raise InvalidArgument(rollout.not_latest_text(update_id, rolled.job_id, update.update_id))
            self.rolled_back.add(key.text)
            rolled.roll_out(update.spec.batch_size)
        return self._job(rolled)

    def _latest(self, job_id: JobId) -> tuple[RolledService, UpdateRecord]:
        rolled = self.cluster.rolled[job_id]
        assert rolled.update is not None
        return rolled, rolled.update

    def _job(self, rolled: RolledService) -> JobRecord:
        _, update = self._latest(rolled.job_id)
        return JobRecord(
            rolled.job_id,
            "web",
            JobType.SERVICE,
            "team",
            RespoolId("pool"),
            len(rolled.pods),
            SlaSpec(),
            JobState.RUNNING,
            JobState.RUNNING,
            config_version=update.config_version,
            workflow_version=rolled.acts,
            update_id=update.update_id,
        )


class FakeLockdowns(Port):
    def refusal(self, kind: str) -> str:
        assert kind == "Write"
        return self.cluster.locked
