import { useRef, useState } from "preact/hooks";

const SHOWN_MS = 1_500;

// A line to copy, as a command.
export function Copy({ text }: { text: string }) {
  const [said, setSaid] = useState("Copy");
  const line = useRef<HTMLElement>(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setSaid("Copied");
    } catch {
      // Browsers give the clipboard to https and localhost only.
      getSelection()!.selectAllChildren(line.current!);
      setSaid("Selected: copy it with the keyboard");
    }
    setTimeout(() => setSaid("Copy"), SHOWN_MS);
  };
  return (
    <span class="copy">
      <code ref={line}>{text}</code>
      <button type="button" onClick={copy} aria-label={`Copy ${text}`}>{said}</button>
    </span>
  );
}
