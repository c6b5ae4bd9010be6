// Used hours of pools and owners, as HistoryService.GetUsage answers, and the table and the file made of them.
import type { Kind } from "./format";
import { visible } from "./visible";

export const HISTORY = "peloton.api.v0.history.HistoryService";
export const UNITS: Record<Kind, string> = { cpu: "core-hours", memory: "memory GiB-hours", disk: "disk GiB-hours", gpu: "GPU-hours" };

interface KindHours {
  kind: Kind;
  used?: number;
  borrowed?: number;
  lent?: number;
}

interface Usage {
  day?: string;
  path: string;
  owner?: string;
  hours?: KindHours[];
}

export interface UsageTold {
  pools?: Usage[];
  owners?: Usage[];
}

export interface UsageRow {
  path: string;
  owner: string;
  day: string;
  kind: Kind;
  used: number;
  guaranteed: number;
  borrowed: number;
  lent: number;
}

export function usageRows(told: UsageTold, isByOwner: boolean): UsageRow[] {
  return ((isByOwner ? told.owners : told.pools) ?? []).flatMap(({ path, owner = "", day = "", hours = [] }) =>
    hours.map(({ kind, used = 0, borrowed = 0, lent = 0 }) => ({
      path, owner: isByOwner ? ownerName(owner) : "", day: day || "all", kind, used, guaranteed: Math.max(used - borrowed, 0), borrowed, lent,
    })),
  );
}

function ownerName(owner: string): string {
  return { "": "(no owner)", "*": "(others)" }[owner] ?? owner;
}

// The same lines as `peloton usage --csv`.
export function csvOf(rows: UsageRow[]): string {
  const lines = rows.map((row) => [row.path, row.owner, row.day, UNITS[row.kind] ?? row.kind, row.used, row.guaranteed, row.borrowed, row.lent]);
  return [["pool", "owner", "day", "kind", "used", "guaranteed", "borrowed", "lent"], ...lines].map((line) => `${line.map(quoted).join(",")}\n`).join("");
}

function quoted(value: string | number): string {
  // A spreadsheet takes a text that begins so for a formula.
  const text = typeof value === "string" ? visible(value).replace(/^[=+@-]/, "'$&") : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
