// A pool: what it has and may use, its queue in order and why each waits, over time, and what a change would do.
import { call } from "../api";
import { inOrder, kindName, KINDS } from "../format";
import { useLive } from "../live";
import type { PageProps } from "./all";
import { chosenKind, KindChoice } from "../parts/kind-choice";
import { Confirm } from "../parts/confirm";
import { PoolBar, PoolBarLegend } from "../parts/pool-bar";
import { PoolHistory } from "../parts/pool-history";
import { PoolPlan } from "../parts/pool-plan";
import { Loans, Queue } from "../parts/pool-queue";
import { Absent, Stale } from "../parts/problem";
import { SameAs } from "../parts/same-as";
import { amountsOf, nameOf, type Pool as PoolRow, poolHref, poolOf, type PoolData, type Row, scaleOf } from "../pools";
import { go } from "../router";
import { RESPOOLS } from "../submit";

export default function Pool({ arguments: { path: rest = "" } }: PageProps) {
  const path = `/${rest}`;
  const { value, error } = useLive<PoolData>(`pool:${path}`);
  const tree = useLive<Row[]>("pools").value?.map(poolOf) ?? [];
  if (!value) return <Absent what="pool" name={path} error={error} all={{ href: "/pools", title: "All pools" }} />;
  const amounts = amountsOf(value.pool);
  const kinds = inOrder(Object.keys(amounts));
  const kind = chosenKind(kinds);
  const root = tree.find((pool) => pool.path === "/");
  const below = tree.filter((pool) => pool.path !== path && pool.path.startsWith(`${path}/`) && pool.depth === (value.pool.depth ?? 0) + 1);
  return (
    <>
      <Breadcrumbs path={path} />
      <h1>{nameOf(path)}</h1>
      <Stale error={error} />
      <section aria-label="Amounts">
        <h2 class="hidden">Amounts</h2>
        <PoolBarLegend />
        {kinds.map((each) => {
          const one = amounts[each]!;
          const whole = Math.max(one.reservation, one.entitlement, one.allocation, one.limit ?? 0);
          return <div class="row" key={each}><h3>{kindName(each)}</h3><PoolBar label={kindName(each)} kind={each} amounts={one} whole={whole} /></div>;
        })}
        {!kinds.length && <p class="quiet">The pool has no resources and no queued jobs.</p>}
      </section>
      <p class="facts">
        {value.pool.isLeaf && <a href={`/submit?kind=job&pool=${encodeURIComponent(path)}`}>Submit a job to it</a>}
        <a href={`/submit?kind=pool&parent=${encodeURIComponent(path)}`}>Create a pool below it</a>
        <a href={`/usage?pool=${encodeURIComponent(path)}`}>Its usage</a>
      </p>
      {value.pool.isLeaf && path !== "/" && (
        <p class="buttons">
          <Confirm label="Delete" weight="danger" title={`Delete ${path}?`} act={() => call(RESPOOLS, "DeleteResourcePool", { path: { value: path } }).then(() => go("/pools"))}>
            <p>Its reservation goes to the other pools. A pool that a job uses cannot be deleted.</p>
          </Confirm>
        </p>
      )}
      <Queue data={value} path={path} />
      <Loans data={value} />
      <p><KindChoice kinds={kinds.length ? kinds : KINDS} chosen={kind} /></p>
      {below.length > 0 && <Below pools={below} kind={kind} />}
      <PoolHistory path={path} kind={kind} />
      <PoolPlan id={value.pool.id.value} path={path} kind={kind} capacity={root?.amounts[kind]?.reservation ?? 0} />
      <SameAs command={`peloton respool why ${path}`} service="peloton.api.v0.explain.ExplainService" method="PoolWhy" request={{ path: { value: path }, queueLimit: 100 }} />
    </>
  );
}

function Breadcrumbs({ path }: { path: string }) {
  const parts = path.split("/").filter(Boolean).slice(0, -1);
  return (
    <nav aria-label="Pools above">
      <a href="/pools">Pools</a>
      {parts.map((part, index) => <span key={index}> / <a href={poolHref(`/${parts.slice(0, index + 1).join("/")}`)}>{part}</a></span>)}
    </nav>
  );
}

function Below({ pools, kind }: { pools: PoolRow[]; kind: keyof PoolRow["amounts"] }) {
  const whole = scaleOf(pools, kind);
  return (
    <section aria-label="Pools below">
      <h2>Pools below</h2>
      {pools.map((pool) => (
        <div class="row" key={pool.path}>
          <h3><a href={poolHref(pool.path)}>{nameOf(pool.path)}</a></h3>
          {pool.amounts[kind] ? <PoolBar label={pool.path} kind={kind} amounts={pool.amounts[kind]} whole={whole} /> : <span class="quiet">no {kindName(kind)}</span>}
        </div>
      ))}
    </section>
  );
}
