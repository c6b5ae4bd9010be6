// What differs between two specs, line by line.
import { structuredPatch } from "diff";

const CONTEXT_LINES = 3;

export function SpecDiff({ before, after }: { before: object; after: object }) {
  const hunks = structuredPatch("", "", text(before), text(after), "", "", { context: CONTEXT_LINES }).hunks;
  if (!hunks.length) return <p class="quiet">The specs are equal.</p>;
  return (
    <pre class="diff scroll" tabIndex={0}>
      {hunks.flatMap((hunk) => [
        <span key={hunk.oldStart} class="at">{`@@ line ${hunk.newStart} @@\n`}</span>,
        ...hunk.lines.map((line, index) => <span key={`${hunk.oldStart}.${index}`} class={tone(line)}>{`${line}\n`}</span>),
      ])}
    </pre>
  );
}

function tone(line: string): string {
  return line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "";
}

function text(spec: object): string {
  return JSON.stringify(sorted({ ...spec, revision: undefined }), null, 2);
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== "object") return value;
  const keys = Object.keys(value).sort();
  return Object.fromEntries(keys.map((key) => [key, sorted((value as Record<string, unknown>)[key])]));
}
