// What if a pool's reservation, limit or share were another: the answer of `respool plan`, and the change if it is wanted.
import { useEffect, useState } from "preact/hooks";
import { call } from "../api";
import { amount, called, count, duration, type Kind, kindName } from "../format";
import { poolHref } from "../pools";
import { useAsked } from "./asked";
import { Confirm } from "./confirm";
import { Problem } from "./problem";
import { SameAs } from "./same-as";
import { Cards } from "./cards";

const RESPOOLS = "peloton.api.respool.ResourceManager";
const EXPLAIN = "peloton.api.v0.explain.ExplainService";
const MOVED_MS = 250;
const SHARE_MAX = 20;
const QUANTITIES = ["reservation", "limit", "share"] as const;
type Quantity = (typeof QUANTITIES)[number];

type Resource = { kind: Kind; type?: string } & Partial<Record<Quantity, number>>;
interface Config {
  name: string;
  parent?: { value: string };
  resources?: Resource[];
}
export interface PoolPlanned {
  entitlements?: { poolPath: string; kind: Kind; before?: number; after?: number }[];
  aboveEntitlement?: { poolPath: string; kind: Kind; allocation?: number; entitlement?: number }[];
  admitted?: { jobId: { value: string }; poolPath: string; gangCount?: number; gangSize?: number; gangCountBefore?: number }[];
  evictions?: Eviction[];
  jobNames?: Record<string, string>;
}
export interface Eviction {
  jobId: { value: string };
  poolPath: string;
  instanceCount?: number;
  withinS?: number;
  text?: string;
}

export function PoolPlan({ id, path, kind, capacity }: { id: string; path: string; kind: Kind; capacity: number }) {
  const asked = useAsked(`config ${id}`, async () => (await call(RESPOOLS, "GetResourcePool", { id: { value: id } })).poolinfo.config as Config);
  if (asked.error) return <Problem title="Its configuration could not be read" text={asked.error.message} />;
  if (!asked.value) return <p class="quiet" aria-busy="true">Loading</p>;
  return <Dry key={kind} id={id} path={path} kind={kind} capacity={capacity} config={asked.value} again={asked.again} />;
}

function Dry({ id, path, kind, capacity, config, again }: { id: string; path: string; kind: Kind; capacity: number; config: Config; again: () => void }) {
  const now = config.resources?.find((one) => one.kind === kind) ?? { kind };
  const [wanted, setWanted] = useState<Partial<Record<Quantity, number>>>({});
  const [plan, setPlan] = useState<PoolPlanned | null>(null);
  const [failure, setFailure] = useState("");
  const isMoved = QUANTITIES.some((each) => each in wanted && wanted[each] !== (now[each] ?? 0));
  const changed = { ...config, resources: [...(config.resources ?? []).filter((one) => one.kind !== kind), { ...now, ...wanted }] };
  useEffect(() => {
    if (!isMoved) {
      setPlan(null);
      setFailure("");
      return;
    }
    let isOld = false;
    const timer = setTimeout(() => {
      call<PoolPlanned>(EXPLAIN, "PoolPlan", { config: changed }).then(
        (found) => {
          if (isOld) return;
          setPlan(found);
          setFailure("");
        },
        (error: Error) => {
          if (isOld) return;
          setPlan(null);
          setFailure(error.message);
        },
      );
    }, MOVED_MS);
    return () => {
      isOld = true;
      clearTimeout(timer);
    };
  }, [JSON.stringify(wanted), isMoved]);
  const update = async () => {
    await call(RESPOOLS, "UpdateResourcePool", { id: { value: id }, config: changed });
    setWanted({});
    again();
  };
  return (
    <section aria-label="What if">
      <h2>What if its {kindName(kind)} were other</h2>
      <div class="sliders">
        {QUANTITIES.map((each) => (
          <Slider key={each} kind={kind} quantity={each} now={now[each] ?? 0} value={wanted[each] ?? now[each] ?? 0} capacity={capacity} set={(value) => setWanted({ ...wanted, [each]: value })} />
        ))}
      </div>
      <div aria-live="polite">
        {failure && <p class="stale" role="alert">{failure}</p>}
        {!isMoved && <p class="quiet">Move a slider: the pool itself does not change.</p>}
        {plan && <Outcome plan={plan} />}
      </div>
      {isMoved && (
        <p class="buttons">
          <button type="button" onClick={() => setWanted({})}>As it is</button>
          <Confirm label="Change it" weight="primary" title={`Change ${path}?`} act={update} disabled={!plan}>
            <ul>{QUANTITIES.filter((each) => each in wanted).map((each) => <li key={each}>{each}: {shown(kind, each, now[each] ?? 0)} → {shown(kind, each, wanted[each]!)}</li>)}</ul>
          </Confirm>
        </p>
      )}
      {isMoved && <SameAs command={`peloton respool plan POOL.yaml --parent ${path.slice(0, path.lastIndexOf("/")) || "/"}`} service={EXPLAIN} method="PoolPlan" request={{ config: changed }} />}
    </section>
  );
}

