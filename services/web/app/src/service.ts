// What the topic "service" tells, and how a service is steered.
import { call } from "./api";
import { duration } from "./format";

export const SERVICE = "peloton.api.v1alpha.job.stateless.svc.JobService";

// [instance, state, host, entity version, message, health, run, start, completion, failures]
export type Pod = [number, string, string, string, string, string, number, string, string, number];

export interface Trouble {
  title: string;
  detail: string;
  instance: number; // whose stderr says more
}

export interface Update {
  type?: string;
  state?: string;
  numInstancesCompleted?: number;
  numInstancesRemaining?: number;
  numInstancesFailed?: number;
  numRunsFailed?: number;
  stalledTime?: string;
  stallCause?: string;
  instancesCurrent?: number[];
  version?: { value: string };
  prevVersion?: { value: string };
  creationTime?: string;
  completionTime?: string;
  waitingFor?: string;
  awaitingPulse?: boolean;
}

export interface Data {
  job: {
    jobInfo: {
      creator?: string;
      spec: { name?: string; owner?: string; instanceCount?: number; sla?: { maximumUnavailableInstances?: number; priority?: number } };
      status: { state?: string; desiredState?: string; version?: { value: string }; podStats?: Record<string, number>; workflowStatus?: Update; creationTime?: string };
    };
    workflowInfo?: { updateSpec?: { batchSize?: number }; restartSpec?: { batchSize?: number } };
    disruptions?: { timestamp: string; instanceId?: number; granted?: boolean; message?: string; reason?: string }[];
  };
  pods: Pod[];
  trouble: Trouble[];
  why: string;
  poolPath: string;
  aurora: string; // what clients of Aurora call the update
}

export function word(name: string | undefined, prefix: string): string {
  return (name ?? "").replace(prefix, "");
}

// The number of the configuration, which is all that instances have of an entity version such as 2-1-3 (configuration, goal,
// update); empty where there was none yet.
export function versionOf(entity: string | undefined): string {
  const number = (entity ?? "").split("-")[0]!;
  return number === "0" ? "" : number;
}

export function lasted(update: Update): string {
  if (!update.creationTime) return "";
  const end = update.completionTime ? new Date(update.completionTime).getTime() : Date.now();
  return duration(Math.max(0, (end - new Date(update.creationTime).getTime()) / 1000));
}

const ENDED = ["SUCCEEDED", "ROLLED_BACK", "ABORTED", "FAILED", "INVALID", ""];

// Whether its latest update is under way, or paused.
export function isRolling(data: Data): boolean {
  return !ENDED.includes(word(data.job.jobInfo.status.workflowStatus?.state, "WORKFLOW_STATE_"));
}

// Instances that its latest update or restart takes at a time; 0: all.
export function batchOf({ job: { workflowInfo } }: Data): number {
  return workflowInfo?.updateSpec?.batchSize ?? workflowInfo?.restartSpec?.batchSize ?? 0;
}

export async function steer(id: string, verb: string, version: string | undefined): Promise<void> {
  await call(SERVICE, `${verb}JobWorkflow`, { jobId: { value: id }, version: { value: version } });
}
