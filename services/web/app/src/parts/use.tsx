// Usage of instances compared with their requests: of one, or of the first of a job that are on a host.
import { amount, count, percent } from "../format";
import { useLive } from "../live";
import { Bar } from "./bar";
import { Stale } from "./problem";

interface InstanceUse {
  instance?: number;
  cpuAsked?: number;
  memoryMbAsked?: number;
  measured?: boolean;
  cpuUsed?: number;
  memoryMbUsed?: number;
}

const KINDS = [
  { kind: "cpu", label: "CPU", used: "cpuUsed", asked: "cpuAsked" },
  { kind: "memory", label: "Memory", used: "memoryMbUsed", asked: "memoryMbAsked" },
] as const;

// ``instance``: all of the job's without it.
export function Use({ job, instance }: { job: string; instance?: number }) {
  const { value, error } = useLive<{ instances?: InstanceUse[] }>(`use:${instance === undefined ? job : `${job}/${instance}`}`);
  const found = value?.instances ?? [];
  const measured = found.filter((one) => one.measured);
  if (value && !found.length) return null;
  const sum = (field: (typeof KINDS)[number]["used" | "asked"]) => (measured.length ? measured : found).reduce((total, one) => total + (one[field] ?? 0), 0);
  const whose = measured.length
    ? `Of ${count(measured.length, "instance")} measured now${found.length >= 100 ? ", of the first 100 on hosts" : ""}.`
    : value ? "Not known yet. Hosts are asked every few seconds; some measure nothing." : "Loading";
  return (
    <section aria-label={instance === undefined ? "In use" : `In use by instance ${instance}`} aria-busy={!value} data-varies>
      {instance === undefined ? <h2>In use</h2> : <h3>In use</h3>}
      <Stale error={error} />
      {(instance === undefined || !measured.length) && <p class="quiet">{whose}</p>}
      {KINDS.map(({ kind, label, used, asked }) => {
        const [part, whole] = [sum(used), sum(asked)];
        const text = measured.length ? `${amount(kind, part)} of ${amount(kind, whole)} requested, ${percent(part, whole)}` : `${amount(kind, whole)} requested`;
        return (
          <div class="row" key={kind}>
            <span>{label}</span>
            <Bar label={`${label} in use`} parts={[{ name: "used", value: part, tone: "use" }]} whole={Math.max(part, whole)} marks={part > whole ? [{ name: "requested", value: whole, tone: "limit" }] : []} text={text} />
          </div>
        );
      })}
    </section>
  );
}
