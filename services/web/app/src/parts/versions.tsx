// The history of a service: its updates, what differs between two versions, and the way back.
import { useState } from "preact/hooks";
import { call } from "../api";
import { batchOf, lasted, SERVICE, type Data, type Update, versionOf, word } from "../service";
import { useAsked } from "./asked";
import { Confirm } from "./confirm";
import { Stale } from "./problem";
import { SpecDiff } from "./spec-diff";
import { State } from "./state";
import { Time } from "./time";
import { Cards } from "./cards";

const UPDATES_SHOWN = 50;

// ``version``: the number of a configuration.
async function specAt(id: string, version: string): Promise<object> {
  const answer = await call(SERVICE, "GetJob", { jobId: { value: id }, version: { value: `${version}-0-0` } });
  return answer.jobInfo.spec;
}

export function Versions({ id, data }: { id: string; data: Data }) {
  const now = data.job.jobInfo.status;
  const current = now.version?.value ?? "";
  const { value, error, isBusy } = useAsked(`${id} ${current} ${now.workflowStatus?.state}`, () =>
    call<{ workflowInfos?: { status: Update }[] }>(SERVICE, "ListJobWorkflows", { jobId: { value: id }, updatesLimit: UPDATES_SHOWN }),
  );
  const updates = (value?.workflowInfos ?? []).map((info) => info.status);
  const known = [...new Set(updates.flatMap((update) => [versionOf(update.version?.value), versionOf(update.prevVersion?.value)]))].filter(Boolean);
  const running = versionOf(current);
  const batch = batchOf(data);
  const rollBack = async (version: string) => {
    const spec = await specAt(id, version);
    await call(SERVICE, "ReplaceJob", { jobId: { value: id }, version: { value: current }, spec, updateSpec: { batchSize: batch } });
  };
  return (
    <section aria-label="History" aria-busy={isBusy}>
      <h2>History</h2>
      <Stale error={error} />
      <Cards>
        <table>
          <thead><tr><th>Update</th><th>State</th><th>From</th><th>To</th><th>Begun</th><th>Took</th><th><span class="hidden">Way back</span></th></tr></thead>
          <tbody>
            {updates.map((update, index) => {
              const before = versionOf(update.prevVersion?.value);
              return (
                <tr key={index}>
                  <td>{word(update.type, "WORKFLOW_TYPE_").toLowerCase()}</td>
                  <td><State state={word(update.state, "WORKFLOW_STATE_")} /></td>
                  <td>{before}</td>
                  <td>{versionOf(update.version?.value)}</td>
                  <td><Time at={update.creationTime} /></td>
                  <td>{lasted(update)}</td>
                  <td>
                    {known.includes(before) && before !== running && (
                      <Confirm label={`Roll back to version ${before}`} title={`Give the service the spec of version ${before} again?`} act={() => rollBack(before)}>
                        <p>It is an update of its own, to a new version, {batch ? `${batch} instances at a time` : "of all instances at once"}.</p>
                      </Confirm>
                    )}
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </Cards>
      {known.length > 1 && <Compare key={known[0]} id={id} versions={known} />}
    </section>
  );
}

function Compare({ id, versions }: { id: string; versions: string[] }) {
  const [before, setBefore] = useState(versions[1]!);
  const [after, setAfter] = useState(versions[0]!);
  const { value, error, isBusy } = useAsked(`${id} ${before} ${after}`, () => Promise.all([specAt(id, before), specAt(id, after)]));
  const choice = (label: string, chosen: string, choose: (version: string) => void) => (
    <label>{label} <select value={chosen} onChange={(event) => choose(event.currentTarget.value)}>{versions.map((one) => <option key={one}>{one}</option>)}</select></label>
  );
  return (
    <>
      <h3>What differs</h3>
      <p class="facts">{choice("from", before, setBefore)} {choice("to", after, setAfter)}</p>
      <Stale error={error} />
      {isBusy && <p class="quiet" aria-busy="true">Loading</p>}
      {value && <SpecDiff before={value[0]} after={value[1]} />}
    </>
  );
}
