// The latest update of a service: how far it is, what it waits for, and how to steer it.
import { count } from "../format";
import { batchOf, isRolling, lasted, steer, type Data, versionOf, word } from "../service";
import { Bar } from "./bar";
import { Confirm } from "./confirm";
import { State } from "./state";

function sentence(name: string): string {
  return name.slice(0, 1) + name.slice(1).toLowerCase();
}

export function Rollout({ id, data }: { id: string; data: Data }) {
  const { status } = data.job.jobInfo;
  const update = status.workflowStatus;
  const state = word(update?.state, "WORKFLOW_STATE_");
  if (!update || !state || state === "INVALID") return null;
  const { numInstancesCompleted: done = 0, numInstancesFailed: failed = 0, numInstancesRemaining: rest = 0, numRunsFailed: failedRuns = 0 } = update;
  const current = update.instancesCurrent?.length ?? 0;
  const total = done + failed + rest;
  const batch = batchOf(data);
  const batches = batch ? `, batches of ${count(batch)}: ${Math.ceil((done + failed) / batch)} of ${Math.ceil(total / batch)} done` : ", all at once";
  const runs = failedRuns ? `, ${count(failedRuns, "run")} failed` : "";
  const version = status.version?.value;
  const isOver = !isRolling(data);
  return (
    <section aria-label="Rollout">
      <h2>{sentence(word(update.type, "WORKFLOW_TYPE_") || "CHANGE")} to version {versionOf(update.version?.value)}</h2>
      <p class="facts"><State state={state} /> <span>{isOver ? "took" : "for"} {lasted(update)}</span></p>
      <Bar
        label="Rollout" whole={Math.max(total, 1)}
        text={`${count(done)} of ${count(total)} done, ${count(failed)} failed, ${count(current)} in flight${runs}${batches}`}
        parts={[
          { name: "done", value: done, tone: "use" },
          { name: "failed", value: failed, tone: "slack" },
          { name: "in flight", value: current, tone: "demand" },
        ]}
      />
      {update.stallCause && <p class="lines">Stalled: {update.stallCause}</p>}
      {data.aurora && <p>{data.aurora}</p>}
      {update.waitingFor && <p>Waits for {update.waitingFor}.</p>}
      {!isOver && (
        <p class="buttons">
          {state === "PAUSED" ? (
            <Confirm key="Resume" label="Resume" weight="primary" title="Resume the rollout?" act={() => steer(id, "Resume", version)}><p>The next batches begin.</p></Confirm>
          ) : (
            <Confirm key="Pause" label="Pause" weight="primary" title="Pause the rollout?" act={() => steer(id, "Pause", version)}><p>Instances in flight finish, no others begin.</p></Confirm>
          )}
          <Confirm label="Abort" weight="danger" title="Abort the rollout?" act={() => steer(id, "Abort", version)}><p>Instances stay at the versions that they have.</p></Confirm>
        </p>
      )}
    </section>
  );
}
