// A command in a pod with its terminal: one session at a time, which is never taken up again once it has ended.
import { useEffect, useRef, useState } from "preact/hooks";
import { count } from "../format";
import { openScreen, type Screen } from "../terminal/screen";
import { type Ended, INPUT_WAITING_MAX, Session } from "../terminal/session";
import "../terminal/terminal.css";

const SHELL = "/bin/sh";

interface Props {
  job: string;
  instance: number;
  containers: string[]; // by name, where there are several
  isRunning: boolean;
}

type Stage = "before" | "opening" | "open" | "ended";

export function TerminalPanel({ job, instance, containers, isRunning }: Props) {
  const [stage, setStage] = useState<Stage>("before");
  const [ended, setEnded] = useState<Ended>({});
  const [warning, setWarning] = useState("");
  const [isAloud, setAloud] = useState(false);
  const place = useRef<HTMLDivElement>(null);
  const command = useRef<HTMLInputElement>(null);
  const container = useRef<HTMLSelectElement>(null);
  const live = useRef<{ screen: Screen; session: Session } | null>(null);

  function stop() {
    live.current?.session.close();
    live.current?.screen.dispose();
    live.current = null;
  }
  useEffect(() => stop, []);

  function start(event: Event) {
    event.preventDefault();
    stop();
    setEnded({});
    setWarning("");
    setStage("opening");
    place.current!.hidden = false; // it is measured before it is drawn
    const screen = openScreen(place.current!, {
      typed: (data) => {
        const isTaken = session.type(data);
        setWarning(isTaken ? "" : `The command does not read: ${count(data.length)} bytes were not sent, ${count(INPUT_WAITING_MAX)} wait at most`);
      },
      resized: (size) => session.resize(size),
    });
    screen.readAloud(isAloud);
    const asked = { job, instance, command: command.current!.value, container: container.current?.value ?? "", ...screen.size };
    const session = new Session(asked, {
      open: () => {
        setStage("open");
        session.resize(screen.size);
        screen.focus();
      },
      output: (data, taken) => screen.write(data, taken),
      ended: (how) => {
        setEnded(how);
        setStage("ended");
      },
    });
    live.current = { screen, session };
  }

  const isLive = stage === "opening" || stage === "open";
  return (
    <section aria-label="Terminal">
      <form class="terminal-bar" onSubmit={start}>
        <label>Command <input type="text" ref={command} placeholder={SHELL} spellcheck={false} autocomplete="off" disabled={isLive} /></label>
        {containers.length > 1 && (
          <label>Container <select ref={container} disabled={isLive}>{containers.map((one) => <option key={one}>{one}</option>)}</select></label>
        )}
        {/* Two elements: one that became a submit button in its own click would submit. */}
        {isLive ? (
          <button type="button" key="end" onClick={() => live.current?.session.close()}>End session</button>
        ) : (
          <button type="submit" key="start" disabled={!isRunning}>{stage === "ended" ? "Start another session" : "Start session"}</button>
        )}
        <label>
          <input type="checkbox" checked={isAloud} onChange={(event) => aloud(event.currentTarget.checked)} /> Read aloud by a screen reader
        </label>
      </form>
      <p role="status" class={stage === "ended" ? "terminal-end" : "quiet"}>{statusText(stage, ended, isRunning)}</p>
      {warning && <p class="stale" role="alert">{warning}</p>}
      <div class="terminal-screen" ref={place} hidden={stage === "before"} data-varies />
      <p class="quiet">
        A session ends with its command, with this page, and when nothing is typed for 30 minutes. Every key goes to the command, but <kbd>Shift</kbd>{" "}
        <kbd>Tab</kbd> leaves the terminal.
      </p>
    </section>
  );

  function aloud(is: boolean) {
    setAloud(is);
    live.current?.screen.readAloud(is);
  }
}

function statusText(stage: Stage, ended: Ended, isRunning: boolean): string {
  if (stage === "before") return isRunning ? "No session" : "The pod is not running: no terminal can be opened";
  if (stage === "opening") return "Connecting";
  if (stage === "open") return "Connected";
  return ended.exitCode !== undefined ? `The command has ended with exit code ${ended.exitCode}` : `The session has ended: ${ended.problem}`;
}
