// All hosts: a map, and a table of those that a filter leaves. Filters, order and colours are in the address.
import { count, kindName, type Kind } from "../format";
import { hostHref } from "../host";
import { COLOURINGS, type Host, HOST_STATES, useHosts } from "../hosts";
import { parameter, setParameters } from "../router";
import { ColouredBy } from "../parts/coloured-by";
import { Empty } from "../parts/empty";
import { HeatMap } from "../parts/heat-map";
import { HostEvents } from "../parts/host-events";
import { Stale } from "../parts/problem";
import { SameAs } from "../parts/same-as";
import { State } from "../parts/state";
import { Cards } from "../parts/cards";

const ROWS_SHOWN = 200;
const PERCENT_KINDS: Kind[] = ["cpu", "memory"];

const ORDERS: Record<string, (host: Host) => number | string> = {
  name: (host) => host.name,
  state: (host) => host.state,
  pods: (host) => -host.pods,
  cpu: (host) => -(host.allocation.cpu ?? -1),
  memory: (host) => -(host.allocation.memory ?? -1),
  "cpu-used": (host) => -(host.used.cpu ?? -1),
  "memory-used": (host) => -(host.used.memory ?? -1),
};

export default function HostsPage() {
  const { hosts, silent, error } = useHosts();
  const colouring = COLOURINGS.find((one) => one.name === parameter("colour")) ?? COLOURINGS[0]!;
  return (
    <>
      <h1>Hosts</h1>
      <Stale error={error} />
      {silent.length > 0 && <p class="stale" role="alert">Without the hosts of {silent.join(", ")}, whose host managers do not answer.</p>}
      {!hosts && !error && <p class="quiet" aria-busy="true">Loading</p>}
      {hosts && !hosts.length && <Empty command="peloton up --simulate 1000">There are no hosts yet.</Empty>}
      {hosts && hosts.length > 0 && <Found all={hosts} colouring={colouring} />}
      <HostEvents />
      <SameAs command="peloton host query" service="peloton.api.v0.overview.OverviewService" method="GetHostMap" />
    </>
  );
}

function Found({ all, colouring }: { all: Host[]; colouring: (typeof COLOURINGS)[number] }) {
  const [text, state, pool, order] = [parameter("name"), parameter("state"), parameter("pool"), parameter("order") || "name"];
  const pools = [...new Set(all.map((host) => host.pool))].filter(Boolean).sort();
  const chosen = all.filter((host) => host.name.includes(text) && (!state || host.state === state) && (!pool || host.pool === pool));
  const key = ORDERS[order] ?? ORDERS.name!;
  const sorted = order === "name" ? chosen : [...chosen].sort((one, other) => compared(key(one), key(other)));
  return (
    <>
      <p class="facts">
        <label>Name <input type="search" value={text} onInput={(event) => setParameters({ name: event.currentTarget.value })} /></label>
        <label>
          State{" "}
          <select value={state} onChange={(event) => setParameters({ state: event.currentTarget.value })}>
            <option value="">any</option>
            {Object.values(HOST_STATES).map((one) => <option key={one} value={one}>{one.toLowerCase()}</option>)}
          </select>
        </label>
        {pools.length > 0 && (
          <label>
            Host pool{" "}
            <select value={pool} onChange={(event) => setParameters({ pool: event.currentTarget.value })}>
              <option value="">any</option>
              {pools.map((one) => <option key={one}>{one}</option>)}
            </select>
          </label>
        )}
        <ColouredBy chosen={colouring.name} />
      </p>
      <p>{count(chosen.length, "host")}{chosen.length < all.length ? ` of ${count(all.length)}` : ""}</p>
      {chosen.length > 0 ? <HeatMap hosts={sorted} colouring={colouring} /> : <Empty>No host matches.</Empty>}
      <Rows hosts={sorted} order={order} hasPools={pools.length > 0} />
    </>
  );
}

function compared(one: number | string, other: number | string): number {
  return one < other ? -1 : one > other ? 1 : 0;
}

function Rows({ hosts, order, hasPools }: { hosts: Host[]; order: string; hasPools: boolean }) {
  const head = (name: string, title: string, isFigure = true) => (
    <th class={isFigure ? "figure" : ""} aria-sort={order === name ? (name === "name" || name === "state" ? "ascending" : "descending") : "none"}>
      <button type="button" class="plain" onClick={() => setParameters({ order: name === "name" ? "" : name })}>{title}</button>
    </th>
  );
  const figure = (value?: number) => <td class="figure">{value === undefined ? "" : `${value} %`}</td>;
  return (
    <Cards>
      <table>
        <caption>{hosts.length > ROWS_SHOWN ? `The first ${ROWS_SHOWN} of ${count(hosts.length)}` : "Each host"}</caption>
        <thead>
          <tr>
            {head("name", "Host", false)}
            {head("state", "State", false)}
            {hasPools && <th>Host pool</th>}
            {head("pods", "Pods")}
            {PERCENT_KINDS.map((kind) => head(kind, `${kindName(kind)} allocated`))}
            {PERCENT_KINDS.map((kind) => head(`${kind}-used`, `${kindName(kind)} used`))}
            <th>Mark</th>
          </tr>
        </thead>
        <tbody>
          {hosts.slice(0, ROWS_SHOWN).map((host) => (
            <tr key={`${host.cluster}/${host.name}`}>
              <td><a href={hostHref(host.name)}>{host.name}</a>{host.isAvoided && <span class="quiet"> avoided</span>}</td>
              <td><State state={host.state} />{host.isMaintained && host.state === "UP" && <span class="quiet"> waits for maintenance</span>}</td>
              {hasPools && <td>{host.pool}</td>}
              <td class="figure">{count(host.pods)}</td>
              {PERCENT_KINDS.map((kind) => figure(host.allocation[kind]))}
              {PERCENT_KINDS.map((kind) => figure(host.used[kind]))}
              <td>{host.mark && <State state={host.mark} />}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Cards>
  );
}
