// What can be done to a whole job: stopped and restarted while it is active, and run again once it has ended.
import { call } from "../api";
import { called, count } from "../format";
import { ENDED, type Row, TASK_MANAGER } from "../jobs";
import { Confirm } from "./confirm";

export function JobSteer({ row }: { row: Row }) {
  const id = row.id.value;
  const name = called(row.name, id);
  const all = count(row.instanceCount ?? 0, "instance");
  const act = (method: string) => () => call(TASK_MANAGER, method, { jobId: row.id });
  if (row.type === "EXTERNAL") return null; // its owner's
  if (!ENDED.includes(row.state ?? "")) {
    return (
      <p class="buttons">
        <Confirm key="stop" label="Stop job" weight="danger" title={`Stop ${name}?`} act={act("Stop")}>
          <p>All of its {all} are stopped, and do not run again by themselves.</p>
        </Confirm>
        <Confirm key="restart" label="Restart job" title={`Restart ${name}?`} act={act("Restart")}>
          <p>All of its {all} are stopped at once and run anew. {row.type === "SERVICE" && <><a href={`/services/${id}`}>Its own page</a> restarts a service in batches.</>}</p>
        </Confirm>
      </p>
    );
  }
  return (
    <p class="buttons">
      {runsForGood(row) ? (
        <Confirm key="start" label="Start job" weight="primary" title={`Start ${name}?`} act={act("Start")}><p>All of its {all} run again, with the configuration that they had.</p></Confirm>
      ) : (
        <a class="button primary" href={submitHref(row)}>Run again</a>
      )}
    </p>
  );
}

// A batch job that has ended stays so: what runs again is another job of the same file.
export function runsForGood(row: Row): boolean {
  return row.type === "SERVICE" || row.type === "DAEMON";
}

export function submitHref(row: Row): string {
  return `/submit?kind=${row.type === "SERVICE" ? "service" : "job"}&from=${row.id.value}&pool=${encodeURIComponent(row.poolPath ?? "")}`;
}
