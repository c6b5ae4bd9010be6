// Of which kind of resource the page is; kept in its address.
import { kindName, type Kind } from "../format";
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
        {kinds.map((kind) => <option key={kind} value={kind}>{kindName(kind)}</option>)}
      </select>
    </label>
  );
}
