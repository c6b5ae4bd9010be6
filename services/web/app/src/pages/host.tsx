// A host: how full it is, what runs on it for whom, its labels, and its maintenance.
import { amount, called, count, kindName, KINDS, type Kind, percent } from "../format";
import { of, type Pod, stateWord, type Data } from "../host";
import { useLive } from "../live";
import { poolHref } from "../pools";
import type { PageProps } from "./all";
import { Bar } from "../parts/bar";
import { Drain } from "../parts/drain";
import { Empty } from "../parts/empty";
import { HostEvents } from "../parts/host-events";
import { Absent, Stale } from "../parts/problem";
import { SameAs } from "../parts/same-as";
import { State } from "../parts/state";
import { Time } from "../parts/time";
import { Cards } from "../parts/cards";

const BLOCK_MIN = 4; // percent of the width, so that there is something to point at

export default function Host({ arguments: { name = "" } }: PageProps) {
  const { value, error } = useLive<Data>(`host:${name}`);
  if (!value) return <><Absent what="host" name={name} error={error} all={{ href: "/hosts", title: "All hosts" }} />{error && <HostEvents hostname={name} />}</>;
  const { host, pods, maintenance } = value;
  const notes = [host.avoided && `Pods go to other hosts where possible: the host is avoided ${host.avoided}`, host.reserved && `It is reserved ${host.reserved}`, host.marked && `It is marked ${host.marked}`];
  return (
    <>
      <h1>{host.hostname}</h1>
      <Stale error={error} />
      <p class="facts">
        <State state={stateWord(host.state)} /> <span>of cluster {host.cluster}</span>
        {host.currentPool && <span>in host pool {host.currentPool}{host.desiredPool && host.desiredPool !== host.currentPool ? `, on its way to ${host.desiredPool}` : ""}</span>}
        {host.ip && <span>{host.ip}</span>}
      </p>
      {notes.filter(Boolean).map((note) => <p key={note}>{note}</p>)}
      <Amounts data={value} />
      <Blocks pods={pods.pods ?? []} capacity={of(host.capacity, "cpu")} />
      <Pods pods={pods.pods ?? []} hasMore={pods.hasMore ?? false} />
      <Drain hostname={host.hostname} maintenance={maintenance} />
      <section aria-label="Labels" class="minor">
        <h2>Labels</h2>
        <ul class="labels">{(host.labels ?? []).map((label) => <li key={`${label.key}=${label.value}`}><code>{label.key}={label.value}</code></li>)}</ul>
      </section>
      <HostEvents hostname={name} />
      <SameAs command={`peloton host why ${name}`} service="peloton.api.v0.overview.OverviewService" method="GetHostPods" request={{ hostname: name }} />
    </>
  );
}

function Amounts({ data: { host } }: { data: Data }) {
  if (!host.capacity) return <p class="quiet">Its resources are not known while it is away.</p>;
  return (
    <section aria-label="Amounts">
      <h2>Resources</h2>
      {[...KINDS, ...Object.keys(host.capacity?.extended ?? {}).sort()].map((kind) => <Amount key={kind} kind={kind} host={host} />)}
      {(host.slackCpu ?? 0) > 0 && (
        <div class="row">
          <h3>Slack</h3>
          <Bar
            label="Slack" whole={of(host.capacity, "cpu")} text={`${amount("cpu", host.slackHeldCpu ?? 0)} of ${amount("cpu", host.slackCpu!)} held by revocable pods`}
            parts={[{ name: "held", value: host.slackHeldCpu ?? 0, tone: "slack" }]} marks={[{ name: "on offer", value: host.slackCpu! }]}
          />
        </div>
      )}
    </section>
  );
}

