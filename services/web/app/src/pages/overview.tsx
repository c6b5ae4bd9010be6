// The cluster in one screen: what is wrong, how full it is, its hosts, its work and who leads.
import { amount, count, kindName, KINDS, type Kind, percent } from "../format";
import { COLOURINGS, useHosts } from "../hosts";
import { useLive } from "../live";
import { poolHref } from "../pools";
import { parameter } from "../router";
import { Bar } from "../parts/bar";
import { ClusterHistory } from "../parts/cluster-history";
import { ColouredBy } from "../parts/coloured-by";
import { Copy } from "../parts/copy";
import { Empty } from "../parts/empty";
import { HeatMap } from "../parts/heat-map";
import { Stale } from "../parts/problem";
import { SameAs } from "../parts/same-as";
import { State } from "../parts/state";
import { Time } from "../parts/time";
import { titleAndDetail, type Wrong } from "../parts/trouble";
import { Cards } from "../parts/cards";

interface Amounts {
  kind: Kind;
  capacity?: number;
  away?: number;
  allocation?: number;
  used?: number;
  measuredCapacity?: number;
  slack?: number;
  slackHeld?: number;
}

interface Data {
  overview: {
    clusters?: { cluster: string; clusterKind?: string; isSilent?: boolean; amounts?: Amounts[]; hosts?: { total?: number; states?: Record<string, number>; marks?: Record<string, number>; inMaintenance?: number; avoided?: number } }[];
    jobs?: Record<string, string>;
    pods?: Record<string, string>;
    countedTime?: string;
    roles?: { role: string; address?: string; secondsLeft?: number }[];
    temporalAddress?: string;
    temporalNamespace?: string;
    problems?: Wrong[];
    problemsLeftOut?: number;
  };
  demand: Partial<Record<Kind, number>>;
}

const SUBJECTS: Record<string, string> = { SUBJECT_KIND_HOST: "/hosts/", SUBJECT_KIND_JOB: "/jobs/", SUBJECT_KIND_POOL: "/pools" };

export default function Overview() {
  const { value, error } = useLive<Data>("overview");
  return (
    <>
      <h1>Overview</h1>
      <Stale error={error} />
      {value ? <Shown data={value} /> : !error && <p class="quiet" aria-busy="true">Loading</p>}
      <SameAs command="peloton overview" service="peloton.api.v0.overview.OverviewService" method="GetOverview" />
    </>
  );
}

function Shown({ data: { overview, demand } }: { data: Data }) {
  const clusters = overview.clusters ?? [];
  const kinds = KINDS.filter((kind) => clusters.some((one) => one.amounts?.some((each) => each.kind === kind && each.capacity)));
  return (
    <>
      <Problems problems={overview.problems ?? []} leftOut={overview.problemsLeftOut ?? 0} />
      <div class="columns">
        <section aria-label="Capacity">
          <h2>Capacity</h2>
          {KINDS.map((kind) => <Capacity key={kind} kind={kind} all={clusters.flatMap((one) => one.amounts ?? []).filter((one) => one.kind === kind)} demand={demand[kind] ?? 0} />)}
          {clusters.length > 1 && <Clusters clusters={clusters} />}
        </section>
        <HostsInShort clusters={clusters} />
        {kinds.length > 0 && <ClusterHistory kinds={kinds} />}
        <div>
          <Work overview={overview} />
          <Leaders overview={overview} />
        </div>
      </div>
    </>
  );
}

function Problems({ problems, leftOut }: { problems: Wrong[]; leftOut: number }) {
  return (
    <section aria-label="Problems now" class={problems.length ? "wrong-now" : ""}>
      <h2>Problems now</h2>
      {!problems.length && <p class="fine">Nothing is wrong.</p>}
      <ul class="wrong">
        {problems.map((one, index) => (
          <li key={index} class={one.severity === "SEVERITY_CRITICAL" ? "critical" : "warning"}>
            <WrongLine wrong={one} />
          </li>
        ))}
      </ul>
      {leftOut > 0 && <p class="quiet">and {count(leftOut)} more</p>}
    </section>
  );
}

function WrongLine({ wrong }: { wrong: Wrong }) {
  const [title, detail] = titleAndDetail(wrong.text);
  const below = SUBJECTS[wrong.subjectKind ?? ""];
  const id = wrong.subjectId ?? "";
  return (
    <>
      <strong>{wrong.severity === "SEVERITY_CRITICAL" ? "▲ Critical" : "● Warning"}</strong>{" "}
      {below ? <a href={below === "/pools" ? poolHref(id) : below + encodeURIComponent(id)}>{title}</a> : title}
      {wrong.since && <span class="quiet"> since <Time at={wrong.since} /></span>}
      {detail && <div class="detail">{detail}</div>}
      {wrong.command && <details><summary>From a terminal</summary><Copy text={wrong.command} /></details>}
    </>
  );
}

function summed(all: Amounts[], field: Exclude<keyof Amounts, "kind">): number {
  return all.reduce((sum, one) => sum + (one[field] ?? 0), 0);
}

