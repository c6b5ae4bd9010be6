// What could not be read or done, in words; what gRPC says of it is folded.
import type { ComponentChildren } from "preact";
import { useTitle } from "../title";

export function Problem({ title, text }: { title: string; text?: string }) {
  return (
    <section class="problem" role="alert">
      <h2>{title}</h2>
      {text && <p>{text}</p>}
    </section>
  );
}

const PASSING = ["unavailable", "deadline_exceeded"];

interface Failure {
  code?: string;
  message: string;
  hasValue?: boolean;
}

// "the api does not answer: failed to connect to ..." has its own words before the first colon.
function wordsOf({ code = "", message }: Failure): [string, string] {
  const at = PASSING.includes(code) ? message.indexOf(": ") : -1;
  return at < 0 ? [message, ""] : [message.slice(0, at), message.slice(at + 2)];
}

export function Failed({ children, error }: { children: ComponentChildren; error: Failure }) {
  const [words, details] = wordsOf(error);
  return (
    <div class="stale" role="alert">
      {children}: {words}
      {details && <details><summary>Details</summary>{details}</details>}
    </div>
  );
}

// Above what is shown while it cannot be brought up to date. While the api is away the header says it of the whole page.
export function Stale({ error }: { error?: Failure }) {
  if (!error || (error.hasValue && PASSING.includes(error.code ?? ""))) return null;
  return <Failed error={error}>{error.hasValue ? "Not up to date" : "Not known now"}</Failed>;
}

interface Absent {
  what: string; // "job"
  name: string;
  error?: { code: string; message: string };
  all: { href: string; title: string }; // the page that has all of them
}

// Instead of a page of one thing: it is on its way, there is none of that name, or it cannot be read now.
export function Absent({ what, name, error, all }: Absent) {
  const isUnknown = error?.code === "not_found" || error?.code === "invalid_argument";
  useTitle(isUnknown ? `No ${what} ${name}` : "");
  if (!error) return <p class="quiet" aria-busy="true">Loading</p>;
  return (
    <>
      <h1>{isUnknown ? `There is no ${what} ${name}` : name}</h1>
      {isUnknown ? <p class="stale" role="alert">{error.message}</p> : <Failed error={error}>It cannot be read now</Failed>}
      <p><a href={all.href}>{all.title}</a>{isUnknown && <>, or search with <kbd>/</kbd></>}</p>
    </>
  );
}
