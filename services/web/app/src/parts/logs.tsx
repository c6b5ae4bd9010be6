// The logs of an instance: of the latest run that is or was on a host, or of an earlier one, by file.
import { fetched } from "../api";
import type { TaskRuntime } from "../jobs";
import { useAsked } from "./asked";
import { Log } from "./log";

const OUTPUTS = ["stdout", "stderr"];

export interface PodEvent {
  taskId?: { value: string };
  actualState?: string;
  timestamp?: string;
  hostname?: string;
  message?: string;
  reason?: string;
}

export interface Choice {
  run: string; // empty: the latest
  file: string; // empty: stderr of a run that has failed, else stdout
}

interface Props {
  job: string;
  instance: number;
  runtime: TaskRuntime;
  events: PodEvent[];
  choice: Choice;
  choose: (choice: Choice) => void;
  isWhole?: boolean;
}

export function Logs({ job, instance, runtime, events, choice, choose, isWhole }: Props) {
  const hosted = events.filter((event) => event.hostname).map((event) => event.taskId?.value);
  const runs = [...new Set([runtime.host ? runtime.mesosTaskId?.value : undefined, ...hosted, choice.run])].filter((run): run is string => Boolean(run));
  const run = choice.run || (runs[0] ?? "");
  const last = events.find((event) => event.taskId?.value === run)?.actualState;
  const { value } = useAsked(`${job}/${instance} ${run} ${last}`, async () =>
    run ? fetched<{ files: string[] }>(`/logs/${job}/${instance}/files?run=${encodeURIComponent(run)}`) : { files: [] },
  );
  if (!run) return <p class="quiet">No run has been on a host yet, so there is no output.</p>;
  const files = value?.files.length ? value.files : OUTPUTS;
  const wanted = choice.file || (last === "FAILED" ? "stderr" : "stdout");
  const file = files.includes(wanted) ? wanted : files[0]!;
  return (
    <>
      <p class="buttons">
        {runs.length > 1 && (
          <label>
            Run{" "}
            <select value={run} onChange={(event) => choose({ ...choice, run: event.currentTarget.value })}>
              {runs.map((one) => <option key={one} value={one}>{runNumber(one)}</option>)}
            </select>
          </label>
        )}
        <label>
          File{" "}
          <select value={file} onChange={(event) => choose({ ...choice, file: event.currentTarget.value })}>
            {files.map((one) => <option key={one}>{one}</option>)}
          </select>
        </label>
        {!isWhole && <a href={logHref(job, instance, { run, file })}>On its own page</a>}
      </p>
      <Log key={`${run} ${file}`} job={job} instance={instance} run={run} file={file} isWhole={isWhole} />
    </>
  );
}

export function runNumber(run: string | undefined): string {
  return run?.split("-").pop() ?? "";
}

export function logHref(job: string, instance: number, { run, file }: Choice): string {
  const query = new URLSearchParams({ ...(run && { run }), ...(file && { file }) }).toString();
  return `/jobs/${job}/${instance}/log${query && `?${query}`}`;
}

export function terminalHref(job: string, instance: number): string {
  return `/jobs/${job}/${instance}/terminal`;
}
