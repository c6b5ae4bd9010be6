// What the pools below a pool held over time: who lent to whom, when it came back, and what was preempted for it.
import { useMemo } from "preact/hooks";
import { amount, count, duration, type Kind, time } from "../format";
import { useLive } from "../live";
import { nameOf, type OverTime, poolHref, type Values } from "../pools";
import { Empty } from "./empty";
import { Stale } from "./problem";
import { chosenRange, RangeChoice } from "./range-choice";
import { beginOf, isDrawn, type Layer, letterOf, Stack, TONES, Undrawn } from "./stack";
import { Cards } from "./cards";

const LAYERS_MAX = 10;
const RANGE_FIRST = "6";
const MARKS_SHOWN = 50;

export function PoolHistory({ path, kind }: { path: string; kind: Kind }) {
  const hours = chosenRange(RANGE_FIRST);
  const { value, error } = useLive<OverTime>(`pool-history:${hours}/${encodeURIComponent(kind)}${path}`);
  return (
    <section aria-label="Over time" data-varies>
      <h2>Over time</h2>
      <p><RangeChoice chosen={hours} /></p>
      <Stale error={error} />
      {value ? <Chart data={value} kind={kind} /> : !error && <p class="quiet" aria-busy="true">Loading</p>}
    </section>
  );
}

function Chart({ data: all, kind }: { data: OverTime; kind: Kind }) {
  const data = useMemo(() => recorded(all), [all]);
  const { timesS, layers, lines, marks } = useMemo(() => drawn(data), [data]);
  const [own] = data.pools;
  if (!own?.isRecorded) {
    return <Empty command={`peloton respool history ${own?.path ?? "/"}`}>Nothing was recorded in that time: the first point comes within a minute.</Empty>;
  }
  const shown = (value: number) => amount(kind, value);
  const step = duration(data.stepS);
  return (
    <>
      {isDrawn(layers) ? <Stack label={`Allocation of ${own.path} by pool over time; the table below has its numbers`} timesS={timesS} layers={layers} lines={lines} marks={marks} shown={shown} /> : <Undrawn step={step} />}
      <Cards>
        <table>
          <caption>Allocation in intervals of {step}{data.start !== all.start && `; nothing was recorded before ${time(timesS[0]! * 1000)}`}</caption>
          <thead><tr><th>Pool</th><th class="figure">First</th><th class="figure">Last</th><th class="figure">Most</th></tr></thead>
          <tbody>
            {layers.map((layer, index) => (
              <tr key={layer.name}>
                <td><span class={`key series-${index % TONES}`}>{letterOf(index)}</span> {layer.href ? <a href={layer.href}>{layer.name}</a> : layer.name}</td>
                <td class="figure">{edge(layer.values, shown)}</td>
                <td class="figure">{edge([...layer.values].reverse(), shown)}</td>
                <td class="figure">{shown(Math.max(...layer.values.map((each) => each ?? 0)))}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Cards>
      <Preemptions data={data} timesS={timesS} />
    </>
  );
}

function Preemptions({ data, timesS }: { data: OverTime; timesS: number[] }) {
  if (!data.marks.length) return <p class="quiet">No pods were preempted in that time.</p>;
  const latest = [...data.marks].sort(([one], [other]) => other - one).slice(0, MARKS_SHOWN);
  return (
    <details>
      <summary>▼ {count(data.marks.length, "preemption")}</summary>
      <ul>
        {latest.map(([index, path, forPool, instances]) => (
          <li key={`${index} ${path} ${forPool}`}>
            {time(timesS[index]! * 1000)}: {instances} of <a href={poolHref(path)}>{path}</a>{" "}
            {forPool === path ? "for gangs of a higher priority there" : forPool ? <>for <a href={poolHref(forPool)}>{forPool}</a></> : "for several pools"}
          </li>
        ))}
      </ul>
    </details>
  );
}

interface Drawn {
  timesS: number[];
  layers: (Layer & { href?: string })[];
  lines: Layer[];
  marks: { index: number; text: string }[];
}

function recorded(data: OverTime): OverTime {
  const begin = beginOf(data.pools.map((pool) => pool.allocation), data.count);
  if (!begin) return data;
  const pools = data.pools.map((pool) => ({
    ...pool, allocation: pool.allocation.slice(begin), entitlement: pool.entitlement?.slice(begin), reservation: pool.reservation?.slice(begin),
  }));
  const marks = data.marks.map(([index, ...mark]): OverTime["marks"][number] => [index - begin, ...mark]);
  return { ...data, start: new Date(new Date(data.start).getTime() + begin * data.stepS * 1000).toISOString(), count: data.count - begin, pools, marks };
}

// The pools with the most of it, the others together as the last layer.
function drawn(data: OverTime): Drawn {
  const start = new Date(data.start).getTime() / 1000;
  const timesS = Array.from({ length: data.count }, (_, index) => start + index * data.stepS);
  const [own, ...below] = data.pools;
  const parts = (below.length ? below : own ? [own] : []).map((pool) => ({ path: pool.path, values: pool.allocation }));
  parts.sort((one, other) => sum(other.values) - sum(one.values));
  const layers: Drawn["layers"] = parts.slice(0, LAYERS_MAX).map(({ path, values }) => ({ name: nameOf(path), values, href: poolHref(path) }));
  const others = parts.slice(LAYERS_MAX);
  if (others.length) {
    const values = timesS.map((_, at) => others.reduce<number | null>((all, { values }) => (values[at] == null ? all : (all ?? 0) + values[at]!), null));
    layers.push({ name: `${others.length} others`, values });
  }
  const lines = own ? [{ name: own.path === "/" ? "capacity" : "entitlement", values: (own.path === "/" ? own.reservation : own.entitlement) ?? [] }] : [];
  const marks = data.marks.map(([index, path, forPool, instances]) => ({ index, text: `${instances} of ${path} for ${forPool}` }));
  return { timesS, layers, lines, marks };
}

function sum(values: Values): number {
  return values.reduce<number>((all, value) => all + (value ?? 0), 0);
}

function edge(values: Values, shown: (value: number) => string): string {
  const first = values.find((value) => value !== null);
  return first == null ? "–" : shown(first);
}
