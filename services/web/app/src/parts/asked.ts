// What is asked once, not live: an answer of the API for as long as its question is the same.
import { useEffect, useState } from "preact/hooks";
import { isPassing } from "../api";

const RETRY_MS = 5_000;

export interface Asked<Answer> {
  value?: Answer; // the latest, also of another question while this one has no answer
  error?: Error;
  isBusy: boolean; // whether this question waits for its answer
  again: () => void;
}

export function useAsked<Answer>(question: string, ask: () => Promise<Answer>): Asked<Answer> {
  const [outcome, setOutcome] = useState<{ of?: string; value?: Answer; error?: Error }>({});
  const [turn, setTurn] = useState(0);
  const asking = `${turn} ${question}`;
  const again = () => setTurn((count) => count + 1);
  useEffect(() => {
    let isOld = false;
    ask().then(
      (value) => !isOld && setOutcome({ of: asking, value }),
      (error: Error) => !isOld && setOutcome((before) => ({ ...before, of: asking, error })),
    );
    return () => {
      isOld = true;
    };
  }, [asking]);
  useEffect(() => {
    if (!outcome.error || !isPassing(outcome.error)) return;
    const timer = setTimeout(again, RETRY_MS);
    return () => clearTimeout(timer);
  }, [outcome.error]);
  return { value: outcome.value, error: outcome.error, isBusy: outcome.of !== asking, again };
}
