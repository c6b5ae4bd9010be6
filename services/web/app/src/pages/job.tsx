// A job: all of its instances at a glance, why they wait, and one of them with its events and its log.
import { useEffect, useState } from "preact/hooks";
import { call } from "../api";
import { amount, called, count, duration, mebibytes } from "../format";
import { ENDED, inflated, JOB_MANAGER, JOB_TABLE, POD_STATES, type Row, type Why } from "../jobs";
import { useLive } from "../live";
import { poolHref } from "../pools";
import type { PageProps } from "./all";
import { useAsked } from "../parts/asked";
import { Grid } from "../parts/grid";
import { Instance } from "../parts/instance";
import { Instances } from "../parts/instances";
import { JobSteer, canStartAgain, submitHref } from "../parts/job-steer";
import { Absent, Failed, Stale } from "../parts/problem";
import { SameAs } from "../parts/same-as";
import { State } from "../parts/state";
import { Time } from "../parts/time";
import { Typed } from "../parts/typed";
import { Use } from "../parts/use";
import { WhyTree } from "../parts/why";
import { parameter, setParameters } from "../router";
import { settings } from "../settings";
import { useTitle } from "../title";

const STOPPING = ["KILLED", "DELETED"]; // goals that a user has set

interface Data {
  row: Row;
  why?: Why;
  problem?: string;
}

export default function Job({ arguments: { id = "" } }: PageProps) {
  const { value, error } = useLive<Data>(`job:${id}`);
  useTitle(value?.row.name ? `${value.row.name} Job` : "");
  if (!value) return <Absent what="job" name={id} error={error} all={{ href: "/jobs", title: "All jobs" }} />;
  const { row } = value;
  const hasEnded = ENDED.includes(row.state ?? "");
  return (
    <>
      <h1>{called(row.name, id)}</h1>
      <Stale error={error} />
      <Facts row={row} />
      <JobSteer row={row} />
      <Timeline row={row} />
      {(value.problem || value.why?.waiting?.length || value.why?.reasons?.length) && (
        <section aria-label="Why it waits">
          <h2>Why it waits</h2>
          {value.problem && <Failed error={{ code: "unavailable", message: value.problem }}>Not known now</Failed>}
          {value.why && <WhyTree why={value.why} />}
        </section>
      )}
      {!hasEnded && <Use job={id} />}
      <States id={id} hasEnded={hasEnded} />
      <Instances job={id} />
      <Configuration id={id} />
      <SameAs command={`peloton job status ${id}`} service={JOB_TABLE} method="GetJob" request={{ id: { value: id } }} />
    </>
  );
}

function Facts({ row }: { row: Row }) {
  const { temporalUi, temporalNamespace } = settings.value;
  const workflow = encodeURIComponent(`job/${row.id.value}`);
  return (
    <p class="facts">
      <State state={row.state ?? "UNKNOWN"} />
      {STOPPING.includes(row.goalState ?? "") && !ENDED.includes(row.state ?? "") && <span>on the way to {row.goalState!.toLowerCase()}</span>}
      <a href={poolHref(row.poolPath ?? "")}>{row.poolPath}</a>
      {row.owner && <span>of {row.owner}</span>}
      <span>{(row.type ?? "BATCH").toLowerCase()}, priority {row.priority ?? 0}</span>
      <span>created <Time at={row.creationTime} />{row.creator && ` by ${row.creator}`}</span>
      {(row.labels ?? []).map((one) =>
        /^https?:/.test(one.value ?? "") ? <a key={one.key} href={one.value} rel="noreferrer">{one.key}</a> : <code key={one.key}>{one.key}={one.value}</code>)}
      {row.type !== "EXTERNAL" && (!ENDED.includes(row.state ?? "") || canStartAgain(row)) && <a href={submitHref(row)}>edit and submit again</a>}
      {row.type === "SERVICE" && <a href={`/services/${row.id.value}`}>its rollouts and SLA</a>}
      {temporalUi && <a href={`${temporalUi}/namespaces/${encodeURIComponent(temporalNamespace || "default")}/workflows/${workflow}`}>its workflow in Temporal</a>}
    </p>
  );
}

