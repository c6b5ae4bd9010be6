// A log of an instance on a page of its own, which the address names with its run and file.
import { TASK_MANAGER, type TaskRuntime } from "../jobs";
import { useLive } from "../live";
import type { PageProps } from "./all";
import { Logs, type PodEvent, runNumber, terminalHref } from "../parts/logs";
import { Absent, Stale } from "../parts/problem";
import { SameAs } from "../parts/same-as";
import { State } from "../parts/state";
import { parameter, setParameters } from "../router";

export default function LogPage({ arguments: { id = "", instance = "" } }: PageProps) {
  const { value, error } = useLive<{ runtime: TaskRuntime; events: PodEvent[] }>(`instance:${id}/${instance}`);
  if (!value) return <Absent what="instance" name={`${id} ${instance}`} error={error} all={{ href: `/jobs/${id}`, title: "Its job" }} />;
  const { runtime, events } = value;
  const choice = { run: parameter("run"), file: parameter("file") };
  const words = [id, instance, choice.run].filter(Boolean).join(" ");
  return (
    <>
      <h1>Log of instance {instance}</h1>
      <Stale error={error} />
      <p class="facts">
        <State state={runtime.state ?? ""} />
        <span>of job <a href={`/jobs/${id}?instance=${instance}`}>{id}</a></span>
        {choice.run && <span>run {runNumber(choice.run)}</span>}
        {runtime.state === "RUNNING" && <a href={terminalHref(id, Number(instance))}>Terminal</a>}
      </p>
      <section aria-label="Log">
        <Logs job={id} instance={Number(instance)} runtime={runtime} events={events} choice={choice} choose={(next) => setParameters({ ...next })} isWhole />
      </section>
      <SameAs
        command={`peloton task logs ${words}${choice.file && choice.file !== "stdout" ? ` --filename ${choice.file}` : ""}`}
        service={TASK_MANAGER} method="BrowseSandbox" request={{ jobId: { value: id }, instanceId: Number(instance), ...(choice.run && { taskId: choice.run }) }}
      />
    </>
  );
}
