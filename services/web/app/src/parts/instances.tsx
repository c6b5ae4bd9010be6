// Instances as a table, by state and host.
import { useState } from "preact/hooks";
import { count, ranFor } from "../format";
import { hostHref } from "../host";
import { useLive } from "../live";
import { Stale } from "./problem";
import { State } from "./state";
import { Time } from "./time";
import { Typed } from "./typed";
import { setParameters } from "../router";
import { Cards } from "./cards";

const PAGE = 50;
const STATES = ["INITIALIZED", "PENDING", "LAUNCHED", "STARTING", "RUNNING", "SUCCEEDED", "FAILED", "LOST", "PREEMPTING", "KILLING", "KILLED"];

// [instance, state, host, message, run, start, completion, failures]
type Row = [number, string, string, string, number, string, string, number];

const OVER = ["SUCCEEDED", "FAILED", "KILLED", "LOST"];

export function Instances({ job }: { job: string }) {
  const [state, setState] = useState("");
  const [host, setHost] = useState("");
  const [offset, setOffset] = useState(0);
  const spec = { pagination: { offset, limit: PAGE }, ...(state && { taskStates: [state] }), ...(host && { hosts: [host] }) };
  const { value, error } = useLive<{ rows: Row[]; total: number }>(`instances:${JSON.stringify({ jobId: { value: job }, spec })}`);
  const total = value?.total ?? 0;
  const refine = (set: (text: string) => void) => (text: string) => {
    set(text);
    setOffset(0);
  };
  return (
    <section aria-label="Instances as a table" aria-busy={!value && !error}>
      <h2>As a table</h2>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <label>
          State <select value={state} onChange={(event) => refine(setState)(event.currentTarget.value)}>
            <option value="">any</option>
            {STATES.map((one) => <option key={one} value={one}>{one.toLowerCase()}</option>)}
          </select>
        </label>
        <label>Host <Typed value={host} take={refine(setHost)} placeholder="its whole name" /></label>
        <span class="quiet" role="status">{value ? count(total, "instance") : error ? "" : "Loading"}</span>
      </form>
      <Stale error={error} />
      {(value?.rows ?? []).length > 0 && (
        <Cards>
          <table>
            <thead>
              <tr>
                <th class="figure">Instance</th><th>State</th><th>Host</th><th>Started</th><th class="figure">Duration</th><th class="figure">Attempts</th><th class="figure">Failures</th><th>Message</th>
              </tr>
            </thead>
            <tbody>
              {value!.rows.map(([instance, state, host, message, run, start, end, failures]) => (
                <tr key={instance}>
                  <td class="figure"><button type="button" class="plain" onClick={() => setParameters({ instance: String(instance) })}>{instance}</button></td>
                  <td><State state={state} /></td>
                  <td>{host && <a href={hostHref(host)}>{host}</a>}</td>
                  <td>{start && <Time at={start} />}</td>
                  <td class="figure" data-varies>{ranFor(start, end, OVER.includes(state))}</td>
                  <td class="figure">{run || ""}</td>
                  <td class="figure">{failures}</td>
                  <td class="wide">{message}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Cards>
      )}
      {(total > PAGE || offset > 0) && (
        <nav class="buttons" aria-label="Pages of instances">
          <button type="button" disabled={!offset} onClick={() => setOffset(Math.max(0, offset - PAGE))}>Previous</button>
          <button type="button" disabled={Boolean(value) && offset + PAGE >= total} onClick={() => setOffset(offset + PAGE)}>Next</button>
        </nav>
      )}
    </section>
  );
}
