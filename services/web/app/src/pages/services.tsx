// The services, newest first: what runs of each, and how far its latest update is.
import { called, count } from "../format";
import { useLive } from "../live";
import { poolHref } from "../pools";
import { Bar } from "../parts/bar";
import { Empty } from "../parts/empty";
import { Stale } from "../parts/problem";
import { SameAs } from "../parts/same-as";
import { State } from "../parts/state";
import { Time } from "../parts/time";
import { Typed } from "../parts/typed";
import { pageAt, parameter, setParameters } from "../router";
import { Cards } from "../parts/cards";

interface Row {
  id: { value: string };
  name?: string;
  owner?: string;
  poolPath?: string;
  state?: string;
  instanceCount?: number;
  taskStats?: Record<string, number>;
  creationTime?: string;
  update?: { state?: string; doneCount?: number; failedCount?: number; failedRunCount?: number; totalCount?: number; waitingFor?: string; stalledTime?: string };
}

interface Data {
  jobs?: Row[];
  nextPageToken?: string;
  previousPageToken?: string;
  cut?: boolean;
}

const TABLE = "peloton.api.v0.table.JobTableService";
const PAGE_SIZE = 50;
const FILTERS: Record<string, string> = { name: "part of it", pool: "/path", owner: "team" };

export default function Services() {
  const request = {
    filter: { types: ["SERVICE"], namePart: parameter("name"), pool: parameter("pool"), owner: parameter("owner") },
    pageSize: PAGE_SIZE,
    pageToken: parameter("page"),
  };
  const { value, error } = useLive<Data>(`jobs:${JSON.stringify(request)}`);
  const jobs = value?.jobs ?? [];
  const isFiltered = [...Object.keys(FILTERS), "page"].some(parameter);
  return (
    <>
      <h1>Services</h1>
      <Stale error={error} />
      <form class="filters" onSubmit={(event) => event.preventDefault()} aria-label="Filters">
        {Object.keys(FILTERS).map((name) => (
          <label key={name}>
            {name[0]!.toUpperCase() + name.slice(1)} <Typed value={parameter(name)} placeholder={FILTERS[name]!} take={(text) => setParameters({ [name]: text, page: "" })} />
          </label>
        ))}
      </form>
      {!value && !error && <p class="quiet" aria-busy="true">Loading</p>}
      {value && !jobs.length && (
        isFiltered ? <Empty>No service is like that{value.cut ? ", among those that were looked at: go on with the next page" : ""}.</Empty>
        : <Empty command="peloton job stateless create /tutorial examples/services/web.yaml --watch">There is no service yet. <a href="/submit?kind=service">Write one</a>, or begin with an example:</Empty>
      )}
      {jobs.length > 0 && (
        <Cards>
          <table>
            <thead><tr><th>Service</th><th>Pool</th><th>Owner</th><th>State</th><th>Running</th><th>Latest update</th><th>Created</th></tr></thead>
            <tbody>{jobs.map((job) => <ServiceRow key={job.id.value} job={job} />)}</tbody>
          </table>
        </Cards>
      )}
      <nav class="buttons" aria-label="Pages of the table">
        {parameter("page") && <a href={pageAt("page", "")}>First page</a>}
        {value?.previousPageToken && <a href={pageAt("page", value.previousPageToken)} rel="prev">Newer</a>}
        {value?.nextPageToken && <a href={pageAt("page", value.nextPageToken)} rel="next">Older</a>}
      </nav>
      <SameAs command="peloton job stateless list" service={TABLE} method="ListJobs" request={request} />
    </>
  );
}

function ServiceRow({ job }: { job: Row }) {
  const running = job.taskStats?.RUNNING ?? 0;
  const wanted = job.instanceCount ?? 0;
  return (
    <tr>
      <td><a href={`/services/${job.id.value}`}>{called(job.name, job.id.value)}</a></td>
      <td><a href={poolHref(job.poolPath ?? "")}>{job.poolPath}</a></td>
      <td>{job.owner}</td>
      <td><State state={job.state ?? "UNKNOWN"} /></td>
      <td><Bar label="Running" whole={Math.max(wanted, running, 1)} text={`${count(running)} of ${count(wanted)}`} parts={[{ name: "running", value: running, tone: "use" }]} /></td>
      <td>{job.update && <Update update={job.update} />}</td>
      <td><Time at={job.creationTime} /></td>
    </tr>
  );
}

function Update({ update }: { update: NonNullable<Row["update"]> }) {
  const { state = "", doneCount = 0, failedCount = 0, failedRunCount = 0, totalCount = 0, waitingFor, stalledTime } = update;
  const instances = failedCount ? `, ${count(failedCount)} failed` : "";
  const runs = failedRunCount ? `, ${count(failedRunCount, "run")} failed` : "";
  return (
    <>
      <State state={state} />{stalledTime && " stalled,"} {count(doneCount)} of {count(totalCount)} done{instances}{runs}
      {waitingFor && <div class="quiet">waits for {waitingFor}</div>}
    </>
  );
}
