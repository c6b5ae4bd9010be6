// Search by keyboard: pages, pools, jobs and hosts by what their name or id begins with.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "../api";
import { PAGES } from "../pages/all";
import { go } from "../router";

interface Hit {
  text: string;
  what: string;
  href: string;
}

const TYPED_MS = 150;
const HITS_MAX = 20;
const isOpen = signal(false);

export function openSearch(): void {
  isOpen.value = true;
}

addEventListener("keydown", (event) => {
  const target = event.target as HTMLElement;
  const isTyping = target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  openSearch();
});

async function find(text: string): Promise<Hit[]> {
  const wanted = text.toLowerCase();
  const pages = PAGES.filter((page) => page.nav && page.title.toLowerCase().includes(wanted));
  const hits = pages.map((page): Hit => ({ text: page.title, what: "page", href: page.path }));
  if (!text) return hits;
  const [jobs, pools] = await Promise.all([
    call("peloton.api.v0.lookup.LookupService", "FindJobs", { text, begins: true, limit: HITS_MAX }),
    call("peloton.api.v0.explain.ExplainService", "PoolTree"),
  ]);
  for (const pool of pools.pools ?? []) {
    if (pool.path.toLowerCase().includes(wanted)) hits.push({ text: pool.path, what: "pool", href: `/pools${pool.path === "/" ? "" : pool.path}` });
  }
  for (const job of jobs.jobs ?? []) hits.push({ text: job.name, what: `job in ${job.poolPath}`, href: `/jobs/${job.id.value}` });
  return hits.slice(0, HITS_MAX);
}

export function Search() {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const [hits, setHits] = useState<Hit[]>([]);
  const [chosen, setChosen] = useState(0);
  const [failure, setFailure] = useState("");
  useEffect(() => {
    if (isOpen.value && !dialog.current!.open) dialog.current!.showModal();
  }, [isOpen.value]);
  useEffect(() => {
    if (!isOpen.value) return;
    let isOld = false;
    const timer = setTimeout(() => {
      find(text.trim()).then(
        (found) => {
          if (isOld) return;
          setHits(found);
          setChosen(0);
          setFailure("");
        },
        (error: Error) => !isOld && setFailure(error.message),
      );
    }, TYPED_MS);
    return () => {
      isOld = true;
      clearTimeout(timer);
    };
  }, [text, isOpen.value]);
  const close = () => {
    isOpen.value = false;
    dialog.current!.close();
  };
  const take = (hit?: Hit) => {
    if (!hit) return;
    close();
    go(hit.href);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") setChosen(Math.min(chosen + 1, hits.length - 1));
    else if (event.key === "ArrowUp") setChosen(Math.max(chosen - 1, 0));
    else if (event.key === "Enter") take(hits[chosen]);
    else return;
    event.preventDefault();
  };
  return (
    <dialog class="search" ref={dialog} aria-label="Search" onClose={() => (isOpen.value = false)}>
      <input
        type="text" role="combobox" aria-label="Search pages, pools and jobs" aria-expanded="true" aria-controls="hits"
        aria-activedescendant={hits.length ? `hit-${chosen}` : undefined} placeholder="Pool, job name or id"
        value={text} onInput={(event) => setText(event.currentTarget.value)} onKeyDown={onKeyDown}
      />
      {failure && <p class="stale" role="alert">{failure}</p>}
      <ul id="hits" role="listbox" aria-label="Found">
        {hits.map((hit, index) => (
          <li key={hit.href} id={`hit-${index}`} role="option" aria-selected={index === chosen} onClick={() => take(hit)}>
            {hit.text} <span class="quiet">{hit.what}</span>
          </li>
        ))}
      </ul>
      {!hits.length && !failure && <p class="quiet">Nothing begins with that.</p>}
      <p class="buttons"><button type="button" onClick={close}>Close</button></p>
    </dialog>
  );
}
