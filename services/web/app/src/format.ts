// Numbers with their units, times in the reader's zone.

export type Kind = string; // of KINDS, or the name of an extended resource
export const KINDS: Kind[] = ["cpu", "memory", "disk", "gpu"];
const KIND_NAMES: Record<string, string> = { cpu: "CPU", memory: "Memory", disk: "Disk", gpu: "GPU" };

export function kindName(kind: Kind): string {
  return KIND_NAMES[kind] ?? kind;
}

// Kinds in the order of KINDS, extended resources after them by name.
export function inOrder(kinds: Kind[]): Kind[] {
  const others = kinds.filter((kind) => !KINDS.includes(kind)).sort();
  return [...KINDS.filter((kind) => kinds.includes(kind)), ...new Set(others)];
}

const number = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const fraction = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 2 });
const FRACTION_MIN = 0.001; // what is less is an error of rounding

function figure(value: number): string {
  const size = Math.abs(value);
  return size < 0.95 && size >= FRACTION_MIN ? fraction.format(value) : number.format(value);
}

export function count(value: number, unit = ""): string {
  const shown = figure(value);
  return unit ? `${shown} ${shown === "1" ? unit : `${unit}s`}` : shown;
}

// As pool configurations have them: cores, MiB, MiB, gpus.
export function amount(kind: Kind, value: number): string {
  if (kind === "cpu") return count(value, "core");
  if (kind === "gpu") return count(value, "gpu");
  return kind === "memory" || kind === "disk" ? mebibytes(value) : count(value);
}

export function mebibytes(value: number): string {
  const units = ["MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${figure(value)} ${units[unit]}`;
}

// The name of a job or a service, whose link has to have something to click on.
export function called(name: string | undefined, id: string): string {
  return name?.trim() ? name : id;
}

export function percent(part: number, whole: number): string {
  return whole > 0 ? `${Math.round((100 * part) / whole)} %` : "–";
}

export function duration(seconds: number): string {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  const parts: [number, string][] = [[86_400, "d"], [3_600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([size]) => seconds >= size);
  const shown: string[] = [];
  for (const [size, unit] of parts.slice(first, first + 2)) {
    const whole = Math.floor(seconds / size);
    seconds -= whole * size;
    if (whole) shown.push(`${whole} ${unit}`);
  }
  return shown.join(" ");
}

// Of a run that may go on: from its start to its end, or to now.
export function ranFor(start: string | undefined, end: string | undefined, isOver: boolean): string {
  if (!start) return "";
  const until = isOver && end ? new Date(end).getTime() : Date.now();
  return duration(Math.max(0, (until - new Date(start).getTime()) / 1000));
}

const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export function time(at: string | number | Date): string {
  return moment.format(new Date(at));
}

const ofDay = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

export function clock(at: string | number | Date): string {
  return ofDay.format(new Date(at));
}

export function ago(at: string | number | Date, now = Date.now()): string {
  return `${duration(Math.max(0, (now - new Date(at).getTime()) / 1000))} ago`;
}

// How far a moment to come is; one that has just passed is now.
export function until(at: string | number | Date, now = Date.now()): string {
  return `in ${duration(Math.max(0, (new Date(at).getTime() - now) / 1000))}`;
}
