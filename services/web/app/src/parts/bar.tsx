// A part of a whole, with marks: of capacity, or of the largest of several bars on one scale.

export interface Part {
  name: string;
  value: number;
  tone: "allocation" | "slack" | "demand" | "use";
}

export interface Mark {
  name: string;
  value: number;
  tone?: "reservation" | "limit";
}

// ``whole``: the value at the right end. The text says what the colours say.
export function Bar({ label, parts, marks = [], whole, text }: { label: string; parts: Part[]; marks?: Mark[]; whole: number; text: string }) {
  const width = (value: number) => `${whole > 0 ? Math.min(100, (100 * value) / whole) : 0}%`;
  return (
    <div class="bar" role="img" aria-label={`${label}: ${text}`}>
      <div class="track" aria-hidden="true">
        {parts.map((part) => <span key={part.name} class={`part ${part.tone}`} style={{ width: width(part.value) }} title={part.name} />)}
        {marks.map((mark) => <span key={mark.name} class={`mark ${mark.tone ?? ""}`} style={{ left: width(mark.value) }} title={mark.name} />)}
      </div>
      <span class="figures" aria-hidden="true">{text}</span>
    </div>
  );
}
