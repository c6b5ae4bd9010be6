// What a map of hosts is coloured by; the choice is in the address.
import { COLOURINGS } from "../hosts";
import { setParameters } from "../router";

export function ColouredBy({ chosen }: { chosen: string }) {
  return (
    <label>
      Coloured by{" "}
      <select value={chosen} onChange={(event) => setParameters({ colour: event.currentTarget.value })}>
        {COLOURINGS.map((one) => <option key={one.name} value={one.name}>{one.title}</option>)}
      </select>
    </label>
  );
}
