// Search by keyboard: pages, pools and hosts by a part of their names, jobs and services by what their name or id begins
// with.
import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { call } from "../api";
import { PAGES } from "../pages/all";
import { called } from "../format";
import { hostHref } from "../host";
import { poolHref } from "../pools";
import { go } from "../router";

interface Hit {
  text: string;
  more?: string;
  href: string;
}

interface Group {
  title: string;
  hits: Hit[];
  hasMore?: boolean;
}

interface Answer {
  jobs?: { id: { value: string }; name?: string; poolPath?: string; state?: string; type?: string }[];
  poolPaths?: string[];
  hosts?: { hostname: string; cluster: string }[];
  hasMoreJobs?: boolean;
  hasMorePools?: boolean;
  hasMoreHosts?: boolean;
}

const TYPED_MS = 150;
const HITS_MAX = 20; // of each group
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

// Groups that have any.
async function find(text: string): Promise<Group[]> {
  const wanted = text.toLowerCase();
  const pages = PAGES.filter((page) => page.nav && page.title.toLowerCase().includes(wanted));
  const groups: Group[] = [{ title: "Pages", hits: pages.map((page) => ({ text: page.title, href: page.path })) }];
  if (text) {
    const found = await call<Answer>("peloton.api.v0.lookup.LookupService", "Find", { text, limit: HITS_MAX });
    const [services, jobs] = [true, false].map((isService) =>
      (found.jobs ?? []).filter((job) => (job.type === "SERVICE") === isService).map((job): Hit => {
        const href = `/${isService ? "services" : "jobs"}/${job.id.value}`;
        return { text: called(job.name, job.id.value), more: `in ${job.poolPath ?? "a pool that is gone"}, ${(job.state ?? "").toLowerCase()}`, href };
      }),
    );
    groups.push(
      { title: "Pools", hits: (found.poolPaths ?? []).map((path) => ({ text: path, href: poolHref(path) })), hasMore: found.hasMorePools },
      { title: "Services", hits: services!, hasMore: found.hasMoreJobs },
      { title: "Jobs", hits: jobs!, hasMore: found.hasMoreJobs },
      { title: "Hosts", hits: (found.hosts ?? []).map(({ hostname, cluster }) => ({ text: hostname, more: `of ${cluster}`, href: hostHref(hostname) })), hasMore: found.hasMoreHosts },
    );
  }
  return groups.filter(({ hits }) => hits.length);
}

export function Search() {
  const dialog = useRef<HTMLDialogElement>(null);
  const input = useRef<HTMLInputElement>(null);
  const [text, setText] = useState("");
  const [groups, setGroups] = useState<Group[]>([]);
  const [of, setOf] = useState(""); // the text that the groups are of
  const [chosen, setChosen] = useState(0);
  const [failure, setFailure] = useState("");
  // Before the next key, which is for it.
  useLayoutEffect(() => {
    if (!isOpen.value || dialog.current!.open) return;
    dialog.current!.showModal();
    input.current!.select(); // what was sought last gives way
  }, [isOpen.value]);
  useEffect(() => {
    if (!isOpen.value) return;
    let isOld = false;
    const timer = setTimeout(() => {
      find(text.trim()).then(
        (found) => {
          if (isOld) return;
          setGroups(found);
          setOf(text);
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
  const hits = groups.flatMap((group) => group.hits);
  const close = () => {
    isOpen.value = false;
    dialog.current!.close();
  };
  const take = (hit?: Hit) => {
    if (!hit) return;
    close();
    go(hit.href);
  };
  const choose = (index: number) => {
    setChosen(index);
    document.getElementById(`hit-${index}`)?.scrollIntoView({ block: "nearest" });
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") choose(Math.min(chosen + 1, hits.length - 1));
    else if (event.key === "ArrowUp") choose(Math.max(chosen - 1, 0));
    else if (event.key === "Enter" && of === text) take(hits[chosen]);
    else if (event.key === "Enter") find(text.trim()).then(([first]) => take(first?.hits[0]), (error: Error) => setFailure(error.message));
    else return;
    event.preventDefault();
  };
  return (
    <dialog class="search" ref={dialog} aria-label="Search" onClose={() => (isOpen.value = false)}>
      <input
        ref={input} type="text" role="combobox" aria-label="Search pages, pools, services, jobs and hosts" aria-expanded="true" aria-controls="hits"
        aria-activedescendant={hits.length ? `hit-${chosen}` : undefined} placeholder="Pool, job, service or host"
        value={text} onInput={(event) => setText(event.currentTarget.value)} onKeyDown={onKeyDown}
      />
      {failure && <p class="stale" role="alert">{failure}</p>}
      <div id="hits" class="hits" role="listbox" aria-label="Found">
        {groups.map((group, at) => {
          const before = groups.slice(0, at).reduce((sum, one) => sum + one.hits.length, 0);
          return (
            <ul key={group.title} role="group" aria-labelledby={`group-${at}`}>
              <li id={`group-${at}`} role="presentation" class="quiet">{group.title}{group.hasMore && `: there are more than ${group.hits.length}, type more`}</li>
              {group.hits.map((hit, index) => (
                <li key={hit.href} id={`hit-${before + index}`} role="option" aria-selected={before + index === chosen} onClick={() => take(hit)}>
                  {hit.text} {hit.more && <span class="quiet">{hit.more}</span>}
                </li>
              ))}
            </ul>
          );
        })}
      </div>
      {!hits.length && !failure && <p class="quiet">No page, pool, job or host has that name.</p>}
      <p class="buttons"><button type="button" onClick={close}>Close</button></p>
    </dialog>
  );
}
