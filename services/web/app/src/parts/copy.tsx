import { useState } from "preact/hooks";

const SHOWN_MS = 1_500;

// A line to copy, as a command.
export function Copy({ text }: { text: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), SHOWN_MS);
  };
  return (
    <span class="copy">
      <code>{text}</code>
      <button type="button" onClick={copy} aria-label={`Copy ${text}`}>{isCopied ? "Copied" : "Copy"}</button>
    </span>
  );
}
