// A service that is in trouble says so above everything else: the cause, and where its program says more.
import { useLive } from "../live";
import type { Trouble } from "../service";
import { Copy } from "./copy";
import { logHref } from "./logs";

export interface Wrong {
  severity?: string;
  text: string;
  subjectKind?: string;
  subjectId?: string;
  since?: string;
  command?: string;
}

// "Job big cannot run: 2 instances fit no host ..." is a title and its detail.
export function titleAndDetail(text: string): [string, string] {
  const at = text.indexOf(": ");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 2, at + 3).toUpperCase() + text.slice(at + 3)];
}

export function TroubleBanner({ id, trouble }: { id: string; trouble: Trouble[] }) {
  const problems = useLive<Wrong[]>(`problems:${id}`).value ?? [];
  if (!trouble.length && !problems.length) return null;
  return (
    <section class="banner" role="alert" aria-label="Problems">
      {trouble.map((one) => (
        <div key={one.title}>
          <h2>{one.title}</h2>
          {one.detail && <p class="lines">{one.detail}</p>}
          <p><a href={logHref(id, one.instance, { run: "", file: "stderr" })}>stderr of instance {one.instance}</a></p>
        </div>
      ))}
      {problems.map((one) => {
        const [title, detail] = titleAndDetail(one.text);
        return (
          <div key={one.text}>
            <h2>{title}</h2>
            {detail && <p>{detail}</p>}
            {one.command && <details><summary>From a terminal</summary><Copy text={one.command} /></details>}
          </div>
        );
      })}
    </section>
  );
}
