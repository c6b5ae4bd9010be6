// What the server pushes: one stream for all topics that the page shows.
import { type Signal, signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";

export interface Live<Value> {
  value?: Value; // the latest; kept while there is an error
  error?: { code: string; message: string };
}

export const connection = signal<"live" | "waiting" | "lost">("waiting");

interface Watched {
  news: Signal<Live<any>>;
  viewers: number;
}

const RETRY_FIRST_MS = 1_000;
const RETRY_MAX_MS = 30_000;

const watched = new Map<string, Watched>();
let stream: EventSource | null = null;
let open = "";
let isDue = false;
let retryMs = RETRY_FIRST_MS;

// The latest message of a topic, for as long as the component is there.
export function useLive<Value>(topic: string): Live<Value> {
  const [, redraw] = useState(0);
  useEffect(() => {
    const one = watched.get(topic) ?? { news: signal<Live<any>>({}), viewers: 0 };
    one.viewers += 1;
    watched.set(topic, one);
    connectSoon();
    const stop = one.news.subscribe(() => redraw((count) => count + 1));
    return () => {
      stop();
      one.viewers -= 1;
      if (!one.viewers) watched.delete(topic);
      connectSoon();
    };
  }, [topic]);
  return watched.get(topic)?.news.peek() ?? {};
}

function connectSoon(): void {
  if (isDue) return;
  isDue = true;
  setTimeout(() => {
    isDue = false;
    connect();
  }); // once for all components of a page
}

function connect(): void {
  const topics = [...watched.keys()].sort();
  const wanted = topics.map((topic) => `topic=${encodeURIComponent(topic)}`).join("&");
  if (wanted === open && stream && stream.readyState !== EventSource.CLOSED) return;
  stream?.close();
  stream = null;
  open = wanted;
  if (!topics.length) return;
  const fresh = new EventSource(`/live?${wanted}`);
  stream = fresh;
  fresh.onopen = () => {
    connection.value = "live";
    retryMs = RETRY_FIRST_MS;
  };
  fresh.onerror = () => {
    connection.value = "lost";
    if (fresh.readyState !== EventSource.CLOSED || stream !== fresh) return; // it tries again by itself
    setTimeout(connect, retryMs);
    retryMs = Math.min(retryMs * 2, RETRY_MAX_MS);
  };
  for (const topic of topics) {
    fresh.addEventListener(topic, (event) => {
      const one = watched.get(topic);
      if (!one) return;
      const told = JSON.parse(event.data) as Live<any>;
      one.news.value = told.error ? { ...one.news.peek(), error: told.error } : told;
    });
  }
}
