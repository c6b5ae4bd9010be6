// Schedules with the time of the next job, the result of the last one, and buttons to steer them.
import { call } from "../api";
import { useLive } from "../live";
import { poolHref } from "../pools";
import { Cards } from "../parts/cards";
import { Confirm } from "../parts/confirm";
import { Empty } from "../parts/empty";
import { Stale } from "../parts/problem";
import { SameAs } from "../parts/same-as";
import { State } from "../parts/state";
import { Time } from "../parts/time";
import { Typed } from "../parts/typed";
import { parameter, setParameters } from "../router";
import { type Schedule, SERVICE, timesText, type Data } from "../schedules";

export default function Schedules() {
  const pool = parameter("pool");
  const { value, error } = useLive<Data>(`schedules:${pool || "/"}`);
  const schedules = value?.schedules ?? [];
  return (
    <>
      <h1>Schedules</h1>
      <Stale error={error} />
      <form class="filters" onSubmit={(event) => event.preventDefault()} aria-label="Filters">
        <label>Pool <Typed value={pool} placeholder="/path" take={(text) => setParameters({ pool: text })} /></label>
      </form>
      {!value && !error && <p class="quiet" aria-busy="true">Loading</p>}
      {value && !schedules.length && (
        pool ? <Empty>No schedule creates jobs in this pool.</Empty>
        : <Empty command='peloton job schedule create hello /tutorial examples/tutorial/hello.yaml --cron "0 6 * * 1-5"'>There is no schedule yet. Begin with an example:</Empty>
      )}
      {schedules.length > 0 && (
        <Cards>
          <table>
            <thead><tr><th>Schedule</th><th>Pool</th><th>Times</th><th>State</th><th>Next run</th><th>Last run</th><th>Actions</th></tr></thead>
            <tbody>{schedules.map((one) => <ScheduleRow key={one.name} one={one} />)}</tbody>
          </table>
        </Cards>
      )}
      {value?.hasMore && <p class="quiet">There are more: name a pool.</p>}
      <SameAs command={pool ? `peloton job schedule ls -r ${pool}` : "peloton job schedule ls"} service={SERVICE} method="ListSchedules" request={pool ? { poolPath: pool } : {}} />
    </>
  );
}

function ScheduleRow({ one }: { one: Schedule }) {
  const last = one.runs?.[0];
  return (
    <tr>
      <td>{one.name}{one.owner && <div class="quiet">{one.owner}</div>}{one.creator && <div class="quiet">by {one.creator}</div>}</td>
      <td><a href={poolHref(one.poolPath ?? "")}>{one.poolPath}</a></td>
      <td>{timesText(one.times)}</td>
      <td><State state={one.paused ? "PAUSED" : "ACTIVE"} />{one.note && <div class="quiet">{one.note}</div>}</td>
      <td>{one.paused ? <span class="quiet">–</span> : <span data-varies><Time at={one.nextTimes?.[0]} isToCome /></span>}</td>
      <td>
        {last && <><State state={last.state ?? "UNKNOWN"} /> <span data-varies>{last.jobId ? <a href={`/jobs/${last.jobId}`}>{last.jobName}</a> : <Time at={last.startTime} />}</span></>}
        {last?.reason && <div class="quiet">{last.reason}</div>}
      </td>
      <td><Steer one={one} /></td>
    </tr>
  );
}

function Steer({ one: { name, paused, jobName } }: { one: Schedule }) {
  const act = (method: string) => () => call(SERVICE, method, { name });
  return (
    <p class="buttons">
      <Confirm key="trigger" label="Trigger" title={`Trigger ${name}?`} act={act("TriggerSchedule")}><p>A job {jobName} is created now, as the overlap policy allows.</p></Confirm>
      {paused ? (
        <Confirm key="resume" label="Resume" title={`Resume ${name}?`} act={act("ResumeSchedule")}><p>It creates jobs at its times again. Times that passed meanwhile are skipped.</p></Confirm>
      ) : (
        <Confirm key="pause" label="Pause" title={`Pause ${name}?`} act={act("PauseSchedule")}><p>It creates no further jobs. A running job continues.</p></Confirm>
      )}
    </p>
  );
}
