// A field whose text is taken when it is left, or at Enter. News that come meanwhile do not take away what is typed.
import { useState } from "preact/hooks";

interface Props {
  value: string;
  take: (text: string) => void;
  placeholder: string;
  name?: string;
  type?: "number";
  min?: number;
  max?: number;
  list?: string; // id of what it completes from
  isWrong?: boolean;
}

export function Typed({ value, take, isWrong, ...rest }: Props) {
  const [draft, setDraft] = useState<string | null>(null);
  return (
    <input
      {...rest} value={draft ?? value} aria-invalid={isWrong} spellcheck={false} autocomplete="off"
      onInput={(event) => setDraft(event.currentTarget.value)} onBlur={() => setDraft(null)}
      onChange={(event) => {
        setDraft(null);
        take(event.currentTarget.value.trim());
      }}
    />
  );
}
