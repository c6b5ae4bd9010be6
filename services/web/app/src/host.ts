// What the topic "host" tells.
import type { Kind } from "./format";

export const MAINTENANCE = "peloton.api.v0.maintenance.MaintenanceService";

export function hostHref(hostname: string): string {
  return `/hosts/${encodeURIComponent(hostname)}`;
}

export interface Amounts {
  cpu?: number;
  memoryMib?: number;
  diskMib?: number;
  gpu?: number;
  extended?: Record<string, number>;
}

export interface Pod {
  podId: string;
  jobId: string;
  jobName?: string;
  jobType?: string;
  poolPath?: string;
  instanceId?: number;
  priority?: string;
  state?: string;
  since?: string;
  asked?: Amounts;
  isRevocable?: boolean;
  isPreemptible?: boolean;
  workload?: string;
  hasVolume?: boolean;
  isLeaving?: boolean;
}

export interface Maintenance {
  state?: string;
  goalState?: string;
  forced?: boolean;
  reason?: string;
  requestedTime?: string;
  drainTime?: string;
  deadline?: string;
  podCount?: number;
  leavingCount?: number;
  blockers?: { jobId: string; jobName?: string; podCount?: number; reason?: string }[];
  waitingFor?: string;
  toPool?: string;
}

export interface Data {
  host: {
    hostname: string;
    ip?: string;
    state?: string;
    goalState?: string;
    cluster?: string;
    currentPool?: string;
    desiredPool?: string;
    labels?: { key: string; value: string }[];
    capacity?: Amounts;
    free?: Amounts;
    used?: Amounts;
    slackCpu?: number;
    slackHeldCpu?: number;
    avoided?: string;
    reserved?: string;
    marked?: string;
  };
  pods: { pods?: Pod[]; hasMore?: boolean };
  maintenance: Maintenance | null;
}

export function of(amounts: Amounts | undefined, kind: Kind): number {
  const { cpu = 0, memoryMib = 0, diskMib = 0, gpu = 0 } = amounts ?? {};
  const known: Record<string, number> = { cpu, memory: memoryMib, disk: diskMib, gpu };
  return known[kind] ?? amounts?.extended?.[kind] ?? 0;
}

export function stateWord(state?: string): string {
  return (state ?? "").replace("HOST_STATE_", "");
}
