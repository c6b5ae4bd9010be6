// The cluster in one screen.
import { amount, KIND_NAMES, type Kind, percent } from "../format";
import { useLive } from "../live";
import { Bar } from "../parts/bar";
import { Stale } from "../parts/problem";
import { SameAs } from "../parts/same-as";

interface Amounts {
  kind: Kind;
  reservation?: number;
  allocation?: number;
  slackAllocation?: number;
  demand?: number;
}

interface Told {
  tree: { pools?: { path: string; amounts?: Amounts[] }[] };
}

export default function Overview() {
  const { value, error } = useLive<Told>("overview");
  const root = value?.tree.pools?.[0];
  return (
    <>
      <h1>Overview</h1>
      <Stale error={error} />
      <section aria-label="Capacity">
        <h2>Capacity</h2>
        {root ? (root.amounts ?? []).map((one) => <Capacity key={one.kind} amounts={one} />) : !error && <p class="quiet" aria-busy="true">Loading</p>}
      </section>
      <SameAs command="peloton respool tree" service="peloton.api.v0.explain.ExplainService" method="PoolTree" />
    </>
  );
}

function Capacity({ amounts }: { amounts: Amounts }) {
  const { kind, reservation: capacity = 0, allocation = 0, slackAllocation: slack = 0, demand = 0 } = amounts;
  if (!capacity) return null;
  const waiting = demand ? `, ${amount(kind, demand)} wanted by pods that wait` : "";
  const text = `${amount(kind, allocation)} of ${amount(kind, capacity)} allocated (${percent(allocation, capacity)})${waiting}`;
  return (
    <div class="row">
      <h3>{KIND_NAMES[kind]}</h3>
      <Bar
        label={KIND_NAMES[kind]} text={text} whole={Math.max(capacity, allocation)}
        parts={[
          { name: "allocated", value: allocation - slack, tone: "allocation" },
          { name: "on slack", value: slack, tone: "slack" },
        ]}
        marks={[{ name: "capacity", value: capacity }]}
      />
    </div>
  );
}
