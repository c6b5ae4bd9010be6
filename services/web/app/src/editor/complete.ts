// Completion of keys and of values that have names, with what the schema says of them.
import { type Completion, type CompletionContext, type CompletionResult, startCompletion } from "@codemirror/autocomplete";
import { syntaxTree } from "@codemirror/language";
import { EditorSelection, type EditorState } from "@codemirror/state";
import type { EditorView } from "@codemirror/view";
import { boundsText } from "./bounds";
import { type Place, placeAt } from "./place";
import { nameOf, type Schema, type Shape, shapeAt, shapeOf, squashed } from "./schema";

const SET_ELSEWHERE = ["changelog", "revision", "respoolid", "parent"]; // of the whole file: by the API, and by the choice of a pool
const TEXTS = ["BlockLiteralContent", "BlockLiteral", "QuotedLiteral", "Comment"];

export function completionOf(schema: Schema): (context: CompletionContext) => CompletionResult | null {
  return (context) => {
    const place = placeIn(context.state, context.pos);
    if (!place) return null;
    const shape = shapeAt(place.path, schema);
    if (!shape) return null;
    const options = place.isValue ? values(shape) : [...keys(shape, place, schema), ...values(shape)];
    if (!options.length || (!place.typed && !place.isValue && !context.explicit)) return null;
    if (options.some((option) => option.label === place.typed)) return null; // it is there: Enter ends the line
    return { from: context.pos - place.typed.length, options };
  };
}

export function placeIn(state: EditorState, position: number): Place | null {
  if (TEXTS.includes(syntaxTree(state).resolveInner(position, -1).name)) return null;
  const line = state.doc.lineAt(position);
  return placeAt((index) => state.doc.line(index + 1).text, state.doc.lines, line.number - 1, position - line.from);
}

function values(shape: Shape): Completion[] {
  const names = shape.choices ?? (shape.type === "boolean" ? ["true", "false"] : []);
  return names.map((name, index) => ({ label: name, type: "enum", boost: -index, info: shape.description || undefined }));
}

function keys(shape: Shape, place: Place, root: Schema): Completion[] {
  if (shape.items && !place.isFlow) return [{ label: "-", detail: "an item of the list", apply: "- " }];
  const taken = new Set([...place.taken.map(squashed), ...(place.path.length ? [] : SET_ELSEWHERE)]);
  return Object.entries(shape.keys ?? {}).filter(([name]) => !taken.has(name)).map(([name, schema]) => {
    const field = shapeOf(schema, root);
    const needed = shape.required.includes(name);
    const said = [field.description, boundsText(field), field.isDeprecated ? "Deprecated." : ""].filter(Boolean).join(" ");
    return {
      label: name,
      type: "property",
      detail: `${nameOf(field)}${needed ? ", needed" : ""}`,
      info: said || undefined,
      boost: needed ? 2 : field.isDeprecated ? -2 : 0,
      apply: (view, _, from, to) => insert(view, name, field, place, from, to),
    };
  });
}

// The key with what has to follow it; what may stand there is offered at once.
function insert(view: EditorView, name: string, field: Shape, place: Place, from: number, to: number): void {
  const hasColon = /^\s*:/.test(view.state.sliceDoc(to, view.state.doc.lineAt(to).to));
  const indent = " ".repeat(place.column + 2);
  let text = `${name}: `;
  if (hasColon) text = name;
  else if (!place.isFlow && field.items) text = `${name}:\n${indent}- `;
  else if (!place.isFlow && (field.keys || field.values)) text = `${name}:\n${indent}`;
  view.dispatch({
    changes: { from, to, insert: text },
    selection: EditorSelection.cursor(from + text.length),
    userEvent: "input.complete",
    scrollIntoView: true,
  });
  if (!hasColon) startCompletion(view);
}
