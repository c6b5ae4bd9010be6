// A pool's amounts of one kind as a bar, on a scale that the caller gives.
import { amount, count, type Kind } from "../format";
import type { Amounts } from "../pools";
import { Bar, type Mark } from "./bar";

export function PoolBar({ label, kind, amounts, whole }: { label: string; kind: Kind; amounts: Amounts; whole: number }) {
  const { reservation, limit, share, entitlement, allocation, slack, demand } = amounts;
  const marks: Mark[] = [
    { name: `entitlement ${amount(kind, entitlement)}`, value: entitlement },
    { name: `reservation ${amount(kind, reservation)}`, value: reservation, tone: "reservation" },
  ];
  if (limit !== null && limit <= whole) marks.push({ name: `limit ${amount(kind, limit)}`, value: limit, tone: "limit" });
  const text = [
    `${amount(kind, allocation)} allocated`,
    ...(slack ? [`${amount(kind, slack)} of it on slack`] : []),
    ...(demand ? [`${amount(kind, demand)} wanted`] : []),
    `entitled to ${amount(kind, entitlement)}`,
    `${amount(kind, reservation)} reserved`,
    limit === null ? "no limit" : `limit ${amount(kind, limit)}`,
    `share ${count(share)}`,
  ].join(", ");
  return (
    <Bar
      label={label} text={text} whole={whole} marks={marks}
      parts={[
        { name: "allocated", value: allocation - slack, tone: "allocation" },
        { name: "on slack", value: slack, tone: "slack" },
        { name: "wanted", value: demand, tone: "demand" },
      ]}
    />
  );
}

export function PoolBarLegend() {
  return (
    <ul class="quiet legend">
      <li><span class="key allocation" /> allocated</li>
      <li><span class="key slack" /> on slack</li>
      <li><span class="key demand" /> wanted</li>
      <li><span class="key entitlement" /> entitlement</li>
      <li><span class="key reservation" /> reservation</li>
      <li><span class="key limit" /> limit</li>
    </ul>
  );
}
