// What is asked once, not live: an answer of the API for as long as its question is the same.
import { useEffect, useState } from "preact/hooks";

export interface Asked<Answer> {
  value?: Answer;
  error?: Error;
  again: () => void;
}

export function useAsked<Answer>(question: string, ask: () => Promise<Answer>): Asked<Answer> {
  const [told, setTold] = useState<{ value?: Answer; error?: Error }>({});
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let isOld = false;
    ask().then(
      (value) => !isOld && setTold({ value }),
      (error: Error) => !isOld && setTold((before) => ({ ...before, error })),
    );
    return () => {
      isOld = true;
    };
  }, [question, turn]);
  return { ...told, again: () => setTurn((count) => count + 1) };
}
