// The title of the window: of a page of one thing its name, once that is known; until then the shell says what page it is.
import { useEffect } from "preact/hooks";

export function useTitle(text: string): void {
  useEffect(() => {
    if (text) document.title = `${text} · Peloton`;
  }, [text]);
}
