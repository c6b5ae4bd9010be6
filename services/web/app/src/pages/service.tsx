// A service: how far its rollout is, which versions run where, and what its SLA let go.
import { called, count, ranFor } from "../format";
import { hostHref } from "../host";
import { useLive } from "../live";
import type { PageProps } from "./all";
import { Bar } from "../parts/bar";
import { Absent, Stale } from "../parts/problem";
import { SameAs } from "../parts/same-as";
import { State } from "../parts/state";
import { Time } from "../parts/time";
import { Rollout } from "../parts/rollout";
import { ServiceSteer } from "../parts/service-steer";
import { logHref } from "../parts/logs";
import { TroubleBanner } from "../parts/trouble";
import { Versions } from "../parts/versions";
import { poolHref } from "../pools";
import { isRolling, type Pod, SERVICE, type Data, versionOf, word } from "../service";
import { useTitle } from "../title";
import { Cards } from "../parts/cards";

const GRANTS_SHOWN = 20;
const ENDED = ["SUCCEEDED", "FAILED", "KILLED", "LOST"];

export default function Service({ arguments: { id = "" } }: PageProps) {
  const { value, error } = useLive<Data>(`service:${id}`);
  const name = value?.job.jobInfo.spec.name;
  useTitle(name ? `${name} Service` : "");
  if (!value) return <Absent what="service" name={id} error={error} all={{ href: "/services", title: "All services" }} />;
  const { spec, status, creator } = value.job.jobInfo;
  return (
    <>
      <h1>{called(name, id)}</h1>
      <Stale error={error} />
      <p class="facts">
        <State state={word(status.state, "JOB_STATE_")} /> <a href={poolHref(value.poolPath)}>{value.poolPath}</a>
        {spec.owner && <span>of {spec.owner}</span>} <span>version {versionOf(status.version?.value)}</span>
        <span>created <Time at={status.creationTime} />{creator && ` by ${creator}`}</span> <a href={`/jobs/${id}`}>its instances, logs and events</a>{" "}
        <a href={`/submit?kind=service&from=${id}&pool=${encodeURIComponent(value.poolPath)}`}>edit and submit again</a>
      </p>
      <TroubleBanner id={id} trouble={value.trouble} />
      <ServiceSteer id={id} data={value} isRolling={isRolling(value)} />
      {value.why && (value.trouble.length ? <details class="quiet"><summary>Why its instances do not run</summary><p class="lines">{value.why}</p></details> : <p class="quiet lines">{value.why}</p>)}
      <Rollout id={id} data={value} />
      <Side data={value} />
      <Sla data={value} />
      <Pods id={id} pods={value.pods} total={spec.instanceCount ?? 0} />
      <Versions id={id} data={value} />
      <SameAs command={`peloton job stateless get ${id}`} service={SERVICE} method="GetJob" request={{ jobId: { value: id } }} />
    </>
  );
}

function Side({ data }: { data: Data }) {
  const versions = new Map<string, Pod[]>();
  for (const pod of data.pods) {
    const version = versionOf(pod[3]);
    versions.set(version, [...(versions.get(version) ?? []), pod]);
  }
  const most = Math.max(...[...versions.values()].map((pods) => pods.length), 1);
  return (
    <section aria-label="Versions side by side">
      <h2>Versions side by side</h2>
      {[...versions].sort(([one], [other]) => other.localeCompare(one, undefined, { numeric: true })).map(([version, pods]) => {
        const running = pods.filter(([, state]) => state === "RUNNING");
        const unhealthy = pods.filter(([, , , , , health]) => health.includes("UNHEALTHY")).length;
        const hosts = new Set(pods.map(([, , host]) => host).filter(Boolean)).size;
        const health = unhealthy ? `, ${count(unhealthy)} unhealthy` : "";
        return (
          <div class="row" key={version}>
            <h3>{version ? `Version ${version}` : "No version yet"}</h3>
            <Bar
              label={`Version ${version}`} whole={most} text={`${count(pods.length, "pod")} on ${count(hosts, "host")}, ${count(running.length)} running${health}`}
              parts={[
                { name: "running", value: running.length, tone: "use" },
                { name: "not running", value: pods.length - running.length, tone: "demand" },
              ]}
            />
          </div>
        );
      })}
    </section>
  );
}

function Sla({ data }: { data: Data }) {
  const { spec } = data.job.jobInfo;
  const allowed = spec.sla?.maximumUnavailableInstances ?? 0;
  const away = data.pods.filter(([, state]) => state !== "RUNNING").length;
  const disruptions = (data.job.disruptions ?? []).slice(0, GRANTS_SHOWN);
  return (
    <section aria-label="SLA" class="minor">
      <h2>SLA</h2>
      <p>
        {allowed ? `At most ${count(allowed, "instance")} may be away at a time` : "No bound on instances that are away"}; {count(away)} of{" "}
        {count(spec.instanceCount ?? 0)} do not run now.
      </p>
      {disruptions.length > 0 && (
        <Cards>
          <table>
            <caption>Requested disruptions, and the answers of the SLA</caption>
            <thead><tr><th>When</th><th>Instance</th><th>Answer</th><th>Why</th></tr></thead>
            <tbody>
              {disruptions.map((one, index) => (
                <tr key={index}>
                  <td><Time at={one.timestamp} /></td>
                  <td>{one.instanceId === -1 ? "several" : one.instanceId ?? 0}</td>
                  <td>{one.granted ? "granted" : "refused"}</td>
                  <td class="wide">{one.message || word(one.reason, "TERMINATION_STATUS_REASON_").toLowerCase().replaceAll("_", " ")}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Cards>
      )}
    </section>
  );
}

function Pods({ id, pods, total }: { id: string; pods: Pod[]; total: number }) {
  const hasHealth = pods.some(([, , , , , health]) => health);
  return (
    <section aria-label="Pods">
      <h2>Pods</h2>
      {pods.length < total && <p class="quiet">The first {count(pods.length)} of {count(total)}.</p>}
      <Cards isTall>
        <table>
          <thead>
            <tr>
              <th>Instance</th><th>State</th>{hasHealth && <th>Health</th>}<th>Host</th><th>Version</th><th>Started</th><th class="figure">Duration</th>
              <th class="figure">Attempts</th><th>Message</th>
            </tr>
          </thead>
          <tbody>
            {pods.map(([instance, state, host, version, message, health, run, start, end]) => (
              <tr key={instance}>
                <td><a href={logHref(id, instance, { run: "", file: "" })}>{instance}<span class="quiet"> logs</span></a></td>
                <td><State state={state} /></td>
                {hasHealth && <td>{health.toLowerCase()}</td>}
                <td>{host && <a href={hostHref(host)}>{host}</a>}</td>
                <td>{versionOf(version)}</td>
                <td>{start && <Time at={start} />}</td>
                <td class="figure" data-varies>{ranFor(start, end, ENDED.includes(state))}</td>
                <td class="figure">{run || ""}</td>
                <td class="wide">{message}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Cards>
    </section>
  );
}
