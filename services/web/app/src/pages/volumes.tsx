// The volumes of services: where each is, the instance that has it, and a button to delete it.
import { call } from "../api";
import { useLive } from "../live";
import { Cards } from "../parts/cards";
import { Confirm } from "../parts/confirm";
import { Empty } from "../parts/empty";
import { Stale } from "../parts/problem";
import { SameAs } from "../parts/same-as";
import { State } from "../parts/state";
import { Time } from "../parts/time";
import { SERVICE, stateOf, type Data, type Volume } from "../volumes";

export default function Volumes() {
  const { value, error } = useLive<Data>("volumes");
  const volumes = value?.volumes ?? [];
  return (
    <>
      <h1>Volumes</h1>
      <Stale error={error} />
      {!value && !error && <p class="quiet" aria-busy="true">Loading</p>}
      {value && !volumes.length && <Empty>There is no volume yet. Services that request volumes get them with their first pods.</Empty>}
      {volumes.length > 0 && (
        <Cards>
          <table>
            <thead><tr><th>Volume</th><th>Service</th><th>State</th><th>Size</th><th>Host</th><th>Created</th><th>Actions</th></tr></thead>
            <tbody>{volumes.map((one) => <VolumeRow key={one.id.value} one={one} />)}</tbody>
          </table>
        </Cards>
      )}
      {value?.hasMore && <p class="quiet">There are more: the command below lists all.</p>}
      <SameAs command="peloton volume list" service={SERVICE} method="ListVolumes" request={{}} />
    </>
  );
}

function VolumeRow({ one }: { one: Volume }) {
  return (
    <tr>
      <td><span data-varies>{one.id.value.slice(0, 8)}</span>{one.containerPath && <div class="quiet">{one.containerPath}</div>}</td>
      <td>
        <a data-varies href={`/jobs/${one.jobId.value}`}>{one.jobId.value.slice(0, 8)}</a> instance {one.instanceId ?? 0}
        <div class="quiet">{one.podName ? one.podState : "no pod will have it"}</div>
      </td>
      <td><State state={stateOf(one)} />{one.message && <div class="quiet">{one.message}</div>}</td>
      <td>{one.sizeMB ?? 0} MB</td>
      <td>{one.hostname ? <a href={`/hosts/${one.hostname}`}>{one.hostname}</a> : <span class="quiet">–</span>}{one.cluster && <div class="quiet">{one.cluster}</div>}</td>
      <td><Time at={one.createTime} /></td>
      <td><Delete one={one} /></td>
    </tr>
  );
}

function Delete({ one }: { one: Volume }) {
  const isLost = one.state === "LOST";
  if (one.goalState === "DELETED") return <span class="quiet">being destroyed</span>;
  return (
    <Confirm label={isLost ? "Give up" : "Delete"} weight="danger" title={`${isLost ? "Give up" : "Delete"} volume ${one.id.value}?`} act={() => call(SERVICE, "DeleteVolume", { id: one.id, giveUp: isLost })}>
      <p>{isLost ? "The pod that waits for it begins with an empty one, and its host destroys it if it comes back." : "All that is on it is lost. It is refused while a pod has the volume, or comes back to it."}</p>
    </Confirm>
  );
}
