// Mark in the header that says whether the page is up to date.
import { freshness } from "../live";
import { clock, time } from "../format";

export function FreshnessMark() {
  const { state, asOfMs, causes } = freshness.value;
  if (state === "none") return null;
  if (state !== "stale") return <span class={`freshness ${state}`} role="status">{state === "live" ? "Live" : "Connecting"}</span>;
  const isToday = new Date(asOfMs).toDateString() === new Date().toDateString();
  return (
    <details class="freshness stale-now">
      <summary><span role="status">{asOfMs ? <>as of {isToday ? clock(asOfMs) : time(asOfMs)}</> : "Not live"}</span><span class="more"> details</span></summary>
      <div class="causes">
        <p>{asOfMs ? "The data may have changed since." : "No data could be read yet."} The page keeps trying.</p>
        {causes.map((cause) => <p key={cause} class="quiet">{cause}</p>)}
      </div>
    </details>
  );
}
