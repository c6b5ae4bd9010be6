// Buttons that stop, start and restart a whole service. Its rollout has buttons of its own.
import { useState } from "preact/hooks";
import { call } from "../api";
import { count } from "../format";
import { SERVICE, type Data, word } from "../service";
import { Confirm } from "./confirm";

export function ServiceSteer({ id, data, isRolling }: { id: string; data: Data; isRolling: boolean }) {
  const { spec, status } = data.job.jobInfo;
  const name = spec.name || id;
  const [batch, setBatch] = useState(spec.sla?.maximumUnavailableInstances || 1);
  const total = spec.instanceCount ?? 0;
  const all = count(total, "instance");
  const act = (method: string, more: object = {}) => () => call(SERVICE, method, { jobId: { value: id }, version: status.version, ...more });
  const isStopped = word(status.desiredState, "JOB_STATE_") === "KILLED";
  if (isStopped) {
    return (
      <p class="buttons">
        <Confirm key="start" label="Start service" weight="primary" title={`Start ${name}?`} act={act("StartJob")}><p>All of its {all} run again.</p></Confirm>
      </p>
    );
  }
  return (
    <p class="buttons">
      {!isRolling && (
        <Confirm key="restart" label="Restart service" title={`Restart ${name}?`} act={act("RestartJob", { restartSpec: { batchSize: batch } })}>
          <p>Its {all} are restarted in batches. The restart is an update, which can be paused and aborted.</p>
          <p>
            <label>
              At a time{" "}
              <input type="number" min={0} max={total} value={batch || ""} placeholder="all" onInput={(event) => setBatch(Math.max(0, Math.floor(Number(event.currentTarget.value))))} />
            </label>
          </p>
        </Confirm>
      )}
      <Confirm key="stop" label="Stop service" weight="danger" title={`Stop ${name}?`} act={act("StopJob")}><p>All of its {all} are stopped, whatever its SLA says, until the service is started again.</p></Confirm>
    </p>
  );
}
