// The tree of pools on one scale, live, and what they held over time.
import { useState } from "preact/hooks";
import { count, type Kind, kindName } from "../format";
import { useLive } from "../live";
import { Empty } from "../parts/empty";
import { chosenKind, KindChoice } from "../parts/kind-choice";
import { PoolBar, PoolBarLegend } from "../parts/pool-bar";
import { PoolHistory } from "../parts/pool-history";
import { Stale } from "../parts/problem";
import { SameAs } from "../parts/same-as";
import { kindsOf, nameOf, type Pool, poolHref, poolOf, type Row, scaleOf } from "../pools";

const OPEN_MAX = 100; // with more pools, those below the second level are shown when they are asked for

export default function Pools() {
  const { value, error } = useLive<Row[]>("pools");
  if (!value) return error ? <><h1>Pools</h1><Stale error={error} /></> : <p class="quiet" aria-busy="true">Loading</p>;
  const pools = value.map(poolOf);
  const kinds = kindsOf(pools);
  const kind = chosenKind(kinds);
  return (
    <>
      <h1>Pools</h1>
      <Stale error={error} />
      <p><KindChoice kinds={kinds} chosen={kind} /></p>
      <PoolBarLegend />
      <Tree pools={pools} kind={kind} />
      {pools.length < 2 && <Empty command="peloton respool create /tutorial examples/tutorial/pool.yaml">There is no pool yet. Jobs run in pools: <a href="/submit?kind=pool">write one</a>, or begin with an example:</Empty>}
      <PoolHistory path="/" kind={kind} />
      <SameAs command="peloton respool tree --watch" service="peloton.api.v0.explain.ExplainService" method="PoolTree" />
    </>
  );
}

function Tree({ pools, kind }: { pools: Pool[]; kind: Kind }) {
  const [turned, setTurned] = useState<Set<string>>(new Set());
  const whole = scaleOf(pools, kind);
  const isOpen = (pool: Pool) => (pools.length <= OPEN_MAX || pool.depth < 1) !== turned.has(pool.path);
  const turn = (path: string) => {
    const next = new Set(turned);
    if (!next.delete(path)) next.add(path);
    setTurned(next);
  };
  const closed: string[] = [];
  const shown = pools.filter((pool) => {
    if (closed.some((path) => pool.path.startsWith(path))) return false;
    if (!pool.isLeaf && !isOpen(pool)) closed.push(pool.path === "/" ? "/" : `${pool.path}/`);
    return true;
  });
  const root = shown.find((pool) => pool.path === "/") ?? pools[0];
  return (
    <ul class="pool-tree" aria-label={`Pools, ${kindName(kind)}`}>
      {(root && !shown.includes(root) ? [root, ...shown] : shown).map((pool) => (
        <li key={pool.path} style={{ "--depth": pool.depth }}>
          <span class="name">
            {!pool.isLeaf && pool.path !== "/" && (
              <button type="button" class="turn" aria-expanded={isOpen(pool)} aria-label={`Pools below ${pool.path}`} onClick={() => turn(pool.path)}>{isOpen(pool) ? "−" : "+"}</button>
            )}
            {pool.path === "/" ? <b>The cluster</b> : <a href={poolHref(pool.path)}>{nameOf(pool.path)}</a>}
            {pool.queuedInstances > 0 && <span class="quiet"> {count(pool.queuedInstances, "instance")} waiting</span>}
          </span>
          {pool.amounts[kind]
            ? <PoolBar label={pool.path} kind={kind} amounts={pool.amounts[kind]} whole={whole} />
            : <span class="quiet">no {kindName(kind)}</span>}
        </li>
      ))}
    </ul>
  );
}
