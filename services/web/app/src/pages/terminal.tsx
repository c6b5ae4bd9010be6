// A terminal in the pod of an instance.
import { TASK_MANAGER, type TaskRuntime } from "../jobs";
import { useLive } from "../live";
import type { PageProps } from "./all";
import { logHref, runNumber } from "../parts/logs";
import { Absent, Stale } from "../parts/problem";
import { SameAs } from "../parts/same-as";
import { State } from "../parts/state";
import { TerminalPanel } from "../parts/terminal";
import { settings } from "../settings";

interface Container {
  name?: string;
  init?: boolean;
}

export default function TerminalPage({ arguments: { id = "", instance = "" } }: PageProps) {
  const { value, error } = useLive<{ runtime: TaskRuntime & { containers?: Container[] } }>(`instance:${id}/${instance}`);
  if (!value) return <Absent what="instance" name={`${id} ${instance}`} error={error} all={{ href: `/jobs/${id}`, title: "Its job" }} />;
  const { runtime } = value;
  const containers = (runtime.containers ?? []).filter((one) => !one.init).map((one) => one.name ?? "");
  return (
    <>
      <h1>Terminal in instance {instance}</h1>
      <Stale error={error} />
      <p class="facts">
        <State state={runtime.state ?? ""} />
        <span>of job <a href={`/jobs/${id}?instance=${instance}`}>{id}</a></span>
        {runtime.mesosTaskId && <span>run {runNumber(runtime.mesosTaskId.value)}</span>}
        <a href={logHref(id, Number(instance), { run: "", file: "" })}>Log</a>
      </p>
      {settings.value.mayChange ? (
        <TerminalPanel job={id} instance={Number(instance)} containers={containers} isRunning={runtime.state === "RUNNING"} />
      ) : (
        <p>You may not open a terminal: it can change the pod.</p>
      )}
      <SameAs command={`peloton task exec -it ${id} ${instance}`} service={TASK_MANAGER} method="BrowseSandbox" request={{ jobId: { value: id }, instanceId: Number(instance) }} />
    </>
  );
}
