// A job, a service or a pool from YAML: completed and checked as it is typed, planned before it is created.
import { parameter } from "../router";
import { KINDS, type Kind } from "../submit";
import { SubmitForm } from "../parts/submit-form";

export default function Submit() {
  const kind = KINDS.find((one) => one === parameter("kind")) ?? "job";
  return (
    <>
      <h1>Submit</h1>
      <nav class="tabs" aria-label="What to submit">
        {KINDS.map((one) => <a key={one} href={addressOf(one)} aria-current={one === kind ? "page" : undefined}>{one[0]!.toUpperCase() + one.slice(1)}</a>)}
      </nav>
      <SubmitForm key={kind} kind={kind} />
    </>
  );
}

function addressOf(kind: Kind): string {
  const given = new URLSearchParams({ kind });
  for (const name of ["pool", "parent"]) if (parameter(name)) given.set(name, parameter(name));
  return `/submit?${given}`;
}
