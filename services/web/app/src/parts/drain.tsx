// Maintenance of a host: its progress, its plan, and the buttons that steer it.
import { useEffect, useState } from "preact/hooks";
import { call } from "../api";
import { called, count, time } from "../format";
import { MAINTENANCE, type Maintenance, stateWord } from "../host";
import { useAsked } from "./asked";
import { Bar } from "./bar";
import { Confirm } from "./confirm";
import { Stale } from "./problem";
import { State } from "./state";
import { Time } from "./time";
import { Cards } from "./cards";

interface Departing {
  jobId: string;
  jobName?: string;
  departure?: string;
  podCount?: number;
  allowedCount?: number;
  homelessCount?: number;
}

interface Plan {
  hosts?: { hostname: string; jobs?: Departing[]; leavingCount?: number; uncheckedCount?: number }[];
}

const TIMER_MAX_MS = 3_600_000; // browsers have no timer of months

const WAYS: Record<string, string> = {
  DEPARTURE_REQUEUED: "at once, and are queued again",
  DEPARTURE_STOPPED: "when they are stopped: their volume is on the host",
  DEPARTURE_LAST: "after all other pods",
};

export function Drain({ hostname, maintenance }: { hostname: string; maintenance: Maintenance | null }) {
  const steer = (method: string, more: object = {}) => call(MAINTENANCE, method, { hostnames: [hostname], ...more });
  return (
    <section aria-label="Maintenance">
      <h2>Maintenance</h2>
      {maintenance ? <Progress hostname={hostname} maintenance={maintenance} steer={steer} /> : <Begin hostname={hostname} steer={steer} />}
    </section>
  );
}

function Begin({ hostname, steer }: { hostname: string; steer: (method: string, more?: object) => Promise<unknown> }) {
  const [isPlanned, setPlanned] = useState(false);
  const [reason, setReason] = useState("");
  return (
    <>
      <p>The host is in service.</p>
      {!isPlanned && <p class="buttons"><button type="button" class="primary" onClick={() => setPlanned(true)}>Plan a drain</button></p>}
      {isPlanned && (
        <>
          <Planned hostname={hostname} />
          <p><label>Reason <input value={reason} maxLength={500} onInput={(event) => setReason(event.currentTarget.value)} /></label></p>
          <p class="buttons">
            <Confirm label="Drain" weight="primary" title={`Drain ${hostname} for maintenance?`} act={() => steer("Start", { reason })}>
              <p>The host takes no more pods, its pods are evicted as planned, and then it is down until its maintenance is completed.</p>
            </Confirm>
            <button type="button" onClick={() => setPlanned(false)}>Leave it as it is</button>
          </p>
        </>
      )}
    </>
  );
}

function Planned({ hostname }: { hostname: string }) {
  const { value, error, again } = useAsked(hostname, () => call<Plan>(MAINTENANCE, "Plan", { hostnames: [hostname] }));
  const host = value?.hosts?.[0];
  if (!value) return error ? <Stale error={error} /> : <p class="quiet" aria-busy="true">Planning</p>;
  return (
    <>
      <Cards>
        <table>
          <caption>What a drain would do now</caption>
          <thead><tr><th>Job</th><th class="figure">Pods</th><th>Leave</th><th class="figure">Fit on no other host</th></tr></thead>
          <tbody>
            {(host?.jobs ?? []).map((job) => (
              <tr key={`${job.jobId} ${job.departure}`}>
                <td><a href={`/jobs/${job.jobId}`}>{called(job.jobName, job.jobId)}</a></td>
                <td class="figure">{count(job.podCount ?? 0)}</td>
                <td>{WAYS[job.departure ?? ""] ?? `as the SLA allows: ${count(job.allowedCount ?? 0)} of the job now`}</td>
                <td class="figure">{job.departure === "DEPARTURE_SLA" ? count(job.homelessCount ?? 0) : ""}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Cards>
      {!host?.jobs?.length && <p>The host has no pods: it would go down at once, unless other hosts come first.</p>}
      {(host?.leavingCount ?? 0) > 0 && <p>{count(host!.leavingCount!, "pod")} are leaving already.</p>}
      {(host?.uncheckedCount ?? 0) > 0 && <p>{count(host!.uncheckedCount!, "pod")} were not checked for another host: the limit of one plan is reached.</p>}
      <p class="buttons"><button type="button" onClick={again}>Plan again</button></p>
    </>
  );
}

// The page has to redraw at the deadline by itself: a waiting drain sends no update.
function useIsPast(at: string | undefined): boolean {
  const left = at ? new Date(at).getTime() - Date.now() : 0;
  const [, redraw] = useState(0);
  useEffect(() => {
    if (left <= 0) return;
    const timer = setTimeout(() => redraw((count) => count + 1), Math.min(left, TIMER_MAX_MS) + 1);
    return () => clearTimeout(timer);
  });
  return Boolean(at) && left <= 0;
}

function Progress({ hostname, maintenance, steer }: { hostname: string; maintenance: Maintenance; steer: (method: string) => Promise<unknown> }) {
  const [state, goal] = [stateWord(maintenance.state), stateWord(maintenance.goalState)];
  const { podCount: pods = 0, leavingCount: leaving = 0 } = maintenance;
  const isLate = useIsPast(maintenance.deadline);
  const aim = maintenance.toPool ? `to host pool ${maintenance.toPool}` : goal === "UP" ? "back up" : "down";
  return (
    <>
      <p class="facts">
        <State state={state} /> <span>on its way {aim}</span> {maintenance.reason && <span>because: {maintenance.reason}</span>}
        <span>requested <Time at={maintenance.requestedTime} /></span>
        {maintenance.drainTime && <span>drain began <Time at={maintenance.drainTime} /></span>}
        {maintenance.deadline && state === "DRAINING" && <span>{isLate ? "deadline was" : "deadline"} {time(maintenance.deadline)}</span>}
        {maintenance.forced && <span>forced</span>}
      </p>
      {state === "DRAINING" && (
        <Bar
          label="Pods on the host" text={`${count(pods, "pod")} on it, ${count(leaving)} leaving`} whole={Math.max(pods, 1)}
          parts={[{ name: "leaving", value: leaving, tone: "use" }, { name: "there", value: pods - leaving, tone: "demand" }]}
        />
      )}
      {maintenance.waitingFor && <p>Waits for {maintenance.waitingFor}.</p>}
      {(maintenance.blockers ?? []).length > 0 && (
        <ul>{maintenance.blockers!.map((one) => <li key={one.jobId}><a href={`/jobs/${one.jobId}`}>{called(one.jobName, one.jobId)}</a> keeps {count(one.podCount ?? 0, "pod")}: {one.reason}</li>)}</ul>
      )}
      <p class="buttons">
        {goal === "DOWN" && state !== "DOWN" && (
          <Confirm label="Cancel" title={`Cancel the maintenance of ${hostname}?`} act={() => steer("Cancel")}><p>The host takes pods again. Evicted pods do not move back.</p></Confirm>
        )}
        {state === "DRAINING" && isLate && !maintenance.forced && (
          <Confirm label="Force" weight="danger" title={`Force the drain of ${hostname}?`} act={() => steer("Force")}><p>Its pods are evicted even if the SLA of their jobs forbids it.</p></Confirm>
        )}
        {state === "DOWN" && goal === "DOWN" && (
          <Confirm label="Complete" weight="primary" title={`Complete the maintenance of ${hostname}?`} act={() => steer("Complete")}><p>The host comes back up and takes pods again.</p></Confirm>
        )}
      </p>
    </>
  );
}
