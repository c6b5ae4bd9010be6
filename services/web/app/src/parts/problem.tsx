import { useTitle } from "../title";

export function Problem({ title, text }: { title: string; text?: string }) {
  return (
    <section class="problem" role="alert">
      <h2>{title}</h2>
      {text && <p>{text}</p>}
    </section>
  );
}

// Above what is shown while it cannot be brought up to date.
export function Stale({ error }: { error?: { message: string } }) {
  return error ? <p class="stale" role="alert">Not up to date: {error.message}</p> : null;
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
      <p class="stale" role="alert">{isUnknown ? error.message : `It cannot be read now: ${error.message}`}</p>
      <p><a href={all.href}>{all.title}</a>{isUnknown && <>, or search with <kbd>/</kbd></>}</p>
    </>
  );
}
