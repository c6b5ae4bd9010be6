// From a file to what is planned and created: the calls that the command line makes, by the same names.
import { call, fetched, Refused } from "./api";
import { SERVICE } from "./service";
import { JOB_MANAGER } from "./jobs";
import { poolHref } from "./pools";

export const EXPLAIN = "peloton.api.v0.explain.ExplainService";
export const RESPOOLS = "peloton.api.respool.ResourceManager";
const AWAY = ["unavailable", "deadline_exceeded", "canceled", "unknown", "internal", "502", "503", "504"];
const EXISTS = ["already_exists", "alreadyExists"];
const WORDS: Record<string, string> = { invalidConfig: "Invalid job config: ", invalidResourcePoolConfig: "Invalid resource pool config: " };
const SET_BY_THE_API = ["changeLog", "revision", "respoolID", "respoolId"];
const LOCKED_DOWN = "APIs are locked down"; // as the api begins such a refusal: nothing has been done

export type Kind = "job" | "service" | "pool";
export type Message = Record<string, any>;

export const KINDS: Kind[] = ["job", "service", "pool"];

// Of each kind: what its pool is called, and the commands that do the same.
export const POOL_LABELS: Record<Kind, string> = { job: "Pool", service: "Pool", pool: "Below the pool" };

export interface Wanted {
  kind: Kind;
  message: Message; // of the file, without its pool
  pool: string; // path of the job's pool, or of the pool's parent
  poolId: string;
  batchSize: number; // of a service: instances that are added at a time; 0: all
}

interface Call {
  service: string;
  method: string;
  request: object;
}

export async function read(kind: Kind, text: string): Promise<Message> {
  const answer = await fetched<{ message: Message }>(`/files/${kind}`, { method: "POST", headers: { "content-type": "application/yaml" }, body: text });
  return answer.message;
}

