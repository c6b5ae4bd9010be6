// Programs write logs for terminals: their escape sequences, colours among them, are taken out. Other characters that do
// something to a text are escaped where all texts of pages are, see visible.ts.

const ESCAPES = new RegExp(
  [
    "\\x1b\\[[0-?]*[ -/]*[@-~]", // CSI: colours, movements of the cursor
    "\\x9b[0-?]*[ -/]*[@-~]",
    "\\x1b[\\]PX^_][^\\x07\\x1b\\n]*(?:\\x07|\\x1b\\\\)", // OSC and the like: titles, links, clipboards
    "\\x1b[ -/]*[0-Z\\\\^-~]", // others of two letters
    "\\r(?=\\n)",
  ].join("|"),
  "g",
);

export function plain(text: string): string {
  return text.replace(ESCAPES, "");
}

export interface Piece {
  text: string;
  place: number; // the number of the found place from 0; -1: none is here
}

// A text cut at the places where another one is found, without regard to case.
export function pieces(text: string, wanted: string): Piece[] {
  if (!wanted) return [{ text, place: -1 }];
  const found: Piece[] = [];
  let behind = 0;
  let count = 0;
  for (const match of text.matchAll(new RegExp(wanted.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "gi"))) {
    if (match.index > behind) found.push({ text: text.slice(behind, match.index), place: -1 });
    found.push({ text: match[0], place: count });
    count += 1;
    behind = match.index + match[0].length;
  }
  if (behind < text.length || !found.length) found.push({ text: text.slice(behind), place: -1 });
  return found;
}
