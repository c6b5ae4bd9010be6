// What the schema forbids beyond the form of a file: amounts, lengths, numbers of items, keys that are lacking.
import { ensureSyntaxTree } from "@codemirror/language";
import type { EditorState } from "@codemirror/state";
import type { SyntaxNode } from "@lezer/common";
import { below, ITEM, type Schema, type Shape, shapeOf } from "./schema";

export interface Fault {
  line: number; // from 1, as the column
  column: number;
  text: string;
}

const PARSE_MS = 200;
const FAULTS_MAX = 20;
const MERGE = "<<";

export function faultsOf(state: EditorState, schema: Schema): Fault[] {
  const tree = ensureSyntaxTree(state, state.doc.length, PARSE_MS);
  const top = tree?.topNode.getChild("Document")?.firstChild;
  const faults: Fault[] = [];
  if (top) walk(top, shapeOf(schema, schema), "");
  return faults;

  function add(node: SyntaxNode, text: string): void {
    const line = state.doc.lineAt(node.from);
    if (faults.length < FAULTS_MAX) faults.push({ line: line.number, column: node.from - line.from + 1, text });
  }

  function walk(node: SyntaxNode, shape: Shape, where: string): void {
    if (faults.length >= FAULTS_MAX) return;
    switch (node.name) {
      case "Anchored":
      case "Tagged":
        if (node.lastChild && node.lastChild.name !== "Anchor" && node.lastChild.name !== "Tag") walk(node.lastChild, shape, where);
        break;
      case "BlockMapping":
      case "FlowMapping":
        mapping(node, shape, where);
        break;
      case "BlockSequence":
      case "FlowSequence":
        list(node, shape, where);
        break;
      case "Literal":
      case "QuotedLiteral": {
        const fault = scalarFault(state.sliceDoc(node.from, node.to), node.name === "QuotedLiteral", shape);
        if (fault) add(node, `${where}: ${fault}`);
      }
    }
  }

  function mapping(node: SyntaxNode, shape: Shape, where: string): void {
    const seen = new Set<string>();
    for (const pair of node.getChildren("Pair")) {
      const key = pair.getChild("Key");
      const value = pair.lastChild;
      if (!key) continue;
      const name = unquoted(state.sliceDoc(key.from, key.to));
      seen.add(name.replaceAll("_", "").toLowerCase());
      const next = below(shape, name, schema);
      if (next && value && value.name !== ":" && value.name !== "Key") walk(value, next, where ? `${where}.${name}` : name);
    }
    if (seen.has(MERGE)) return;
    for (const name of shape.required) if (!seen.has(name)) add(node.getChild("Pair") ?? node, `${where ? `${where}: ` : ""}missing key '${name}'`);
  }

  function list(node: SyntaxNode, shape: Shape, where: string): void {
    const items = node.getChildren("Item");
    const { maxItems } = shape.bounds;
    if (maxItems !== undefined && items.length > maxItems) add(node, `${where}: ${items.length} items, at most ${maxItems} are allowed`);
    const next = below(shape, ITEM, schema);
    if (!next) return;
    for (const [index, item] of items.entries()) if (item.firstChild) walk(item.firstChild, next, `${where}[${index}]`);
  }
}

function unquoted(text: string): string {
  return /^(["']).*\1$/s.test(text) ? text.slice(1, -1) : text;
}

function scalarFault(written: string, isQuoted: boolean, shape: Shape): string {
  const { minimum, maximum, minLength, maxLength, pattern } = shape.bounds;
  const text = isQuoted ? unquoted(written) : written;
  if (shape.refused.includes(text)) return `${text} is not taken`;
  if (shape.choices) return "";
  if (shape.type === "integer" || shape.type === "number") {
    const number = Number(text.replaceAll("_", ""));
    if (isQuoted || !text || Number.isNaN(number)) return ""; // another notation, or none: the reader says so
    if (minimum !== undefined && number < minimum) return `${text} is too small, want ${lowered(boundsText(shape))}`;
    if (maximum !== undefined && number > maximum) return `${text} is too large, want ${lowered(boundsText(shape))}`;
    return "";
  }
  const length = [...text].length;
  if (maxLength !== undefined && length > maxLength) return `${length} characters, at most ${maxLength} are allowed`;
  if (minLength !== undefined && length < minLength) return `must not be empty`;
  if (pattern && !new RegExp(pattern, "u").test(text)) return `'${text.slice(0, 40)}' does not match ${pattern}`;
  return "";
}

function lowered(sentence: string): string {
  return sentence.charAt(0).toLowerCase() + sentence.slice(1).replace(/\.$/, "");
}

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 3 });
const WHOLE = [-(2 ** 31), 2 ** 31 - 1, 2 ** 32 - 1, -(2 ** 63), 2 ** 63 - 1, 2 ** 64 - 1]; // bounds of the type itself, which need no message

export function boundsText({ bounds: { minimum, maximum, maxItems, maxLength } }: Shape): string {
  const least = minimum !== undefined && !WHOLE.includes(minimum) ? number.format(minimum) : "";
  const most = maximum !== undefined && !WHOLE.includes(maximum) ? number.format(maximum) : "";
  if (least && most) return `From ${least} to ${most}.`;
  if (least) return `At least ${least}.`;
  if (most) return `At most ${most}.`;
  if (maxItems !== undefined) return `At most ${number.format(maxItems)} items.`;
  return maxLength !== undefined ? `At most ${number.format(maxLength)} characters.` : "";
}