// File of an existing job or service, to be edited and submitted again.
export async function fileOf(kind: Kind, id: string): Promise<string> {
  const answer = kind === "service" ? await call(SERVICE, "GetJob", { jobId: { value: id } }) : await call(JOB_MANAGER, "Get", { id: { value: id } });
  const found: Message | undefined = kind === "service" ? answer.jobInfo?.spec : answer.jobInfo?.config;
  if (!found) throw new Error(`there is no ${kind} ${id}`);
  const message = Object.fromEntries(Object.entries(found).filter(([name]) => !SET_BY_THE_API.includes(name)));
  if (message.type === "DAEMON") delete message.instanceCount; // its hosts decide
  const file = await fetched<{ text: string }>(`/files/${kind}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(message) });
  return file.text;
}

// Throws what is wrong with the path.
export async function poolIdAt(path: string, kind: Kind): Promise<string> {
  try {
    const answer = await call(RESPOOLS, "LookupResourcePoolID", { path: { value: path } });
    return answer.id.value;
  } catch (error) {
    const { code, message } = error as Refused;
    throw new Refused(code, `unable to find ${kind === "pool" ? "parent" : "resource pool"} ${path}: ${message}`);
  }
}

function configOf({ kind, message, poolId }: Wanted): Message {
  if (kind === "job") return { ...message, respoolID: { value: poolId } };
  if (kind === "service") return { ...message, respoolId: { value: poolId } };
  if (message.parent) throw new Error("parent should not be supplied in the config");
  return { ...message, parent: { value: poolId } };
}

export function planCall(wanted: Wanted): Call {
  const config = configOf(wanted);
  if (wanted.kind === "pool") return { service: EXPLAIN, method: "PoolPlan", request: { config } };
  return { service: EXPLAIN, method: "JobPlan", request: wanted.kind === "service" ? { spec: config } : { config } };
}

export function createCall(wanted: Wanted, id = ""): Call {
  const config = configOf(wanted);
  const given = id && { value: id };
  if (wanted.kind === "pool") return { service: RESPOOLS, method: "CreateResourcePool", request: { config } };
  if (wanted.kind === "job") return { service: JOB_MANAGER, method: "Create", request: { ...(given && { id: given }), config } };
  const batches = wanted.batchSize ? { createSpec: { batchSize: wanted.batchSize } } : {};
  return { service: SERVICE, method: "CreateJob", request: { ...(given && { jobId: given }), spec: config, ...batches } };
}

export function planCommand({ kind, pool }: Wanted): string {
  if (kind === "pool") return `peloton respool plan pool.yaml${pool === "/" ? "" : ` --parent ${quoted(pool)}`}`;
  return kind === "service" ? `peloton job stateless plan ${quoted(pool)} service.yaml` : `peloton job plan ${quoted(pool)} job.yaml`;
}

export function createCommand({ kind, pool, message, batchSize }: Wanted): string {
  if (kind === "pool") return `peloton respool create ${quoted(pathOf(pool, message.name))} pool.yaml`;
  if (kind === "job") return `peloton job create ${quoted(pool)} job.yaml --watch`;
  return `peloton job stateless create ${quoted(pool)} service.yaml${batchSize ? ` ${batchSize}` : ""} --watch`;
}

function quoted(text: string): string {
  return /^[\w,./=:-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

export function pathOf(parent: string, name: string): string {
  return `${parent === "/" ? "" : parent}/${name ?? ""}`;
}

export interface Created {
  href: string;
  name: string;
  warnings: string[];
}

// A try whose answer has not come: repeated with the same id, nothing is created twice.
interface Attempt {
  id: string;
  what: string; // the whole request
}

const attempts = new Map<Kind, Attempt>(); // also of texts that are too large to be kept over a reload
const attemptKey = (kind: Kind) => `peloton-submit-try-${kind}`;

function openAttempt(kind: Kind): Attempt | null {
  const kept = recall(attemptKey(kind));
  return attempts.get(kind) ?? (kept ? (JSON.parse(kept) as Attempt) : null);
}

function setAttempt(kind: Kind, attempt: Attempt | null): void {
  if (attempt) {
    attempts.set(kind, attempt);
    keep(attemptKey(kind), JSON.stringify(attempt));
  } else {
    attempts.delete(kind);
    forget(attemptKey(kind));
  }
}

// Throws what was refused, and says so where it is not known whether it was done.
export async function create(wanted: Wanted): Promise<Created> {
  const { kind, message, pool } = wanted;
  const what = JSON.stringify([wanted.pool, wanted.batchSize, message]);
  const earlier = openAttempt(kind);
  const isAgain = earlier?.what === what;
  const id = isAgain ? earlier.id : drawnId();
  const href = kind === "pool" ? poolHref(pathOf(pool, message.name)) : `/${kind}s/${id}`;
  const created = { href, name: message.name || id, warnings: [] as string[] };
  setAttempt(kind, { id, what });
  try {
    const { service, method, request } = createCall(wanted, id);
    const answer = await call(service, method, request);
    created.warnings = answer.warnings ?? [];
  } catch (error) {
    const refused = error as Refused;
    if (AWAY.includes(refused.code) && !refused.message.includes(LOCKED_DOWN)) {
      throw new Refused(refused.code, `${refused.message}. Whether it was created is not known: create it again, which makes no second one.`);
    }
    if (!isAgain) setAttempt(kind, null);
    if (!(isAgain && EXISTS.includes(refused.code))) throw new Refused(refused.code, `${WORDS[refused.code] ?? ""}${refused.message}`);
  }
  setAttempt(kind, null);
  return created;
}

// Not crypto.randomUUID, which browsers give to https and to this machine alone.
function drawnId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6]! & 0x0f) | 0x40;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

// Of this tab, until it is closed. A text that is too large for it is not kept.
export function keep(key: string, value: string): boolean {
  try {
    sessionStorage.setItem(key, value);
    return true;
  } catch {
    forget(key);
    return false;
  }
}

export function recall(key: string): string | null {
  try {
    return sessionStorage.getItem(key);
  } catch {
    return null;
  }
}

function forget(key: string): void {
  try {
    sessionStorage.removeItem(key);
  } catch {
    // nothing is kept
  }
}
