// Who used what: core-, GiB- and GPU-hours by pool or owner, of the whole time or of each day, as a table and a file.
import { useMemo } from "preact/hooks";
import { call } from "../api";
import { count, KINDS } from "../format";
import { useAsked } from "../parts/asked";
import { Cards } from "../parts/cards";
import { Empty } from "../parts/empty";
import { chosenKind, KindChoice } from "../parts/kind-choice";
import { Stale } from "../parts/problem";
import { chosenRange, RangeChoice } from "../parts/range-choice";
import { SameAs } from "../parts/same-as";
import { Typed } from "../parts/typed";
import { poolHref } from "../pools";
import { parameter, setParameters } from "../router";
import { csvOf, HISTORY, UNITS, type UsageRow, usageRows, type UsageTold } from "../usage";

const RANGE_FIRST = "720";
const ROWS_SHOWN = 500;

export default function Usage() {
  const hours = chosenRange(RANGE_FIRST);
  const pool = parameter("pool") || "/";
  const isByOwner = parameter("by") === "owner";
  const isDaily = parameter("days") === "each";
  const start = useMemo(() => new Date(Date.now() - Number(hours) * 3_600_000).toISOString(), [hours]);
  const request = { paths: [pool], start, ...(isDaily && { daily: true }) };
  const { value, error, isBusy } = useAsked(JSON.stringify(request), () => call<UsageTold>(HISTORY, "GetUsage", request));
  const rows = useMemo(() => (value ? usageRows(value, isByOwner) : []), [value, isByOwner]);
  const kinds = KINDS.filter((kind) => rows.some((row) => row.kind === kind));
  const kind = chosenKind(kinds.length ? kinds : KINDS);
  const shown = rows.filter((row) => row.kind === kind);
  const command = `peloton usage ${pool} --since ${hours}h${isByOwner ? " --by owner" : ""}${isDaily ? " --daily" : ""}`;
  return (
    <>
      <h1>Usage</h1>
      <form class="filters" role="search" aria-label="Filters" onSubmit={(event) => event.preventDefault()}>
        <label>Pool <Typed name="pool" value={pool} take={(text) => setParameters({ pool: text })} placeholder="/path" /></label>
        <RangeChoice chosen={hours} />
        <Choice title="By" name="by" first="pool" others={{ owner: "owner" }} />
        <Choice title="Days" name="days" first="together" others={{ each: "each" }} />
        <KindChoice kinds={kinds.length ? kinds : KINDS} chosen={kind} />
      </form>
      <Stale error={error} />
      {!value && !error && <p class="quiet" aria-busy="true">Loading</p>}
      {value && !isBusy && !rows.length && <Empty command={command}>No usage of {pool} was recorded in that time: the leading resource manager records it once a minute.</Empty>}
      {rows.length > 0 && (
        <>
          <Table rows={shown.slice(0, ROWS_SHOWN)} isByOwner={isByOwner} isDaily={isDaily} caption={`${UNITS[kind]}, ${count(Math.min(shown.length, ROWS_SHOWN))} of ${count(shown.length, "row")}`} />
          <p class="buttons"><button type="button" onClick={() => download(csvOf(rows))}>Download CSV</button></p>
        </>
      )}
      <p class="quiet">
        Guaranteed is within the reservation of the pool, borrowed is above it, and lent is the part of its reservation that other pools held.
        Pools with pools below have the sum of theirs. Usage is sampled once a minute and kept for a year; days are in UTC.
      </p>
      <SameAs command={command} service={HISTORY} method="GetUsage" request={request} />
    </>
  );
}

function Choice({ title, name, first, others }: { title: string; name: string; first: string; others: Record<string, string> }) {
  return (
    <label>
      {title}{" "}
      <select value={parameter(name)} onChange={(event) => setParameters({ [name]: event.currentTarget.value })}>
        <option value="">{first}</option>
        {Object.entries(others).map(([value, text]) => <option key={value} value={value}>{text}</option>)}
      </select>
    </label>
  );
}

function Table({ rows, isByOwner, isDaily, caption }: { rows: UsageRow[]; isByOwner: boolean; isDaily: boolean; caption: string }) {
  return (
    <Cards>
      <table data-varies>
        <caption>{caption}</caption>
        <thead>
          <tr>
            <th>Pool</th>{isByOwner && <th>Owner</th>}{isDaily && <th>Day</th>}
            <th class="figure">Used</th><th class="figure">Guaranteed</th><th class="figure">Borrowed</th>{!isByOwner && <th class="figure">Lent</th>}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={`${row.path} ${row.owner} ${row.day}`}>
              <td class="title">{row.path.startsWith("/") ? <a href={poolHref(row.path)}>{row.path}</a> : row.path}</td>
              {isByOwner && <td>{row.owner}</td>}{isDaily && <td>{row.day}</td>}
              <td class="figure">{count(row.used)}</td><td class="figure">{count(row.guaranteed)}</td><td class="figure">{count(row.borrowed)}</td>
              {!isByOwner && <td class="figure">{count(row.lent)}</td>}
            </tr>
          ))}
        </tbody>
      </table>
    </Cards>
  );
}

function download(text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = "usage.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 0);
}
