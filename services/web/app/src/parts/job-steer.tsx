// Buttons that stop and restart an active job, and run an ended one again.
import { call } from "../api";
import { called, count } from "../format";
import { ENDED, type Row, TASK_MANAGER } from "../jobs";
import { Confirm } from "./confirm";

export function JobSteer({ row }: { row: Row }) {
  const id = row.id.value;
  const name = called(row.name, id);
  const all = count(row.instanceCount ?? 0, "instance");
  const act = (method: string) => () => call(TASK_MANAGER, method, { jobId: row.id });
  if (row.type === "EXTERNAL") return null; // only its owner can steer it
  if (!ENDED.includes(row.state ?? "")) {
    return (
      <p class="buttons">
        <Confirm key="stop" label="Stop job" weight="danger" title={`Stop ${name}?`} act={act("Stop")}>
          <p>All of its {all} are stopped, and run again only when they are started.</p>
        </Confirm>
        <Confirm key="restart" label="Restart job" title={`Restart ${name}?`} act={act("Restart")}>
          <p>All of its {all} are stopped at once and run again. {row.type === "SERVICE" && <><a href={`/services/${id}`}>The page of the service</a> restarts it in batches.</>}</p>
        </Confirm>
      </p>
    );
  }
  return (
    <p class="buttons">
      {canStartAgain(row) ? (
        <Confirm key="start" label="Start job" weight="primary" title={`Start ${name}?`} act={act("Start")}><p>All of its {all} run again, with the configuration that they had.</p></Confirm>
      ) : (
        <a class="button primary" href={submitHref(row)}>Run again</a>
      )}
    </p>
  );
}

// An ended batch job cannot be started: its file is submitted as a new job.
export function canStartAgain(row: Row): boolean {
  return row.type === "SERVICE" || row.type === "DAEMON";
}

export function submitHref(row: Row): string {
  return `/submit?kind=${row.type === "SERVICE" ? "service" : "job"}&from=${row.id.value}&pool=${encodeURIComponent(row.poolPath ?? "")}`;
}
