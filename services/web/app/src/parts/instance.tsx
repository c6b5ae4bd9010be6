// One instance: its runs with their events, and what it prints.
import { useState } from "preact/hooks";
import { call } from "../api";
import { hostHref } from "../host";
import { ENDED, TASK_MANAGER, type TaskRuntime } from "../jobs";
import { useLive } from "../live";
import { count, duration } from "../format";
import { Confirm } from "./confirm";
import { type Choice, Logs, type PodEvent, runNumber, terminalHref } from "./logs";
import { Stale } from "./problem";
import { State } from "./state";
import { Time } from "./time";
import { Use } from "./use";
import { settings } from "../settings";
import { Cards } from "./cards";

// ``state``: what is known of the instance before the rest is.
export function Instance({ job, instance, state, hasEnded }: { job: string; instance: number; state: string; hasEnded: boolean }) {
  const id = { value: job };
  const [choice, choose] = useState<Choice>({ run: "", file: "" });
  const { value, error } = useLive<{ runtime: TaskRuntime; events: PodEvent[] }>(`instance:${job}/${instance}`);
  const runtime: TaskRuntime = value?.runtime ?? {};
  const isStopped = runtime.goalState === "KILLED";
  const act = (method: string) => () => call(TASK_MANAGER, method, { jobId: id, ranges: [{ from: instance, to: instance + 1 }] });
  return (
    <section aria-label={`Instance ${instance}`} class="chosen" aria-busy={!value && !error}>
      <h2>Instance {instance}</h2>
      <Stale error={error} />
      <p class="facts">
        <State state={runtime.state ?? state} />
        {runtime.host && <span>on <a href={hostHref(runtime.host)}>{runtime.host}</a></span>}
        {runtime.state === "RUNNING" && Object.entries(runtime.ports ?? {}).map(([name, port]) => (
          <a key={name} href={`http://${runtime.host}:${port}/`} rel="noreferrer">its port {name}</a>
        ))}
        {runtime.startTime && <span>started <Time at={runtime.startTime} /></span>}
        {runtime.completionTime && <span>ended <Time at={runtime.completionTime} /></span>}
        {runtime.failureCount ? <span>failed {runtime.failureCount === 1 ? "once" : `${count(runtime.failureCount)} times`}</span> : null}
        {(runtime.message || runtime.reason) && <span class="quiet">{runtime.message || runtime.reason}</span>}
      </p>
      {!hasEnded && (
        <p class="buttons">
          {isStopped ? (
            <Confirm key="start" label="Start instance" weight="primary" title={`Start instance ${instance}?`} act={act("Start")}><p>It was stopped; another run begins.</p></Confirm>
          ) : (
            <Confirm key="restart" label="Restart instance" title={`Restart instance ${instance}?`} act={act("Restart")}><p>Its pod is stopped, and another run begins; if it is of a gang, of the whole gang.</p></Confirm>
          )}
          {!isStopped && !ENDED.includes(runtime.state ?? "") && (
            <Confirm key="stop" label="Stop instance" weight="danger" title={`Stop instance ${instance}?`} act={act("Stop")}>
              <p>Its pod is stopped, and does not run again by itself; if it is of a gang, the whole gang.</p>
            </Confirm>
          )}
          {runtime.state === "RUNNING" && settings.value.mayChange && <a class="button" href={terminalHref(job, instance)}>Terminal</a>}
        </p>
      )}
      {runtime.state === "RUNNING" && <Use job={job} instance={instance} />}
      <h3>Events</h3>
      {value ? <Events events={value.events} /> : !error && <p class="quiet">Loading</p>}
      <h3>Log</h3>
      {value ? <Logs job={job} instance={instance} runtime={runtime} events={value.events} choice={choice} choose={choose} /> : !error && <p class="quiet">Loading</p>}
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
    <Cards isTall>
      <table>
        <thead><tr><th>When</th><th>State</th><th class="figure">For</th><th>Run</th><th>Host</th><th>Message</th></tr></thead>
        <tbody>
          {events.map((event, index) => (
            <tr key={index}>
              <td><Time at={event.timestamp} /></td>
              <td><State state={event.actualState ?? ""} /></td>
              <td class="figure">{index && event.taskId?.value === events[index - 1]!.taskId?.value ? lasted((moments[index - 1]! - moments[index]!) / 1000) : ""}</td>
              <td>{runNumber(event.taskId?.value)}</td>
              <td>{event.hostname}</td>
              <td class="wide">{event.message || event.reason}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Cards>
  );
}
