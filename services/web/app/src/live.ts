// What the server pushes: one stream for all topics that the page shows, and whether what is shown is up to date.
import { type Signal, signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { readSettings } from "./settings";

export interface LiveError {
  code: string;
  message: string;
  hasValue: boolean; // whether the page has an older value to show
}

export interface Live<Value> {
  value?: Value; // the latest; kept while there is an error
  error?: LiveError;
}

export interface Freshness {
  state: "none" | "connecting" | "live" | "stale"; // none: the page shows nothing that is live
  asOfMs: number; // of a stale page: when all that it shows was last up to date; 0: it shows nothing yet
  causes: string[];
}

export const freshness = signal<Freshness>({ state: "none", asOfMs: 0, causes: [] });

interface Watched {
  news: Signal<Live<any>>;
  asOfMs: number; // of the last answer behind an error; 0: there was none
  viewers: number;
}

const RETRY_FIRST_MS = 1_000;
const RETRY_MAX_MS = 30_000;
const SILENT_MS = 40_000; // the server sends a beat every 15 s
const FRESHNESS_MS = 5_000;
// Errors that are answers: what is shown is not old because of them.
const ANSWERS = ["not_found", "invalid_argument", "failed_precondition", "out_of_range", "permission_denied", "unauthenticated", "unimplemented"];

const watched = new Map<string, Watched>();
let stream: EventSource | null = null;
let open = "";
let isDue = false;
let retryMs = RETRY_FIRST_MS;
let hasOpened = false;
let isLost = false;
let heardMs = 0; // when the server was last heard

// The latest message of a topic, for as long as the component is there.
export function useLive<Value>(topic: string): Live<Value> {
  const [, redraw] = useState(0);
  useEffect(() => {
    const one = watched.get(topic) ?? { news: signal<Live<any>>({}), asOfMs: 0, viewers: 0 };
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

function updateFreshness(): void {
  const errors = [...watched.values()].filter((one) => one.news.peek().error && !ANSWERS.includes(one.news.peek().error!.code));
  const isSilent = hasOpened && Date.now() - heardMs > SILENT_MS;
  const causes = [...new Set(errors.map((one) => one.news.peek().error!.message))];
  if (isLost || isSilent) causes.unshift(isLost ? "The server of these pages does not answer." : "The server of these pages has been silent for a while.");
  const times = errors.filter((one) => one.news.peek().value !== undefined).map((one) => one.asOfMs);
  if ((isLost || isSilent) && [...watched.values()].some((one) => one.news.peek().value !== undefined)) times.push(heardMs);
  const state = !watched.size ? "none" : causes.length ? "stale" : hasOpened ? "live" : "connecting";
  const found: Freshness = { state, asOfMs: times.length ? Math.min(...times) : 0, causes };
  if (JSON.stringify(found) !== JSON.stringify(freshness.peek())) freshness.value = found;
}

setInterval(updateFreshness, FRESHNESS_MS);

function connectSoon(): void {
  if (isDue) return;
  isDue = true;
  setTimeout(() => {
    isDue = false;
    connect();
    updateFreshness();
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
  const heard = () => {
    isLost = false;
    hasOpened = true;
    heardMs = Date.now();
  };
  fresh.onopen = () => {
    retryMs = RETRY_FIRST_MS;
    heard();
    updateFreshness();
  };
  fresh.onerror = () => {
    if (stream !== fresh) return;
    isLost = true;
    updateFreshness();
    if (fresh.readyState !== EventSource.CLOSED) return; // it tries again by itself
    readSettings(); // the session may have ended
    setTimeout(connect, retryMs);
    retryMs = Math.min(retryMs * 2, RETRY_MAX_MS);
  };
  fresh.addEventListener("beat", heard);
  for (const topic of topics) {
    fresh.addEventListener(topic, (event) => {
      heard();
      const one = watched.get(topic);
      if (!one) return;
      const message = JSON.parse(event.data) as { value?: any; error?: { code: string; message: string }; asOfMs?: number };
      const before = one.news.peek().value;
      if (message.error?.code === "unauthenticated") readSettings();
      if (message.error) one.asOfMs = message.asOfMs ?? one.asOfMs;
      one.news.value = message.error ? { value: before, error: { ...message.error, hasValue: before !== undefined } } : { value: message.value };
      updateFreshness();
    });
  }
}
