// Where in a YAML file the cursor is, by indentation: the tree of a parser has nothing where something is to be typed.
import { ITEM } from "./schema";

export type Path = (string | typeof ITEM)[];

export interface Place {
  path: Path; // of the mapping that the key is in, or of the value
  isValue: boolean;
  typed: string; // of the word, up to the cursor
  column: number; // where a mapping below the key is indented from
  taken: string[]; // keys that the mapping has
  isFlow: boolean; // inside { } or [ ]
}

interface Parts {
  markers: number[]; // columns of dashes
  column: number; // of what stands behind them
  key?: string;
  value: string;
}

const KEY = /^(?:"([^"]*)"|'([^']*)'|([^\s#'"{[&*!|>-][^#{[]*?))\s*:(?=\s|$)\s*/;

function partsOf(line: string): Parts | null {
  const markers: number[] = [];
  let column = line.search(/\S/);
  if (column < 0 || line[column] === "#") return null;
  while (line[column] === "-" && (line[column + 1] === " " || column + 1 === line.length)) {
    markers.push(column);
    const rest = line.slice(column + 1).search(/\S/);
    column = rest < 0 ? line.length : column + 1 + rest;
  }
  const found = KEY.exec(line.slice(column));
  if (!found) return { markers, column, value: line.slice(column) };
  return { markers, column, key: found[1] ?? found[2] ?? found[3]!, value: line.slice(column + found[0].length) };
}

// Where the line after this one begins: below a key that has nothing yet it goes in, else it stays.
export function nextColumn(line: string): number {
  const parts = partsOf(line);
  if (!parts) return line.search(/\S|$/);
  return parts.column + (parts.key !== undefined && /^([|>][+-]?\d?)?\s*(#.*)?$/.test(parts.value) ? 2 : 0);
}

// ``index`` counts lines from 0. Null inside of comments and quotes.
export function placeAt(lines: (index: number) => string, count: number, index: number, cursor: number): Place | null {
  const before = lines(index).slice(0, cursor);
  const parts = partsOf(before) ?? { markers: [], column: cursor, value: "" };
  if (before.trimStart().startsWith("#")) return null;
  const { path, taken } = above(lines, index, parts, count);
  const start = parts.key === undefined ? path : [...path, parts.key];
  if (/^[[{]/.test(parts.value)) return inFlow(parts.value, start, parts.column);
  if (parts.key !== undefined) return /^[\w.]*$/.test(parts.value) ? { path: start, isValue: true, typed: parts.value, column: parts.column, taken: [], isFlow: false } : null;
  if (!/^\w*$/.test(parts.value)) return null;
  return { path, isValue: false, typed: parts.value, column: parts.column, taken, isFlow: false };
}

// The path down to what stands at the parts' column, and the keys of the same mapping.
function above(lines: (index: number) => string, index: number, parts: Parts, count: number): { path: Path; taken: string[] } {
  const path: Path = [];
  const taken: string[] = [];
  let column = parts.column;
  let isItem = false;
  let isSibling = true; // whether a line at the column is in the same mapping
  const climb = (markers: number[]) => {
    for (const marker of markers.toReversed()) {
      path.unshift(ITEM);
      column = marker;
      isItem = true;
      isSibling = false;
    }
  };
  climb(parts.markers);
  for (let at = index - 1; at >= 0 && (column > 0 || isItem || isSibling); at -= 1) {
    const line = partsOf(lines(at));
    if (!line || (isItem && line.markers.includes(column))) continue;
    if (line.key !== undefined && (line.column < column || (isItem && line.column === column))) {
      path.unshift(line.key);
      column = line.column;
      isItem = isSibling = false;
      climb(line.markers);
    } else if (!isItem && line.column === column) {
      if (isSibling && line.key !== undefined) taken.push(line.key);
      climb(line.markers);
    }
  }
  for (let at = index + 1; at < count; at += 1) {
    const line = partsOf(lines(at));
    if (!line) continue;
    if ((line.markers[0] ?? line.column) < parts.column) break;
    if (line.column === parts.column && line.key !== undefined && !line.markers.length) taken.push(line.key);
  }
  return { path, taken };
}

// In braces and brackets of one line.
function inFlow(text: string, start: Path, column: number): Place | null {
  const open: { isMapping: boolean; key?: string; piece: string; taken: string[] }[] = [];
  let quote = "";
  for (const letter of text) {
    const last = open.at(-1);
    if (quote) {
      if (letter === quote) quote = "";
      if (last) last.piece += letter;
    } else if (letter === '"' || letter === "'") {
      quote = letter;
      if (last) last.piece += letter;
    } else if (letter === "{" || letter === "[") {
      open.push({ isMapping: letter === "{", piece: "", taken: [] });
    } else if (letter === "}" || letter === "]") {
      open.pop();
    } else if (last && letter === ",") {
      Object.assign(last, { key: undefined, piece: "" });
    } else if (last?.isMapping && letter === ":" && last.key === undefined) {
      last.key = last.piece.trim().replace(/^['"]|['"]$/g, "");
      last.taken.push(last.key);
      last.piece = "";
    } else if (last) {
      last.piece += letter;
    }
  }
  const here = open.at(-1);
  const typed = here?.piece.trimStart() ?? "";
  if (!here || quote || !/^\w*$/.test(typed)) return null;
  const path = [...start];
  for (const one of open) {
    if (!one.isMapping) path.push(ITEM);
    else if (one.key !== undefined) path.push(one.key);
  }
  const isValue = !here.isMapping || here.key !== undefined;
  return { path, isValue, typed, column, taken: here.taken, isFlow: true };
}