function Capacity({ kind, all, demand }: { kind: Kind; all: Amounts[]; demand: number }) {
  const [capacity, allocation, away] = [summed(all, "capacity"), summed(all, "allocation"), summed(all, "away")];
  if (!capacity) return null;
  const [used, measured, slack, held] = [summed(all, "used"), summed(all, "measuredCapacity"), summed(all, "slack"), summed(all, "slackHeld")];
  const parts = [`${amount(kind, allocation)} of ${amount(kind, capacity)} allocated (${percent(allocation, capacity)})`];
  if (demand) parts.push(`${amount(kind, demand)} wanted by pods that wait`);
  if (away) parts.push(`${amount(kind, away)} on hosts that take no pods`);
  return (
    <div class="row">
      <h3>{kindName(kind)}</h3>
      <div>
        <Bar
          label={kindName(kind)} text={parts.join(", ")} whole={Math.max(capacity, allocation + demand)}
          parts={[{ name: "allocated", value: allocation, tone: "allocation" }, { name: "wanted", value: demand, tone: "demand" }]}
          marks={[{ name: "capacity", value: capacity }]}
        />
        {measured > 0 && (
          <Bar
            label={`${kindName(kind)} used`} whole={Math.max(capacity, allocation + demand)}
            text={`${amount(kind, used)} used, measured on hosts with ${amount(kind, measured)} (${percent(used, measured)})`}
            parts={[{ name: "used", value: used, tone: "use" }]} marks={[{ name: "measured capacity", value: measured }]}
          />
        )}
        {slack > 0 && (
          <Bar
            label={`${kindName(kind)} slack`} whole={Math.max(capacity, allocation + demand)}
            text={`${amount(kind, held)} of ${amount(kind, slack)} slack held by revocable pods`}
            parts={[{ name: "held", value: held, tone: "slack" }]} marks={[{ name: "slack", value: slack }]}
          />
        )}
      </div>
    </div>
  );
}

function Clusters({ clusters }: { clusters: NonNullable<Data["overview"]["clusters"]> }) {
  return (
    <Cards>
      <table>
        <caption>By cluster</caption>
        <thead><tr><th>Cluster</th><th>Kind</th><th class="figure">Hosts</th>{KINDS.map((kind) => <th key={kind} class="figure">{kindName(kind)} allocated</th>)}</tr></thead>
        <tbody>
          {clusters.map((one) => (
            <tr key={one.cluster}>
              <td>{one.cluster}</td>
              <td>{one.isSilent ? "does not answer" : one.clusterKind}</td>
              <td class="figure">{one.isSilent ? "" : count(one.hosts?.total ?? 0)}</td>
              {KINDS.map((kind) => {
                const mine = one.amounts?.find((each) => each.kind === kind);
                return <td key={kind} class="figure">{mine?.capacity ? `${amount(kind, mine.allocation ?? 0)} of ${amount(kind, mine.capacity)}` : ""}</td>;
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </Cards>
  );
}

function HostsInShort({ clusters }: { clusters: NonNullable<Data["overview"]["clusters"]> }) {
  const { hosts, error } = useHosts();
  const colouring = COLOURINGS.find((one) => one.name === parameter("colour")) ?? COLOURINGS[0]!;
  const states = new Map<string, number>();
  for (const cluster of clusters) for (const [state, hosts] of Object.entries(cluster.hosts?.states ?? {})) states.set(state, (states.get(state) ?? 0) + hosts);
  return (
    <section aria-label="Hosts">
      <h2><a href="/hosts">Hosts</a></h2>
      <Stale error={error} />
      <p class="facts">
        {[...states].map(([state, hosts]) => <span key={state}>{count(hosts)} <State state={state} /></span>)}
        <ColouredBy chosen={colouring.name} />
      </p>
      {hosts && (hosts.length ? <HeatMap hosts={hosts} colouring={colouring} /> : <Empty command="peloton up --simulate 1000">There are no hosts yet.</Empty>)}
    </section>
  );
}

function Work({ overview }: { overview: Data["overview"] }) {
  const line = (counts: Record<string, string> | undefined) =>
    Object.entries(counts ?? {}).sort(([, one], [, other]) => Number(other) - Number(one)).map(([state, many]) => <span key={state}>{count(Number(many))} <State state={state} /></span>);
  return (
    <section aria-label="Jobs and pods">
      <h2>Jobs and pods</h2>
      {!overview.countedTime && <p class="quiet" aria-busy="true">Counting</p>}
      {overview.countedTime && !Object.keys(overview.jobs ?? {}).length && (
        <Empty command="peloton job create /tutorial examples/tutorial/hello.yaml --watch">There are no jobs yet.</Empty>
      )}
      <div class="row"><h3>Jobs</h3><p class="facts">{line(overview.jobs)}</p></div>
      <div class="row"><h3>Pods</h3><p class="facts">{line(overview.pods)}</p></div>
    </section>
  );
}

function Leaders({ overview }: { overview: Data["overview"] }) {
  return (
    <section aria-label="Leaders" class="minor">
      <h2>Leaders</h2>
      <Cards>
        <table>
          <thead><tr><th>Role</th><th>Led at</th><th>Lease</th></tr></thead>
          <tbody>
            {(overview.roles ?? []).map((role) => (
              <tr key={role.role}>
                <td>{role.role}</td>
                <td>{role.address ?? <><State state="DOWN" /> no leader</>}</td>
                <td>{role.address ? "held" : "ran out"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Cards>
      {overview.temporalAddress && <p class="quiet">Temporal at {overview.temporalAddress}, namespace {overview.temporalNamespace}</p>}
    </section>
  );
}
