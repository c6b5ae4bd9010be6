// Instances as a table, by state and host.
import { useState } from "preact/hooks";
import { call } from "../api";
import { count } from "../format";
import { hostHref } from "../host";
import { TASK_MANAGER, type TaskRuntime } from "../jobs";
import { useAsked } from "./asked";
import { Stale } from "./problem";
import { State } from "./state";
import { Typed } from "./typed";
import { setParameters } from "../router";

const PAGE = 50;
const STATES = ["INITIALIZED", "PENDING", "LAUNCHED", "STARTING", "RUNNING", "SUCCEEDED", "FAILED", "LOST", "PREEMPTING", "KILLING", "KILLED"];

interface Answer {
  records?: { instanceId?: number; runtime?: TaskRuntime }[];
  pagination?: { total?: number };
}

// ``version``: when it changes the page is asked for again.
export function Instances({ job, version }: { job: string; version: string }) {
  const [state, setState] = useState("");
  const [host, setHost] = useState("");
  const [offset, setOffset] = useState(0);
  const spec = { pagination: { offset, limit: PAGE }, ...(state && { taskStates: [state] }), ...(host && { hosts: [host] }) };
  const { value, error, isBusy } = useAsked(JSON.stringify([job, spec, version]), () => call<Answer>(TASK_MANAGER, "Query", { jobId: { value: job }, spec }));
  const total = value?.pagination?.total ?? 0;
  const refine = (set: (text: string) => void) => (text: string) => {
    set(text);
    setOffset(0);
  };
  return (
    <section aria-label="Instances as a table" aria-busy={isBusy}>
      <h2>As a table</h2>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <label>
          State <select value={state} onChange={(event) => refine(setState)(event.currentTarget.value)}>
            <option value="">any</option>
            {STATES.map((one) => <option key={one} value={one}>{one.toLowerCase()}</option>)}
          </select>
        </label>
        <label>Host <Typed value={host} take={refine(setHost)} placeholder="its whole name" /></label>
        <span class="quiet" role="status">{value ? count(total, "instance") : "Loading"}</span>
      </form>
      <Stale error={error} />
      {(value?.records ?? []).length > 0 && (
        <div class="scroll" tabIndex={0}>
          <table>
            <thead><tr><th class="figure">Instance</th><th>State</th><th>Host</th><th class="figure">Failures</th><th>Message</th></tr></thead>
            <tbody>
              {value!.records!.map(({ instanceId = 0, runtime = {} }) => (
                <tr key={instanceId}>
                  <td class="figure"><button type="button" class="plain" onClick={() => setParameters({ instance: String(instanceId) })}>{instanceId}</button></td>
                  <td><State state={runtime.state ?? ""} /></td>
                  <td>{runtime.host && <a href={hostHref(runtime.host)}>{runtime.host}</a>}</td>
                  <td class="figure">{runtime.failureCount ?? 0}</td>
                  <td>{runtime.message || runtime.reason}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <nav class="buttons" aria-label="Pages of instances">
        <button type="button" disabled={!offset} onClick={() => setOffset(Math.max(0, offset - PAGE))}>Previous</button>
        <button type="button" disabled={offset + PAGE >= total} onClick={() => setOffset(offset + PAGE)}>Next</button>
      </nav>
    </section>
  );
}
