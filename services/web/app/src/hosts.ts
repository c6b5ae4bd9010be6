// All hosts, as the topics "host-names" and "host-map" tell them: one list for each fact.
import type { Kind } from "./format";
import { type Live, useLive } from "./live";

export const UNKNOWN = 255; // in lists of percents: the host has none, or it is not measured
export const HOST_STATES: Record<number, string> = { 2: "UP", 3: "DRAINING", 4: "DRAINED", 5: "DOWN" };
export const MARKS = ["", "GREEN", "ORANGE", "RED"];
const MAINTAINED = 1;
const AVOIDED = 2;

interface Names {
  maps: { cluster: string; version: string; hostnames: string[]; hostPools: number[]; hostPoolNames: string[] }[];
}

interface Facts {
  maps: {
    cluster: string;
    version: string;
    states?: string;
    marks?: string;
    flags?: string;
    podCounts?: number[];
    kinds?: { kind: Kind; allocation?: string; used?: string }[];
  }[];
  silent: string[];
}

export interface Host {
  name: string;
  cluster: string;
  pool: string;
  state: string;
  mark: string;
  isMaintained: boolean;
  isAvoided: boolean;
  pods: number;
  allocation: Partial<Record<Kind, number>>; // percent
  used: Partial<Record<Kind, number>>;
}

export interface Hosts {
  hosts?: Host[]; // by cluster and name
  silent: string[];
  error?: Live<unknown>["error"];
}

export function useHosts(): Hosts {
  const names = useLive<Names>("host-names");
  const facts = useLive<Facts>("host-map");
  const error = names.error ?? facts.error;
  const silent = facts.value?.silent ?? [];
  if (!names.value || !facts.value) return { silent, error };
  return { hosts: joined(names.value, facts.value), silent, error };
}

const kept = new WeakMap<Facts, { names: Names; hosts: Host[] | undefined }>();

// Nothing while names and facts are not of the same hosts: the other message is on its way.
export function joined(names: Names, facts: Facts): Host[] | undefined {
  const before = kept.get(facts);
  if (before?.names === names) return before.hosts;
  const hosts = join(names, facts);
  kept.set(facts, { names, hosts });
  return hosts;
}

function join(names: Names, facts: Facts): Host[] | undefined {
  const found: Host[] = [];
  for (const map of facts.maps) {
    const named = names.maps.find((one) => one.cluster === map.cluster && one.version === map.version);
    if (!named) return undefined;
    const [states, marks, flags] = [bytes(map.states), bytes(map.marks), bytes(map.flags)];
    const kinds = (map.kinds ?? []).map((one) => ({ kind: one.kind, allocation: bytes(one.allocation), used: bytes(one.used) }));
    named.hostnames.forEach((name, at) => {
      const flag = flags[at] ?? 0;
      const host: Host = {
        name,
        cluster: map.cluster,
        pool: named.hostPoolNames[named.hostPools[at] ?? -1] ?? "",
        state: HOST_STATES[states[at] ?? 0] ?? "UNKNOWN",
        mark: MARKS[marks[at] ?? 0] ?? "",
        isMaintained: (flag & MAINTAINED) > 0,
        isAvoided: (flag & AVOIDED) > 0,
        pods: map.podCounts?.[at] ?? 0,
        allocation: {},
        used: {},
      };
      for (const { kind, allocation, used } of kinds) {
        if ((allocation[at] ?? UNKNOWN) !== UNKNOWN) host.allocation[kind] = allocation[at]!;
        if ((used[at] ?? UNKNOWN) !== UNKNOWN) host.used[kind] = used[at]!;
      }
      found.push(host);
    });
  }
  return found;
}

function bytes(text = ""): Uint8Array {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

// What a map may be coloured by.
export interface Colouring {
  name: string;
  title: string;
  percent?: (host: Host) => number | undefined;
  word?: (host: Host) => string; // a state or a mark
}

export const COLOURINGS: Colouring[] = [
  { name: "cpu", title: "CPU allocated", percent: (host) => host.allocation.cpu },
  { name: "memory", title: "Memory allocated", percent: (host) => host.allocation.memory },
  { name: "disk", title: "Disk allocated", percent: (host) => host.allocation.disk },
  { name: "gpu", title: "GPUs allocated", percent: (host) => host.allocation.gpu },
  { name: "cpu-used", title: "CPU used", percent: (host) => host.used.cpu },
  { name: "memory-used", title: "Memory used", percent: (host) => host.used.memory },
  { name: "state", title: "State", word: (host) => host.state },
  { name: "mark", title: "Mark by the advisor", word: (host) => host.mark },
];

export function describe(host: Host, colouring: Colouring): string {
  if (colouring.word) return (colouring.word(host) || "not measured").toLowerCase();
  const value = colouring.percent!(host);
  return value === undefined ? "not known" : `${value} %`;
}
