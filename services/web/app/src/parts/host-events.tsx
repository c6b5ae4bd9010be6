// Events of one host or of all hosts, newest first, with times in the reader's zone.
import { count, time } from "../format";
import { hostHref } from "../host";
import { useLive } from "../live";
import { Empty } from "./empty";
import { Stale } from "./problem";
import { SameAs } from "./same-as";
import { State } from "./state";
import { Time } from "./time";

interface HostEvent {
  number: string;
  hostname: string;
  kind: string;
  text: string;
  time: string;
  until?: string;
}

export function HostEvents({ hostname }: { hostname?: string }) {
  const { value, error } = useLive<{ events: HostEvent[]; hasMore: boolean }>(hostname ? `host-events:${hostname}` : "hosts-events");
  if (!value) return error ? <Stale error={error} /> : <p class="quiet" aria-busy="true">Loading events</p>;
  return (
    <section aria-label="Events">
      <h2>Events</h2>
      <Stale error={error} />
      {!value.events.length && <Empty>No events are kept.</Empty>}
      <ol class="events" aria-label="Events, the newest first" tabIndex={0}>
        {value.events.map((one) => (
          <li key={one.number}>
            <Time at={one.time} />
            <State state={one.kind.replace("HOST_EVENT_KIND_", "")} />
            <span>{!hostname && <><a href={hostHref(one.hostname)}>{one.hostname}</a>: </>}{one.text}{one.until && new Date(one.until).getTime() > Date.now() ? `, until ${time(one.until)}` : ""}</span>
          </li>
        ))}
      </ol>
      {value.hasMore && <p class="quiet">The last {count(value.events.length, "event")}. From a terminal there are more.</p>}
      <SameAs command={hostname ? `peloton host events ${hostname}` : "peloton host events"} service="peloton.api.v0.overview.OverviewService" method="ListHostEvents" request={hostname ? { hostname } : {}} />
    </section>
  );
}
