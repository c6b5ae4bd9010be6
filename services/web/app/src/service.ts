// What the topic "service" tells, and how a service is steered.
import { call } from "./api";
import { duration } from "./format";

export const SERVICE = "peloton.api.v1alpha.job.stateless.svc.JobService";

// [instance, state, host, version, message, health]
export type Pod = [number, string, string, string, string, string];

export interface Update {
  type?: string;
  state?: string;
  numInstancesCompleted?: number;
  numInstancesRemaining?: number;
  numInstancesFailed?: number;
  instancesCurrent?: number[];
  version?: { value: string };
  prevVersion?: { value: string };
  creationTime?: string;
  completionTime?: string;
  waitingFor?: string;
  awaitingPulse?: boolean;
}

export interface Told {
  job: {
    jobInfo: {
      spec: { name?: string; owner?: string; instanceCount?: number; sla?: { maximumUnavailableInstances?: number; priority?: number } };
      status: { state?: string; desiredState?: string; version?: { value: string }; podStats?: Record<string, number>; workflowStatus?: Update; creationTime?: string };
    };
    workflowInfo?: { updateSpec?: { batchSize?: number; rollbackOnFailure?: boolean } };
    disruptions?: { timestamp: string; instanceId?: number; granted?: boolean; message?: string; reason?: string }[];
  };
  pods: Pod[];
  why: string;
  poolPath: string;
}

export function word(name: string | undefined, prefix: string): string {
  return (name ?? "").replace(prefix, "");
}

export function lasted(update: Update): string {
  if (!update.creationTime) return "";
  const end = update.completionTime ? new Date(update.completionTime).getTime() : Date.now();
  return duration(Math.max(0, (end - new Date(update.creationTime).getTime()) / 1000));
}

export async function steer(id: string, verb: string, version: string | undefined): Promise<void> {
  await call(SERVICE, `${verb}JobWorkflow`, { jobId: { value: id }, version: { value: version } });
}