function shown(kind: Kind, quantity: Quantity, value: number): string {
  return quantity === "share" ? count(value) : amount(kind, value);
}

function Slider({ kind, quantity, now, value, capacity, set }: { kind: Kind; quantity: Quantity; now: number; value: number; capacity: number; set: (value: number) => void }) {
  const isShare = quantity === "share";
  const most = isShare ? Math.max(SHARE_MAX, now) : Math.max(capacity, Math.min(now, 2 * capacity));
  const step = isShare || most < 1_000 ? 1 : Math.max(1, Math.round(most / 500));
  const id = `what-if-${quantity}`;
  return (
    <>
      <label for={id}>{quantity[0]!.toUpperCase() + quantity.slice(1)}</label>
      <input
        id={id} type="range" min={0} max={most} step={step} value={Math.min(value, most)} aria-valuetext={shown(kind, quantity, value)}
        onInput={(event) => set(Number(event.currentTarget.value))}
      />
      <span>{value > most ? "no limit" : shown(kind, quantity, value)}{value !== now && <span class="quiet"> (is {now > most ? "no limit" : shown(kind, quantity, now)})</span>}</span>
    </>
  );
}

export function Outcome({ plan }: { plan: PoolPlanned }) {
  const { entitlements = [], aboveEntitlement = [], admitted = [], evictions = [] } = plan;
  const more = admitted.filter((one) => (one.gangCount ?? 0) !== (one.gangCountBefore ?? 0));
  return (
    <>
      {entitlements.length ? (
        <Cards>
          <table>
            <thead><tr><th>Pool</th><th>Resource</th><th class="figure">Entitled now</th><th class="figure">Then</th></tr></thead>
            <tbody>
              {entitlements.map((one) => (
                <tr key={`${one.poolPath} ${one.kind}`}>
                  <td><a href={poolHref(one.poolPath)}>{one.poolPath}</a></td><td>{kindName(one.kind)}</td>
                  <td class="figure">{amount(one.kind, one.before ?? 0)}</td><td class="figure">{amount(one.kind, one.after ?? 0)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Cards>
      ) : <p>No entitlement would change.</p>}
      <ul>
        {aboveEntitlement.map((one) => (
          <li key={`${one.poolPath} ${one.kind}`}>{one.poolPath} would hold {amount(one.kind, one.allocation ?? 0)} and be entitled to {amount(one.kind, one.entitlement ?? 0)}.</li>
        ))}
        {more.map((one) => (
          <li key={`${one.jobId.value} ${one.poolPath}`}>
            Of <a href={`/jobs/${one.jobId.value}`}>{called(plan.jobNames?.[one.jobId.value], one.jobId.value)}</a> in {one.poolPath} {count((one.gangCount ?? 0) * (one.gangSize ?? 1), "instance")} would be admitted now, not {count((one.gangCountBefore ?? 0) * (one.gangSize ?? 1))}.
          </li>
        ))}
      </ul>
      <Evictions evictions={evictions} names={plan.jobNames} />
      {!evictions.length && <p>No further pods would be evicted.</p>}
    </>
  );
}

export function Evictions({ evictions, names = {} }: { evictions: Eviction[]; names?: Record<string, string> }) {
  if (!evictions.length) return null;
  return (
    <ul>
      {evictions.map((one, index) => (
        <li key={index}>▼ {count(one.instanceCount ?? 0, "instance")} of <a href={`/jobs/${one.jobId.value}`}>{called(names[one.jobId.value], one.jobId.value)}</a> in {one.poolPath} would be evicted within {duration(one.withinS ?? 0)}: {one.text}</li>
      ))}
    </ul>
  );
}
