// Of which time a chart is; kept in the page's address.
import { parameter, setParameters } from "../router";

const RANGES: [string, string][] = [["1", "1 hour"], ["6", "6 hours"], ["24", "1 day"], ["168", "7 days"], ["720", "30 days"], ["8760", "1 year"]];

// In hours.
export function chosenRange(first: string): string {
  return RANGES.some(([each]) => each === parameter("hours")) ? parameter("hours") : first;
}

export function RangeChoice({ chosen }: { chosen: string }) {
  return (
    <label>
      The last{" "}
      <select value={chosen} onChange={(event) => setParameters({ hours: event.currentTarget.value })}>
        {RANGES.map(([each, name]) => <option key={each} value={each}>{name}</option>)}
      </select>
    </label>
  );
}
