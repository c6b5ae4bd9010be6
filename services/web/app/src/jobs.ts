// Values of the topics "jobs", "job" and "states", and the parts of the address that select them.
import { parameter } from "./router";

export const JOB_TABLE = "peloton.api.v0.table.JobTableService";
export const JOB_MANAGER = "peloton.api.v0.job.JobManager";
export const TASK_MANAGER = "peloton.api.v0.task.TaskManager";

export const PAGE_SIZE = 50;
export const ENDED = ["SUCCEEDED", "FAILED", "KILLED"];
export const ACTIVE = ["INITIALIZED", "PENDING", "RUNNING", "KILLING", "UNINITIALIZED"];
export const JOB_STATES = ["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "KILLED", "KILLING", "INITIALIZED"];
export const JOB_TYPES = ["BATCH", "SERVICE", "DAEMON", "EXTERNAL"];
export const AGES: Record<string, number> = { "1h": 3_600, "24h": 86_400, "7d": 604_800, "30d": 2_592_000 };

// By the number of the wire; 0 has no pod yet.
export const POD_STATES: Record<number, string> = {
  0: "NOT CREATED", 1: "INITIALIZED", 2: "PENDING", 7: "STARTING", 8: "RUNNING", 9: "SUCCEEDED", 10: "FAILED", 11: "LOST",
  12: "PREEMPTING", 13: "KILLING", 14: "KILLED", 15: "LAUNCHED", 16: "DELETED", 17: "RESERVED",
};

export interface Row {
  id: { value: string };
  name?: string;
  type?: string;
  owner?: string;
  creator?: string;
  poolPath?: string;
  state?: string;
  goalState?: string;
  instanceCount?: number;
  taskStats?: Record<string, number>;
  labels?: { key?: string; value?: string }[];
  priority?: number;
  creationTime?: string;
  startTime?: string;
  completionTime?: string;
}

export interface Listed {
  jobs?: Row[];
  nextPageToken?: string;
  previousPageToken?: string;
  cut?: boolean;
  count?: { count?: number; more?: boolean };
}

export interface Reason {
  rule?: string;
  poolPath?: string;
  kind?: string;
  wanted?: number;
  available?: number;
  bound?: number;
  isFinal?: boolean;
  blockingJobId?: { value: string };
  blockingReason?: Reason;
  holders?: { poolPath?: string; jobId?: { value: string }; amount?: number }[];
  refusingHosts?: { hostCount?: number; rule?: string }[];
  text?: string;
}

export interface Why {
  waiting?: { poolPath?: string; queue?: string; firstInstance?: number; gangCount?: number; gangSize?: number; gangsAhead?: number; reason?: Reason }[];
  reasons?: Reason[];
  text?: string;
  jobNames?: Record<string, string>; // by id
}

export interface TaskRuntime {
  state?: string;
  goalState?: string;
  host?: string;
  message?: string;
  reason?: string;
  failureCount?: number;
  startTime?: string;
  completionTime?: string;
  mesosTaskId?: { value: string };
  ports?: Record<string, number>;
}

// The filter that the address names; ``sinceS``: unix seconds of the oldest job that counts, 0 for any.
export function filterOf(sinceS: number): object {
  const state = parameter("state");
  const labels = parameter("label").split(",").map((one) => one.trim()).filter(Boolean);
  const name = parameter("name");
  return {
    ...(parameter("pool") && { pool: parameter("pool") }),
    ...(parameter("owner") && { owner: parameter("owner") }),
    ...(parameter("creator") && { creator: parameter("creator") }),
    ...(state && { states: state === "ACTIVE" ? ACTIVE : [state] }),
    ...(parameter("type") && { types: [parameter("type")] }),
    ...(labels.length && { labels: labels.map((one) => ({ key: one.split("=")[0], value: one.split("=").slice(1).join("=") })) }),
    ...(name && (name.startsWith("^") ? { namePrefix: name.slice(1) } : { namePart: name })),
    ...(sinceS && { creationTimeRange: { min: new Date(sinceS * 1000).toISOString() } }),
  };
}

// As a command; what the table cannot say in one is left out.
export function commandOf(): string {
  const name = parameter("name");
  const options = [
    ["-r", parameter("pool")], ["--owner", parameter("owner")], ["--creator", parameter("creator")],
    ["-s", parameter("state") === "ACTIVE" ? ACTIVE.join(",") : parameter("state")], ["-t", parameter("type")],
    ["-l", parameter("label")], [name.startsWith("^") ? "--prefix" : "--name", name.replace(/^\^/, "")],
    ["--since", parameter("age") && `${(AGES[parameter("age")] ?? 0) / 3_600}h`],
  ];
  const given = options.filter(([, value]) => value).map(([option, value]) => `${option} ${quoted(value!)}`);
  return ["peloton job table", ...given, ...(parameter("order") === "oldest" ? ["--oldest-first"] : [])].join(" ");
}

function quoted(text: string): string {
  return /^[\w,./=:-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

export async function inflated(base64: string): Promise<Uint8Array> {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
