// Outcome of submitting a file, planned before anything is created.
import { useEffect, useState } from "preact/hooks";
import { call } from "../api";
import { count } from "../format";
import type { Why } from "../jobs";
import { type Kind, planCall, planCommand, type Wanted } from "../submit";
import { Bar } from "./bar";
import { type Eviction, Evictions, Outcome, type PoolPlanned } from "./pool-plan";
import { SameAs } from "./same-as";
import { WhyTree } from "./why";

interface JobPlanned extends Why {
  poolPath: string;
  admittedInstances?: number;
  waitingInstances?: number;
  heldBackInstances?: number;
  evictions?: Eviction[];
  room?: Room;
  daemon?: PlannedDaemon[]; // instead of all numbers of instances
  text?: string;
}
interface PlannedDaemon {
  cluster?: string;
  notKnown?: string;
  hosts?: number;
  matchingHosts?: number;
  hostsInMaintenance?: number;
  hostsWithRoom?: number;
  evictingHosts?: number;
  waitingHosts?: number;
  uncheckedHosts?: number;
}
interface Room {
  notKnown?: string;
  hostlessInstances?: number;
  text?: string;
}
export type Planned = JobPlanned | (PoolPlanned & { poolPath: string; isNew?: boolean; text?: string });

// ``state`` identifies the text and the pool that were planned; a plan of another state is not shown.
export function usePlan(state: string) {
  const [outcome, setOutcome] = useState<{ of: string; plan?: Planned; wanted?: Wanted; failure?: string; isAsking?: boolean }>({ of: "" });
  const ask = async (wanted: Wanted) => {
    setOutcome({ of: state, isAsking: true });
    try {
      const { service, method, request } = planCall(wanted);
      const plan = await call<Planned>(service, method, request);
      setOutcome({ of: state, plan, wanted });
    } catch (error) {
      setOutcome({ of: state, failure: (error as Error).message });
    }
  };
  useEffect(() => setOutcome((before) => (before.of === state ? before : { of: "" })), [state]);
  return { ...(outcome.of === state ? outcome : {}), ask } as { plan?: Planned; wanted?: Wanted; failure?: string; isAsking?: boolean; ask: typeof ask };
}

// One line that sums up a plan.
export function headline(kind: Kind, plan: Planned): string {
  if (kind === "pool") return `${plan.poolPath} ${"isNew" in plan && plan.isNew ? "would be a new pool" : "exists, creating it will be refused"}`;
  const { admittedInstances: admitted = 0, waitingInstances: waiting = 0, heldBackInstances: held = 0, room, daemon } = plan as JobPlanned;
  if (daemon?.length) return `a daemon: ${daemon.map(daemonLine).join("; ")}`;
  const all = count(admitted + waiting + held, "instance");
  const rest = [waiting && `${count(waiting)} would wait`, held && `${count(held)} would be limited by the maximum of running instances`].filter(Boolean);
  if (room?.hostlessInstances) rest.unshift(`${count(room.hostlessInstances)} of these would wait for a host`);
  return [`${count(admitted)} of ${all} would be admitted now in ${plan.poolPath}`, ...rest].join(", ");
}

function daemonLine({ cluster, notKnown, hosts = 0, matchingHosts = 0, hostsWithRoom = 0 }: PlannedDaemon): string {
  const where = cluster ? `cluster ${cluster}: ` : "";
  if (notKnown) return `${where}not known: ${notKnown}`;
  return `${where}${count(matchingHosts)} of ${count(hosts, "host")} match, ${count(hostsWithRoom)} with enough free resources now`;
}

export function PlanOutcome({ wanted, plan }: { wanted: Wanted; plan: Planned }) {
  const { service, method, request } = planCall(wanted);
  return (
    <section aria-label="Plan">
      <h2>Plan</h2>
      {wanted.kind === "pool" ? <PoolOutcome plan={plan as PoolPlanned & { poolPath: string; isNew?: boolean; text?: string }} /> : <JobOutcome kind={wanted.kind} plan={plan as JobPlanned} />}
      <SameAs title="This plan from a terminal" command={planCommand(wanted)} service={service} method={method} request={request} />
    </section>
  );
}

const sentence = (lines: string) => lines.split("\n").map((line) => line.charAt(0).toUpperCase() + line.slice(1)).join("\n");

function JobOutcome({ kind, plan }: { kind: Kind; plan: JobPlanned }) {
  const { admittedInstances: admitted = 0, waitingInstances: waiting = 0, heldBackInstances: held = 0, evictions = [], room } = plan;
  if (plan.daemon?.length) return <DaemonOutcome plan={plan} clusters={plan.daemon} />;
  const parts = [
    { name: "admitted", value: admitted, tone: "allocation" as const }, { name: "would wait", value: waiting, tone: "demand" as const },
    { name: "over the maximum", value: held, tone: "slack" as const },
  ];
  return (
    <>
      <Bar label="Instances" parts={parts} whole={admitted + waiting + held} text={headline(kind, plan)} />
      {room?.text && <p class={room.notKnown ? "lines stale" : "lines"}>{sentence(room.text)}</p>}
      {(plan.waiting?.length || plan.reasons?.length) ? <WhyTree why={plan} /> : null}
      <Evictions evictions={evictions} names={plan.jobNames} />
      {!evictions.length && <p>No pods would be evicted for it.</p>}
      {kind === "service" && <p class="quiet">The plan is for all instances at once; batches are not planned.</p>}
    </>
  );
}

function DaemonOutcome({ plan, clusters }: { plan: JobPlanned; clusters: PlannedDaemon[] }) {
  return (
    <>
      {clusters.filter((one) => !one.notKnown).map((one) => {
        const parts = [
          { name: "run at once", value: one.hostsWithRoom ?? 0, tone: "allocation" as const }, { name: "after evictions", value: one.evictingHosts ?? 0, tone: "slack" as const },
          { name: "later", value: (one.waitingHosts ?? 0) + (one.uncheckedHosts ?? 0) + (one.hostsInMaintenance ?? 0), tone: "demand" as const },
        ];
        return <Bar key={one.cluster} label={one.cluster || "Hosts"} parts={parts} whole={one.hosts ?? 0} text={daemonLine(one)} />;
      })}
      <p class={clusters.some((one) => one.notKnown) ? "lines stale" : "lines"}>{plan.text}</p>
    </>
  );
}

function PoolOutcome({ plan }: { plan: PoolPlanned & { poolPath: string; isNew?: boolean; text?: string } }) {
  return (
    <>
      {plan.isNew ? <p>{plan.poolPath} would be a new pool.</p>
        : <p class="stale">{plan.poolPath} exists: this is what changing it to this file would do. Creating it will be refused; <code>peloton respool update</code> changes it.</p>}
      <Outcome plan={plan} />
      {plan.text && <details><summary>In words</summary><p class="lines">{plan.text}</p></details>}
    </>
  );
}
