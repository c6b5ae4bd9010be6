// What an instance prints, followed until its run ends.
import { useEffect, useRef, useState } from "preact/hooks";

const SHOWN_MAX = 500_000; // characters; the oldest go

interface Told {
  text: string;
  state: string;
  isTail: boolean;
}

export function Log({ job, instance, run, first }: { job: string; instance: number; run: string; first: string }) {
  const [file, setFile] = useState(first);
  const [follows, setFollows] = useState(true);
  const [told, setTold] = useState<Told>({ text: "", state: "Connecting", isTail: false });
  const box = useRef<HTMLPreElement>(null);
  useEffect(() => {
    setTold({ text: "", state: "Connecting", isTail: false });
    const source = new EventSource(`/logs/${job}/${instance}?file=${file}&run=${encodeURIComponent(run)}`);
    const on = (name: string, take: (value: any) => void) =>
      source.addEventListener(name, (event) => take(JSON.parse((event as MessageEvent).data)));
    const end = (state: string) => {
      source.close();
      setTold((before) => ({ ...before, state }));
    };
    on("begin", ({ offset }) => setTold((before) => ({ ...before, state: "Following", isTail: offset > 0 })));
    on("text", (text: string) => setTold((before) => ({ ...before, state: "Following", text: (before.text + text).slice(-SHOWN_MAX) })));
    on("waiting", ({ message }) => setTold((before) => ({ ...before, state: `Waiting: ${message}` })));
    on("end", ({ message }) => end(message ? `The run has ended: ${message}` : "The run has ended"));
    on("problem", ({ code, message }) => {
      if (code !== "unavailable") end(`It cannot be read: ${message}`);
      else setTold((before) => ({ ...before, state: `It cannot be read now: ${message}` })); // the browser connects again
    });
    source.onerror = () => setTold((before) => (source.readyState === EventSource.CLOSED ? { ...before, state: "It cannot be read now" } : before));
    return () => source.close();
  }, [job, instance, run, file]);
  useEffect(() => {
    if (follows && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [told.text, follows]);
  return (
    <div>
      <p class="buttons">
        <label>File <select value={file} onChange={(event) => setFile(event.currentTarget.value)}><option>stdout</option><option>stderr</option></select></label>
        <label><input type="checkbox" checked={follows} onChange={(event) => setFollows(event.currentTarget.checked)} /> Stay at the end</label>
        <span class="quiet" role="status">{told.state}</span>
      </p>
      {told.isTail && <p class="quiet">The last 64 KiB of what was there, and what follows.</p>}
      <pre class="log" ref={box} tabIndex={0} aria-label={`${file} of instance ${instance}`}>{told.text || " "}</pre>
    </div>
  );
}
