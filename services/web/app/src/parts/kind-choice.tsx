// Of which kind of resource the page is; kept in its address.
import { KIND_NAMES, type Kind } from "../format";
import { parameter, setParameters } from "../router";

export function chosenKind(kinds: Kind[]): Kind {
  const given = parameter("kind") as Kind;
  return kinds.includes(given) ? given : (kinds[0] ?? "cpu");
}

export function KindChoice({ kinds, chosen }: { kinds: Kind[]; chosen: Kind }) {
  return (
    <label>
      Resource{" "}
      <select value={chosen} onChange={(event) => setParameters({ kind: event.currentTarget.value })}>
        {kinds.map((kind) => <option key={kind} value={kind}>{KIND_NAMES[kind]}</option>)}
      </select>
    </label>
  );
}
