// One instance: its runs with their events, and what it prints.
import { call } from "../api";
import { ENDED, TASK_MANAGER, type TaskRuntime } from "../jobs";
import { useLive } from "../live";
import { duration } from "../format";
import { Confirm } from "./confirm";
import { Log } from "./log";
import { Stale } from "./problem";
import { State } from "./state";
import { Time } from "./time";
import { Use } from "./use";

interface PodEvent {
  taskId?: { value: string };
  actualState?: string;
  timestamp?: string;
  hostname?: string;
  message?: string;
  reason?: string;
}

// ``state``: what is known of the instance before the rest is.
export function Instance({ job, instance, state, hasEnded }: { job: string; instance: number; state: string; hasEnded: boolean }) {
  const id = { value: job };
  const { value, error } = useLive<{ runtime: TaskRuntime; events: PodEvent[] }>(`instance:${job}/${instance}`);
  const runtime: TaskRuntime = value?.runtime ?? {};
  const run = runtime.mesosTaskId?.value ?? "";
  const ranges = [{ from: instance, to: instance + 1 }];
  return (
    <section aria-label={`Instance ${instance}`} aria-busy={!value && !error}>
      <h2>Instance {instance}</h2>
      <Stale error={error} />
      <p class="facts">
        <State state={runtime.state ?? state} />
        {runtime.host && <span>on <a href={`/hosts/${runtime.host}`}>{runtime.host}</a></span>}
        {runtime.startTime && <span>started <Time at={runtime.startTime} /></span>}
        {runtime.completionTime && <span>ended <Time at={runtime.completionTime} /></span>}
        {runtime.failureCount ? <span>failed {runtime.failureCount} times</span> : null}
        {(runtime.message || runtime.reason) && <span class="quiet">{runtime.message || runtime.reason}</span>}
      </p>
      {!hasEnded && (
        <p class="buttons">
          <Confirm label="Restart instance" title={`Restart instance ${instance}?`} act={() => call(TASK_MANAGER, "Restart", { jobId: id, ranges })}>
            <p>Its pod is stopped, and another run begins.</p>
          </Confirm>
          {!ENDED.includes(runtime.state ?? "") && (
            <Confirm label="Stop instance" title={`Stop instance ${instance}?`} act={() => call(TASK_MANAGER, "Stop", { jobId: id, ranges })}>
              <p>Its pod is stopped, and does not run again by itself.</p>
            </Confirm>
          )}
        </p>
      )}
      {runtime.state === "RUNNING" && <Use job={job} instance={instance} />}
      <h3>Events</h3>
      {value ? <Events events={value.events} /> : <p class="quiet">Loading</p>}
      <h3>Log</h3>
      {run ? <Log key={run} job={job} instance={instance} run={run} first={runtime.state === "FAILED" ? "stderr" : "stdout"} /> : <p class="quiet">{value ? "No run has begun." : "Loading"}</p>}
    </section>
  );
}

// The times of events are those of whole seconds.
function lasted(seconds: number): string {
  return seconds < 1 ? "under 1 s" : duration(seconds);
}

function Events({ events }: { events: PodEvent[] }) {
  if (!events.length) return <p class="quiet">None yet.</p>;
  const moments = events.map((event) => new Date(event.timestamp ?? 0).getTime());
  return (
    <div class="scroll tall" tabIndex={0}>
      <table>
        <thead><tr><th>When</th><th>State</th><th class="figure">For</th><th>Run</th><th>Host</th><th>Message</th></tr></thead>
        <tbody>
          {events.map((event, index) => (
            <tr key={index}>
              <td><Time at={event.timestamp} /></td>
              <td><State state={event.actualState ?? ""} /></td>
              <td class="figure">{index && event.taskId?.value === events[index - 1]!.taskId?.value ? lasted((moments[index - 1]! - moments[index]!) / 1000) : ""}</td>
              <td>{event.taskId?.value.split("-").pop()}</td>
              <td>{event.hostname}</td>
              <td>{event.message || event.reason}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
