// All jobs, a page at a time; filters and the place in the table are in the address.
import { useMemo } from "preact/hooks";
import { call } from "../api";
import { called, count } from "../format";
import { AGES, commandOf, filterOf, JOB_STATES, JOB_TABLE, JOB_TYPES, type Listed, PAGE_SIZE, type Row } from "../jobs";
import { useLive } from "../live";
import { useAsked } from "../parts/asked";
import { Empty } from "../parts/empty";
import { Stale } from "../parts/problem";
import { SameAs } from "../parts/same-as";
import { State } from "../parts/state";
import { Time } from "../parts/time";
import { Typed } from "../parts/typed";
import { address, go, pageAt, parameter } from "../router";
import { Cards } from "../parts/cards";

const FILTERS = ["pool", "owner", "creator", "state", "type", "label", "name", "age"];

export default function Jobs() {
  const age = parameter("age");
  const sinceS = useMemo(() => (AGES[age] ? Math.floor(Date.now() / 60_000) * 60 - AGES[age]! : 0), [age]);
  const filter = filterOf(sinceS);
  const order = parameter("order") === "oldest" ? { oldestFirst: true } : {};
  const token = parameter("token");
  const request = { filter, ...order, pageSize: PAGE_SIZE, ...(token && { pageToken: token }) };
  const { value, error } = useLive<Listed>(`jobs:${JSON.stringify(request)}`);
  const question = JSON.stringify(filter);
  const counted = useAsked(question, () => call<Listed>(JOB_TABLE, "ListJobs", { filter, pageSize: 1, count: true }));
  const total = counted.value?.count;
  return (
    <>
      <h1>Jobs</h1>
      <Filters />
      <Stale error={error} />
      <p class="quiet" role="status">
        {!total && counted.error ? "Not counted: there is no answer now." : total ? `${total.more ? "At least " : ""}${count(total.count ?? 0, "job")} ${!FILTERS.some(parameter) ? "in all" : total.count === 1 ? "matches" : "match"}.` : "Counting"}
      </p>
      {value ? <Found listed={value} /> : !error && <p class="quiet" aria-busy="true">Loading</p>}
      <SameAs command={commandOf()} service={JOB_TABLE} method="ListJobs" request={request} />
    </>
  );
}

// Another filter begins at the first page, and is a step that the Back button takes back.
function refined(values: Record<string, string>): void {
  const url = new URL(address.value);
  for (const [name, value] of Object.entries({ ...values, token: "" })) {
    if (value) url.searchParams.set(name, value);
    else url.searchParams.delete(name);
  }
  go(url.href);
}

function Filters() {
  const typed = (name: string) => ({ name, value: parameter(name), take: (text: string) => refined({ [name]: text }) });
  const chosen = (name: string) => ({
    name,
    value: parameter(name),
    onChange: (event: Event) => refined({ [name]: (event.currentTarget as HTMLSelectElement).value }),
  });
  return (
    <form class="filters" role="search" aria-label="Filters" onSubmit={(event) => event.preventDefault()}>
      <label>Name <Typed {...typed("name")} placeholder="part, or ^beginning" /></label>
      <label>Pool <Typed {...typed("pool")} placeholder="/path" /></label>
      <label>Owner <Typed {...typed("owner")} placeholder="team" /></label>
      <label>Creator <Typed {...typed("creator")} placeholder="user" /></label>
      <label>Labels <Typed {...typed("label")} placeholder="key=value" /></label>
      <label>
        State <select {...chosen("state")}>
          <option value="">any</option>
          <option value="ACTIVE">not ended</option>
          {JOB_STATES.map((state) => <option key={state} value={state}>{state.toLowerCase()}</option>)}
        </select>
      </label>
      <label>
        Type <select {...chosen("type")}>
          <option value="">any</option>
          {JOB_TYPES.map((type) => <option key={type} value={type}>{type.toLowerCase()}</option>)}
        </select>
      </label>
      <label>
        Created <select {...chosen("age")}>
          <option value="">at any time</option>
          {Object.keys(AGES).map((age) => <option key={age} value={age}>in the last {age.replace("h", " h").replace("d", " days")}</option>)}
        </select>
      </label>
      <label>
        Order <select {...chosen("order")}>
          <option value="">newest first</option>
          <option value="oldest">oldest first</option>
        </select>
      </label>
      {FILTERS.some(parameter) && <button type="button" onClick={() => go("/jobs")}>Clear filters</button>}
    </form>
  );
}

function Found({ listed }: { listed: Listed }) {
  const jobs = listed.jobs ?? [];
  const isFiltered = FILTERS.some(parameter);
  return (
    <>
      {jobs.length > 0 && <Table jobs={jobs} />}
      {!jobs.length && !listed.nextPageToken && !listed.previousPageToken &&
        (isFiltered ? <Empty command={commandOf()}>No job matches these filters.</Empty>
          : <Empty command="peloton job create /tutorial examples/tutorial/hello.yaml">There are no jobs yet. <a href="/submit?kind=job">Write one</a>, or begin with an example:</Empty>)}
      {!jobs.length && listed.previousPageToken && !listed.cut && <p>The table ends here.</p>}
      {listed.cut && listed.nextPageToken && (
        <p>{count(jobs.length, "job")} found among the 20,000 looked at. <a href={pageAt("token", listed.nextPageToken)}>Search further</a></p>
      )}
      <nav class="buttons" aria-label="Pages of the table">
        {parameter("token") && <a href={pageAt("token", "")}>First page</a>}
        {listed.previousPageToken && <a href={pageAt("token", listed.previousPageToken)} rel="prev">Previous</a>}
        {listed.nextPageToken && <a href={pageAt("token", listed.nextPageToken)} rel="next">Next</a>}
      </nav>
    </>
  );
}

function Table({ jobs }: { jobs: Row[] }) {
  return (
    <Cards>
      <table>
        <thead><tr><th>State</th><th>Name</th><th>Instances</th><th>Pool</th><th>Owner</th><th>Type</th><th>Created</th><th>Labels</th></tr></thead>
        <tbody>
          {jobs.map((job) => (
            <tr key={job.id.value}>
              <td><State state={job.state ?? "UNKNOWN"} /></td>
              <td class="title"><a href={`/jobs/${job.id.value}`}>{called(job.name, job.id.value)}</a></td>
              <td>{instances(job)}</td>
              <td><a href={pageOfPool(job.poolPath ?? "")}>{job.poolPath}</a></td>
              <td>{job.owner}</td>
              <td>{(job.type ?? "BATCH").toLowerCase()}</td>
              <td><Time at={job.creationTime} /></td>
              <td class="quiet wide">{(job.labels ?? []).map((one) => `${one.key ?? ""}=${one.value ?? ""}`).join(", ")}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Cards>
  );
}

function pageOfPool(path: string): string {
  return `/jobs?pool=${encodeURIComponent(path)}`;
}

function instances(job: Row): string {
  const total = job.instanceCount ?? 0;
  const parts = Object.entries(job.taskStats ?? {}).sort((one, other) => other[1] - one[1]).map(([state, number]) => `${count(number)} ${state.toLowerCase()}`);
  return parts.length === 1 && total === Object.values(job.taskStats!)[0] ? parts[0]! : `${count(total)}${parts.length ? `: ${parts.join(", ")}` : ""}`;
}
