// A pool's queue in order, and why each waits; who lends to whom.
import { amount, called, count, type Kind } from "../format";
import { poolHref, type PoolData, type Waiting } from "../pools";
import { Empty } from "./empty";
import { Cards } from "./cards";

const QUEUE_TEXTS: Record<string, string> = {
  QUEUE_NON_PREEMPTIBLE: "non-preemptible", QUEUE_CONTROLLER: "controllers", QUEUE_REVOCABLE: "revocable", QUEUE_ORDINARY: "ordinary",
};

export function Queue({ data, path }: { data: PoolData; path: string }) {
  const { waiting = [], pool } = data;
  const gangs = pool.queuedGangs ?? 0;
  const shown = waiting.reduce((sum, one) => sum + (one.gangCount ?? 0), 0);
  return (
    <section aria-label="Queue">
      <h2>Queue</h2>
      {!pool.isLeaf && <Heads data={data} />}
      {pool.isLeaf && !waiting.length && <Empty command={`peloton job create ${path} examples/tutorial/hello.yaml`}>Nothing waits in this pool.</Empty>}
      {waiting.length > 0 && (
        <Cards isTall>
          <table>
            <caption>{count(gangs, "gang")} of {count(pool.queuedInstances ?? 0, "instance")}, in the order in which they are admitted</caption>
            <thead><tr><th class="figure">Place</th><th>Job</th><th class="figure">Instances</th><th class="figure">Priority</th><th>Queue</th><th>Why it waits</th></tr></thead>
            <tbody>{waiting.map((one) => <QueueRow key={`${one.jobId.value} ${one.firstInstance ?? 0}`} one={one} />)}</tbody>
          </table>
        </Cards>
      )}
      {shown < gangs && pool.isLeaf && <p class="quiet">These are the first {count(shown)} of {count(gangs, "gang")}.</p>}
    </section>
  );
}

function QueueRow({ one }: { one: Waiting }) {
  const { gangCount = 0, gangSize = 1, gangsAhead = 0, firstInstance = 0 } = one;
  const instances = gangCount * gangSize;
  const cause = one.reason.blockingReason;
  return (
    <tr>
      <td class="figure">{count(gangsAhead + 1)}</td>
      <td class="title"><a href={`/jobs/${one.jobId.value}`}>{called(one.jobName, one.jobId.value)}</a></td>
      <td class="figure" title={`from instance ${firstInstance} on`}>{count(instances)}{gangSize > 1 && ` in ${count(gangCount, "gang")} of ${gangSize}`}</td>
      <td class="figure">{one.priority ?? 0}</td>
      <td>{QUEUE_TEXTS[one.queue ?? ""] ?? one.queue}</td>
      <td class="wide">{one.reason.text}{cause?.text && !one.reason.text?.includes(cause.text) && <div class="quiet">In front of it: {cause.text}</div>}</td>
    </tr>
  );
}

// Of an inner pool: the first of each queue below it.
function Heads({ data }: { data: PoolData }) {
  const { queues = [] } = data;
  if (!queues.length) return <p class="quiet">Nothing waits in the pools below.</p>;
  return (
    <Cards>
      <table>
        <caption>The first of each queue below</caption>
        <thead><tr><th>Pool</th><th>Queue</th><th class="figure">Instances</th><th>Why the first of them waits</th></tr></thead>
        <tbody>
          {queues.map((one) => (
            <tr key={`${one.poolPath} ${one.queue}`}>
              <td><a href={poolHref(one.poolPath)}>{one.poolPath}</a></td>
              <td>{QUEUE_TEXTS[one.queue ?? ""] ?? one.queue}</td>
              <td class="figure">{count(one.instanceCount ?? 0)}</td>
              <td class="wide">{one.head.reason.text}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Cards>
  );
}

export function Loans({ data }: { data: PoolData }) {
  const { borrowed = [], lenders = [], lent = [], borrowers = [] } = data;
  if (!borrowed.length && !lent.length) return null;
  return (
    <section aria-label="Borrowed and lent">
      <h2>Borrowed and lent</h2>
      {borrowed.map((one) => <p key={one.kind}>It holds {amount(one.kind, one.amount ?? 0)} above its reservation.</p>)}
      <Others title="These leave reservations unused:" loans={lenders} back="wanted back" />
      {lent.map((one) => <p key={one.kind}>It leaves {amount(one.kind, one.amount ?? 0)} of its reservation to others.</p>)}
      <Others title="These hold more than their reservation:" loans={borrowers} back="" />
    </section>
  );
}

function Others({ title, loans, back }: { title: string; loans: { kind: Kind; poolPath: string; amount?: number; wantedBack?: number }[]; back: string }) {
  if (!loans.length) return null;
  return (
    <>
      <p>{title}</p>
      <ul>
        {loans.map((one) => (
          <li key={`${one.poolPath} ${one.kind}`}>
            <a href={poolHref(one.poolPath)}>{one.poolPath}</a>: {amount(one.kind, one.amount ?? 0)}
            {back && one.wantedBack ? `, ${amount(one.kind, one.wantedBack)} of it ${back}` : ""}
          </li>
        ))}
      </ul>
    </>
  );
}
