// Why instances wait, as a tree: the rule, its numbers, and what stands in front, which waits for something itself.
import { amount, called, count, type Kind, KINDS } from "../format";
import type { Reason, Why } from "../jobs";

const SHOWN = 3; // the first places in queues; the others are folded

export function WhyTree({ why }: { why: Why }) {
  const waiting = why.waiting ?? [];
  const reasons = why.reasons ?? [];
  const names = why.jobNames ?? {};
  if (!waiting.length && !reasons.length) return why.text ? <p class="lines quiet">{why.text}</p> : null;
  return (
    <>
      <ul class="tree">
        {waiting.slice(0, SHOWN).map((one, index) => <WaitingNode key={index} one={one} names={names} />)}
        {reasons.map((reason, index) => <ReasonNode key={index} reason={reason} names={names} />)}
      </ul>
      {waiting.length > SHOWN && (
        <details>
          <summary>{count(waiting.length - SHOWN, "more place")} in queues</summary>
          <ul class="tree">{waiting.slice(SHOWN).map((one, index) => <WaitingNode key={index} one={one} names={names} />)}</ul>
        </details>
      )}
      {why.text && <details><summary>In words</summary><p class="lines">{why.text}</p></details>}
    </>
  );
}

type Names = Record<string, string>;

function WaitingNode({ one, names }: { one: NonNullable<Why["waiting"]>[number]; names: Names }) {
  return (
    <li>
      {count(one.gangCount ?? 0, (one.gangSize ?? 1) > 1 ? `gang of ${one.gangSize}` : "instance")} from instance {one.firstInstance ?? 0} on, in the{" "}
      {(one.queue ?? "").replace("QUEUE_", "").toLowerCase().replaceAll("_", "-")} queue of {one.poolPath}
      {one.gangsAhead ? `, ${count(one.gangsAhead)} ahead` : ", first in it"}
      {one.reason && <ul><ReasonNode reason={one.reason} names={names} /></ul>}
    </li>
  );
}

// Of a resource with its unit; rules may be about other things too.
function quantity(kind: string, value: number): string {
  return KINDS.includes(kind as Kind) ? amount(kind as Kind, value) : `${count(value)} ${kind}`.trim();
}

function ReasonNode({ reason, names }: { reason: Reason; names: Names }) {
  const rule = (reason.rule ?? "").replace("RULE_", "").toLowerCase().replaceAll("_", " ");
  const kind = reason.kind ?? "";
  const numbers = reason.wanted // of the rules that are about an amount
    ? `${kind && `${kind}: `}wanted ${quantity(kind, reason.wanted)}, available ${quantity(kind, reason.available ?? 0)}${reason.bound ? ` of ${quantity(kind, reason.bound)}` : ""}`
    : "";
  return (
    <li>
      <strong>{rule}</strong>{reason.poolPath && ` of ${reason.poolPath}`}{numbers && `, ${numbers}`}
      {reason.isFinal && <em> – waiting does not help</em>}
      {reason.text && <div class="quiet">{reason.text}</div>}
      <ul>
        {(reason.holders ?? []).map((one, index) => (
          <li key={index}>
            held by {one.jobId ? <a href={`/jobs/${one.jobId.value}`}>job {called(names[one.jobId.value], one.jobId.value)}</a> : `pool ${one.poolPath}`}: {quantity(kind, one.amount ?? 0)}
          </li>
        ))}
        {(reason.refusingHosts ?? []).map((one, index) => <li key={index}>{count(one.hostCount ?? 0, "host")}: {one.rule}</li>)}
        {reason.blockingJobId && <li>in front: <a href={`/jobs/${reason.blockingJobId.value}`}>job {called(names[reason.blockingJobId.value], reason.blockingJobId.value)}</a></li>}
        {reason.blockingReason && <ReasonNode reason={reason.blockingReason} names={names} />}
      </ul>
    </li>
  );
}
