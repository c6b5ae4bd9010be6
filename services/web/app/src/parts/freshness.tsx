// Whether what the page shows is up to date, in the header: its first duty.
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
        <p>{asOfMs ? "What is shown may have changed since." : "Nothing could be read yet."} The page goes on trying.</p>
        {causes.map((cause) => <p key={cause} class="quiet">{cause}</p>)}
      </div>
    </details>
  );
}