function Amount({ kind, host }: { kind: Kind; host: Data["host"] }) {
  const capacity = of(host.capacity, kind);
  if (!capacity) return null;
  const taken = capacity - of(host.free, kind);
  const isMeasured = host.used && (kind === "cpu" || kind === "memory");
  const used = of(host.used, kind);
  return (
    <div class="row">
      <h3>{kindName(kind)}</h3>
      <div>
        <Bar
          label={kindName(kind)} whole={capacity} text={`${amount(kind, taken)} of ${amount(kind, capacity)} taken (${percent(taken, capacity)})`}
          parts={[{ name: "taken", value: taken, tone: "allocation" }]}
        />
        {isMeasured && <Bar label={`${kindName(kind)} used`} whole={capacity} text={`${amount(kind, used)} used (${percent(used, capacity)})`} parts={[{ name: "used", value: used, tone: "use" }]} />}
      </div>
    </div>
  );
}

// One line for each pool, blocks as wide as their share of the host's CPU, the highest priority first.
function Blocks({ pods, capacity }: { pods: Pod[]; capacity: number }) {
  const pools = new Map<string, Pod[]>();
  for (const pod of pods) pools.set(pod.poolPath ?? "", [...(pools.get(pod.poolPath ?? "") ?? []), pod]);
  if (!pods.length) return <section aria-label="Pods"><h2>Pods</h2><Empty>No pods are on the host.</Empty></section>;
  return (
    <section aria-label="Pods by pool and priority">
      <h2>Pods by pool and priority</h2>
      {[...pools].map(([path, mine]) => (
        <div class="row" key={path}>
          <h3>{path ? <a href={poolHref(path)}>{path}</a> : "no pool"}</h3>
          <ul class="blocks">
            {mine.map((pod) => (
              <li
                key={pod.podId} class={`block ${pod.isRevocable ? "slack" : "allocation"} ${pod.isLeaving ? "leaving" : ""}`}
                style={{ width: `${Math.max(BLOCK_MIN, capacity ? (100 * of(pod.asked, "cpu")) / capacity : 0)}%` }}
                title={`${pod.jobName} ${pod.instanceId ?? 0}: ${amount("cpu", of(pod.asked, "cpu"))}, ${amount("memory", of(pod.asked, "memory"))}, priority ${pod.priority ?? 0}${pod.isLeaving ? ", leaves" : ""}`}
              >
                <a href={`/jobs/${pod.jobId}`}>{called(pod.jobName, pod.jobId)} {pod.instanceId ?? 0}</a>
              </li>
            ))}
          </ul>
        </div>
      ))}
    </section>
  );
}

function Pods({ pods, hasMore }: { pods: Pod[]; hasMore: boolean }) {
  if (!pods.length) return null;
  return (
    <Cards isTall>
      <table>
        <caption>{hasMore ? `The first ${count(pods.length)} pods` : count(pods.length, "pod")}</caption>
        <thead><tr><th>Job</th><th class="figure">Instance</th><th>Pool</th><th class="figure">Priority</th><th>Workload</th><th>State</th><th class="figure">CPU</th><th class="figure">Memory</th><th>Since</th><th>Notes</th></tr></thead>
        <tbody>
          {pods.map((pod) => (
            <tr key={pod.podId}>
              <td><a href={`/jobs/${pod.jobId}`}>{called(pod.jobName, pod.jobId)}</a></td>
              <td class="figure">{pod.instanceId ?? 0}</td>
              <td>{pod.poolPath}</td>
              <td class="figure">{pod.priority ?? 0}</td>
              <td>{pod.workload || (pod.jobType ?? "").toLowerCase()}</td>
              <td><State state={pod.state ?? ""} /></td>
              <td class="figure">{amount("cpu", of(pod.asked, "cpu"))}</td>
              <td class="figure">{amount("memory", of(pod.asked, "memory"))}</td>
              <td><Time at={pod.since} /></td>
              <td>{notesOf(pod)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Cards>
  );
}

function notesOf(pod: Pod): string {
  const notes = [pod.isLeaving && "leaves", pod.isRevocable && "on slack", pod.isPreemptible && "preemptible", pod.hasVolume && "has a volume here"];
  return notes.filter(Boolean).join(", ");
}
