// What the clusters had, what pods held of it and used, over time.
import { useMemo } from "preact/hooks";
import { amount, count, duration, kindName, type Kind, percent, time } from "../format";
import { useLive } from "../live";
import type { Values } from "../pools";
import { Empty } from "./empty";
import { chosenKind, KindChoice } from "./kind-choice";
import { Stale } from "./problem";
import { chosenRange, RangeChoice } from "./range-choice";
import { beginOf, isDrawn, type Layer, letterOf, Stack, TONES, Undrawn } from "./stack";
import { Cards } from "./cards";

const RANGE_FIRST = "24";
const ROWS_MAX = 24;
const NO_MARKS: never[] = [];

const QUANTITIES = ["registered", "capacity", "allocation", "slackAllocation", "use", "slack"] as const;
type Quantity = (typeof QUANTITIES)[number];

interface OverTime {
  start: string;
  stepS: number;
  count: number;
  isRecorded: boolean;
  series: Partial<Record<Quantity, Values>>; // what was 0 throughout is left out
  missing: Record<string, number>; // cluster -> intervals without it
}

export function ClusterHistory({ kinds }: { kinds: Kind[] }) {
  const kind = chosenKind(kinds);
  const hours = chosenRange(RANGE_FIRST);
  const { value, error } = useLive<OverTime>(`cluster-history:${hours}/${kind}`);
  return (
    <section aria-label="Over time" data-varies>
      <h2>Over time</h2>
      <p class="buttons"><KindChoice kinds={kinds} chosen={kind} /> <RangeChoice chosen={hours} /></p>
      <Stale error={error} />
      {value ? <Chart data={value} kind={kind} /> : !error && <p class="quiet" aria-busy="true">Loading</p>}
    </section>
  );
}

function Chart({ data, kind }: { data: OverTime; kind: Kind }) {
  const { timesS, layers, lines, isYoung } = useMemo(() => drawn(data), [data]);
  if (!data.isRecorded) {
    return <Empty command="peloton overview history">Nothing was recorded in that time: the first point comes within a minute.</Empty>;
  }
  const shown = (value: number) => amount(kind, value);
  const all = [...layers, ...lines];
  const step = duration(data.stepS);
  const missing = Object.entries(data.missing);
  return (
    <>
      {isDrawn(layers) ? <Stack label={`${kindName(kind)} of the clusters over time; the tables below have its numbers`} timesS={timesS} layers={layers} lines={lines} marks={NO_MARKS} shown={shown} /> : <Undrawn step={step} />}
      <Cards>
        <table>
          <caption>{kindName(kind)} in intervals of {step}{isYoung && `; nothing was recorded before ${time(timesS[0]! * 1000)}`}</caption>
          <thead><tr><th>What</th><th class="figure">First</th><th class="figure">Last</th><th class="figure">Mean</th><th class="figure">Most</th></tr></thead>
          <tbody>
            {all.map(({ name, values }, index) => {
              const there = values.filter((each) => each !== null);
              return (
                <tr key={name}>
                  <td><span class={`key ${index < layers.length ? `series-${index % TONES}` : "line"}`}>{letterOf(index)}</span> {name}</td>
                  <td class="figure">{shown(there[0]!)}</td>
                  <td class="figure">{shown(there[there.length - 1]!)}</td>
                  <td class="figure">{shown(there.reduce((sum, each) => sum + each, 0) / there.length)}</td>
                  <td class="figure">{shown(Math.max(...there))}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </Cards>
      {missing.map(([cluster, intervals]) => (
        <p key={cluster} class="quiet">Cluster {cluster} was not recorded in {count(intervals, "interval")}: the sums there are without it.</p>
      ))}
      <details>
        <summary>Numbers by time</summary>
        <ByTime timesS={timesS} all={all} shown={shown} />
      </details>
    </>
  );
}

// The same as rows, of so many intervals together that they can be read.
function ByTime({ timesS, all, shown }: { timesS: number[]; all: Layer[]; shown: (value: number) => string }) {
  const together = Math.ceil(timesS.length / ROWS_MAX);
  const starts = Array.from({ length: Math.ceil(timesS.length / together) }, (_, row) => row * together);
  const whole = all.find((each) => each.name === CAPACITY)?.values ?? [];
  return (
    <Cards>
      <table>
        <thead><tr><th>From</th>{all.map(({ name }) => <th key={name} class="figure">{name}</th>)}</tr></thead>
        <tbody>
          {starts.map((from) => {
            const of = mean(whole, from, from + together);
            return (
              <tr key={from}>
                <td>{time(timesS[from]! * 1000)}</td>
                {all.map(({ name, values }) => {
                  const value = mean(values, from, from + together);
                  const part = value !== null && of && name !== CAPACITY ? ` (${percent(value, of)})` : "";
                  return <td key={name} class="figure">{value === null ? "not recorded" : shown(value) + part}</td>;
                })}
              </tr>
            );
          })}
        </tbody>
      </table>
    </Cards>
  );
}

function mean(values: Values, from: number, to: number): number | null {
  const there = values.slice(from, to).filter((each) => each !== null);
  return there.length ? there.reduce((sum, each) => sum + each, 0) / there.length : null;
}

const CAPACITY = "capacity";

// Amounts that revocable pods hold are part of the allocation.
function drawn({ start, stepS, count: length, series }: OverTime): { timesS: number[]; layers: Layer[]; lines: Layer[]; isYoung: boolean } {
  const begin = beginOf(Object.values(series), length);
  const startS = new Date(start).getTime() / 1000 + begin * stepS;
  const timesS = Array.from({ length: length - begin }, (_, index) => startS + index * stepS);
  const [registered, capacity, allocation, slackAllocation, use, slack] = QUANTITIES.map((quantity) => series[quantity]?.slice(begin));
  const nothing = (registered ?? []).map((value) => (value === null ? null : 0));
  const held = allocation ?? nothing;
  const firm = slackAllocation ? held.map((value, at) => (value === null ? null : Math.max(value - (slackAllocation[at] ?? 0), 0))) : held;
  const layers: Layer[] = [{ name: slackAllocation ? "allocated, not revocable" : "allocated", values: firm }];
  if (slackAllocation) layers.push({ name: "held of the slack by revocable pods", values: slackAllocation });
  const lines: Layer[] = [{ name: CAPACITY, values: registered ?? [] }];
  if (capacity?.some((value, at) => value !== registered?.[at])) lines.push({ name: "capacity of hosts that take pods", values: capacity });
  if (use) lines.push({ name: "used, as measured", values: use });
  if (slack) lines.push({ name: "slack", values: slack });
  return { timesS, layers, lines: lines.filter((line) => line.values.length), isYoung: begin > 0 };
}