// Waiting, running, over: in the proportion of their times.
function Timeline({ row }: { row: Row }) {
  const moment = (text: string | undefined) => (text ? new Date(text).getTime() / 1000 : 0);
  const created = moment(row.creationTime);
  const started = moment(row.startTime);
  const ended = moment(row.completionTime) || Date.now() / 1000;
  const waited = Math.max(0, (started || ended) - created);
  const ran = started ? Math.max(0, ended - started) : 0;
  const parts = [
    { name: started || !row.completionTime ? "waited" : "lasted", seconds: waited, tone: "demand" },
    { name: row.completionTime ? "ran" : "runs for", seconds: ran, tone: "use" },
  ].filter((part) => part.seconds > 0);
  const text = parts.map((part) => `${part.name} ${duration(part.seconds)}`).join(", ");
  return (
    <div class="row" data-varies>
      <h2>Timeline</h2>
      <div class="bar" role="img" aria-label={`Timeline: ${text}`}>
        <div class="track" aria-hidden="true">
          {parts.map((part) => <span key={part.name} class={`part ${part.tone}`} style={{ width: `${(100 * part.seconds) / Math.max(waited + ran, 1e-9)}%` }} />)}
        </div>
        <span class="figures" aria-hidden="true">{text}</span>
      </div>
    </div>
  );
}

function States({ id, hasEnded }: { id: string; hasEnded: boolean }) {
  const { value, error } = useLive<{ count: number; states: string }>(`states:${id}`);
  const [states, setStates] = useState<Uint8Array>();
  const total = states?.length ?? 0;
  const given = parameter("instance");
  const chosen = given && /^\d+$/.test(given) ? Number(given) : -1;
  const choose = (instance: number) => setParameters({ instance: instance < 0 ? "" : String(instance) });
  useEffect(() => {
    if (value) void inflated(value.states).then(setStates);
  }, [value?.states]);
  return (
    <>
      <section aria-label="Instances">
        <h2>Instances</h2>
        <Stale error={error} />
        {!states && !error && <p class="quiet" aria-busy="true">Loading</p>}
        {total > 0 && <Grid states={states!} chosen={chosen} choose={choose} />}
        {states && value && value.count > total && <p class="quiet">The first {count(total)} of {count(value.count)}.</p>}
        <p>
          <label>
            Instance{" "}
            <Typed
              type="number" min={0} max={Math.max(total - 1, 0)} value={chosen < 0 ? "" : String(chosen)} placeholder="choose one"
              take={(text) => choose(text === "" ? -1 : Number(text))}
            />
          </label>
        </p>
      </section>
      {states && chosen >= total && <p class="quiet">There is no instance {chosen}: it has {count(total, "instance")}.</p>}
      {chosen >= 0 && chosen < total && (
        <Instance key={chosen} job={id} instance={chosen} state={POD_STATES[states![chosen]!] ?? ""} hasEnded={hasEnded} />
      )}
    </>
  );
}

// maxFailures counts all failures, and is of batch jobs: instances of others run again however often they end.
function again(config: { type?: string; defaultConfig?: { restartPolicy?: { maxFailures?: number } } }): string {
  if (config.type === "SERVICE" || config.type === "DAEMON") return "is run again whenever it ends";
  const most = config.type === "EXTERNAL" ? 0 : (config.defaultConfig?.restartPolicy?.maxFailures ?? 0);
  return most > 1 ? `is run again when it fails, until it has failed ${most} times` : "is not run again when it fails";
}

function Configuration({ id }: { id: string }) {
  const { value, error, isBusy } = useAsked(id, () => call(JOB_MANAGER, "Get", { id: { value: id } }));
  const config = value?.jobInfo?.config;
  const task = config?.defaultConfig ?? {};
  const limits = task.resource ?? {};
  const gang = config?.sla?.minimumRunningInstances ?? 0;
  const used: Record<string, number> = value?.jobInfo?.runtime?.resourceUsage ?? {};
  const held = [
    used.cpu && `${count(used.cpu / 3600)} core-hours`, used.gpu && `${count(used.gpu / 3600)} gpu-hours`,
    used.memory && `${mebibytes(used.memory / 3600)}-hours of memory`,
  ].filter(Boolean);
  return (
    <section aria-label="Configuration" aria-busy={isBusy}>
      <h2>Configuration</h2>
      <Stale error={error} />
      {config && (
        <>
          <p>
            Each instance asks for {amount("cpu", limits.cpuLimit ?? 0)}, {amount("memory", limits.memLimitMb ?? 0)} of memory, {amount("disk", limits.diskLimitMb ?? 0)} of disk
            {limits.gpuLimit ? `, ${amount("gpu", limits.gpuLimit)}` : ""}{Object.entries<number>(limits.extended ?? {}).map(([kind, value]) => `, ${count(value)} of ${kind}`).join("")}, and {again(config)}.
            {gang > 1 && ` Instances 0 to ${gang - 1} are one gang: they start together or not at all.`}
          </p>
          {held.length > 0 && <p>Held so far, by requests: {held.join(", ")}.</p>}
          <details><summary>All of it</summary><pre class="scroll" tabIndex={0}>{JSON.stringify(config, null, 2)}</pre></details>
        </>
      )}
    </section>
  );
}
