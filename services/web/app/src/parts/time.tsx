// A moment: how long ago or, if it is to come, how far, and the time in the reader's zone on hover and for screen readers.
import { useEffect, useState } from "preact/hooks";
import { ago, time, until } from "../format";

const REDRAW_MS = 10_000;

export function Time({ at, isToCome }: { at?: string; isToCome?: boolean }) {
  const [, redraw] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => redraw((count) => count + 1), REDRAW_MS);
    return () => clearInterval(timer);
  }, []);
  return at ? <time dateTime={at} title={time(at)}>{isToCome ? until(at) : ago(at)}</time> : <span class="quiet">–</span>;
}
