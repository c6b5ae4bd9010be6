// What the topics of pools tell, and what pages make of it.
import { inOrder, type Kind } from "./format";

export interface Amounts {
  reservation: number;
  limit: number | null; // null: none
  share: number;
  entitlement: number;
  allocation: number;
  slack: number; // the revocable part of the allocation
  demand: number;
}

export interface Pool {
  path: string;
  depth: number;
  isLeaf: boolean;
  queuedGangs: number;
  queuedInstances: number;
  amounts: Partial<Record<Kind, Amounts>>;
}

export type Row = [string, number, boolean, number, number, Record<string, [number, number | null, number, number, number, number, number]>];

export function poolOf([path, depth, isLeaf, queuedGangs, queuedInstances, kinds]: Row): Pool {
  const amounts: Pool["amounts"] = {};
  for (const [kind, [reservation, limit, share, entitlement, allocation, slack, demand]] of Object.entries(kinds)) {
    amounts[kind as Kind] = { reservation, limit, share, entitlement, allocation, slack, demand };
  }
  return { path, depth, isLeaf, queuedGangs, queuedInstances, amounts };
}

export function poolHref(path: string): string {
  return path === "/" ? "/pools" : `/pools${path.split("/").map(encodeURIComponent).join("/")}`;
}

export function nameOf(path: string): string {
  return path === "/" ? "/" : path.slice(path.lastIndexOf("/") + 1);
}

export function kindsOf(pools: Pool[]): Kind[] {
  return inOrder(pools.flatMap((pool) => Object.keys(pool.amounts)));
}

// The value at the right end of every bar: what waits may go beyond it, what is held never.
export function scaleOf(pools: Pool[], kind: Kind): number {
  const most = pools.map(({ amounts: { [kind]: one } }) => (one ? Math.max(one.reservation, one.entitlement, one.allocation) : 0));
  return Math.max(...most, 0);
}

export interface OverTime {
  start: string;
  stepS: number;
  count: number;
  pools: { path: string; isRecorded: boolean; allocation: Values; entitlement?: Values; reservation?: Values }[]; // the pool itself first
  marks: [number, string, string, number][]; // interval, pool, for which pool, instances
}

export type Values = (number | null)[];

// As PoolWhy has it: what is 0 or empty is left out.
interface Reason {
  rule?: string;
  text?: string;
  blockingReason?: Reason;
}

export interface Waiting {
  jobId: { value: string };
  jobName?: string;
  queue?: string;
  firstInstance?: number;
  gangCount?: number;
  gangSize?: number;
  priority?: number;
  gangsAhead?: number;
  reason: Reason;
}

interface Loan {
  kind: Kind;
  poolPath: string;
  amount?: number;
  wantedBack?: number;
}

interface PoolNode {
  id: { value: string };
  path: string;
  depth?: number;
  isLeaf?: boolean;
  queuedGangs?: number;
  queuedInstances?: number;
  amounts?: ({ kind: Kind; limit?: number | "Infinity"; slackAllocation?: number } & Partial<Omit<Amounts, "limit">>)[];
}

export interface PoolData {
  pool: PoolNode;
  queues?: { poolPath: string; queue?: string; instanceCount?: number; head: Waiting }[];
  borrowed?: Loan[];
  lenders?: Loan[];
  lent?: Loan[];
  borrowers?: Loan[];
  waiting?: Waiting[];
}

// Of the kinds that it has anything of.
export function amountsOf(pool: PoolNode): Pool["amounts"] {
  const found: Pool["amounts"] = {};
  for (const { kind, limit = 0, reservation = 0, share = 0, entitlement = 0, allocation = 0, slackAllocation: slack = 0, demand = 0 } of pool.amounts ?? []) {
    const bound = limit === "Infinity" ? null : limit;
    if (reservation || entitlement || allocation || demand || bound) found[kind] = { reservation, limit: bound, share, entitlement, allocation, slack, demand };
  }
  return found;
}
