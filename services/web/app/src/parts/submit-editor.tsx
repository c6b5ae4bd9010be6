// The editor on a page, once its chunk has come, with what is wrong below it.
import { useEffect, useRef, useState } from "preact/hooks";
import { fetched } from "../api";
import type { Editor, Fault } from "../editor/editor";
import type { Schema } from "../editor/schema";
import { type Kind, type Message, read } from "../submit";
import type { Refused } from "../api";

const TYPED_MS = 300;
const RETRY_MS = 3_000;
const FINAL = [403, 413]; // no use in asking again

export interface Read {
  of: string | null; // the text that it is about
  message?: Message;
  faults: Fault[];
  failure?: string; // it could not be read now
}

// What the command line says of the text, a moment after it was typed.
export function useRead(kind: Kind, text: string, editor: Editor | null): Read {
  const [outcome, setOutcome] = useState<Read>({ of: null, faults: [] });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (!editor) return;
    let isOld = false;
    let retry: ReturnType<typeof setTimeout>;
    const tell = (found: Partial<Read>) => {
      if (isOld) return;
      const first = (found.faults ?? []).map(editor.inside);
      const beyond = editor.bounds().filter((one) => !first.some((other) => other.line === one.line));
      const faults = [...first, ...beyond].sort((one, other) => one.line - other.line);
      editor.show(faults);
      setOutcome({ ...found, of: text, faults });
    };
    const timer = setTimeout(() => {
      read(kind, text).then(
        (message) => tell({ message }),
        (error: Refused) => {
          if (error.place) return tell({ faults: [{ ...error.place, text: error.message }] });
          tell({ failure: error.message });
          if (!isOld && !FINAL.includes(error.status)) retry = setTimeout(() => setTurn((count) => count + 1), RETRY_MS);
        },
      );
    }, TYPED_MS);
    return () => {
      isOld = true;
      clearTimeout(timer);
      clearTimeout(retry);
    };
  }, [kind, text, editor, turn]);
  return outcome;
}

export function EditorBox({ kind, initial, changed, ready }: { kind: Kind; initial: string; changed: (text: string) => void; ready: (editor: Editor) => void }) {
  const box = useRef<HTMLDivElement>(null);
  const [state, setState] = useState<"loading" | "there" | { failure: string }>("loading");
  useEffect(() => {
    let editor: Editor | null = null;
    let isGone = false;
    const load = async () => {
      const [{ edit }, schema] = await Promise.all([import("../editor/editor"), fetched<Schema>(`/schemas/${kind}.json`)]);
      if (isGone) return;
      editor = edit(box.current!, initial, schema, `YAML of the ${kind}`, "editor-keys", changed);
      setState("there");
      ready(editor);
    };
    load().catch((error: Error) => !isGone && setState({ failure: error.message }));
    return () => {
      isGone = true;
      editor?.close();
    };
  }, []);
  return (
    <>
      {state === "loading" && <p class="quiet" aria-busy="true">Loading the editor</p>}
      {typeof state === "object" && <p class="stale" role="alert">The editor could not be loaded, load the page again: {state.failure}</p>}
      <div class="editor" ref={box} />
      <p class="quiet" id="editor-keys">
        <kbd>Ctrl</kbd>+<kbd>Space</kbd> completes keys and values. <kbd>Tab</kbd> indents; <kbd>Esc</kbd> and then <kbd>Tab</kbd> leaves the editor.
      </p>
    </>
  );
}

export function Faults({ kind, read: { message, faults, failure, of }, text, goTo }: { kind: Kind; read: Read; text: string; goTo: (fault: Fault) => void }) {
  return (
    <div class="faults" role="status">
      {failure && <p class="stale">Not checked: {failure}</p>}
      {of === text && message && !faults.length && <p class="fine">{summary(kind, message)}</p>}
      {faults.length > 0 && (
        <ul class="wrong">
          {faults.map((fault) => (
            <li key={`${fault.line} ${fault.column} ${fault.text}`} class="critical">
              <button type="button" class="plain" onClick={() => goTo(fault)}>Line {fault.line}, column {fault.column}</button>: {fault.text}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

export function summary(kind: Kind, message: Message): string {
  const name = message.name || "without a name";
  if (kind === "pool") return `The pool ${name}`;
  const number = message.instanceCount ?? 0;
  return `The ${kind} ${name}, ${number} ${number === 1 ? "instance" : "instances"}`;
}
