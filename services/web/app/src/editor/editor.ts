// The editor of YAML: a chunk of its own, which only the page that needs it loads.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, HighlightStyle, indentService, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, lintGutter, lintKeymap, setDiagnostics } from "@codemirror/lint";
import { EditorState, Transaction } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, highlightSpecialChars, hoverTooltip, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { boundsText, type Fault, faultsOf } from "./bounds";
import { completionOf, placeIn } from "./complete";
import { nextColumn } from "./place";
import { type Schema, shapeAt } from "./schema";

export type { Fault };

export interface Editor {
  replace: (text: string) => void; // all of it; undone as one step
  bounds: () => Fault[]; // what the schema forbids
  show: (faults: Fault[]) => void;
  inside: (fault: Fault) => Fault; // at the end of the text where a reader says that something is lacking behind it
  goTo: (fault: Fault) => void;
  close: () => void;
}

const colours = HighlightStyle.define([
  { tag: tags.definition(tags.propertyName), color: "var(--link)" },
  { tag: tags.string, color: "var(--good)" },
  { tag: [tags.labelName, tags.keyword, tags.typeName, tags.meta], color: "var(--waiting)" },
  { tag: tags.comment, color: "var(--quiet)", fontStyle: "italic" },
]);

const indent = indentService.of((context, position) => {
  const line = context.state.doc.lineAt(position);
  if (line.from < position || context.simulatedBreak === position) return nextColumn(context.state.sliceDoc(line.from, position));
  return line.number > 1 ? nextColumn(context.state.doc.line(line.number - 1).text) : 0;
});

const look = EditorView.theme({
  "&": { background: "var(--ground)", color: "var(--text)" },
  "&.cm-focused": { outline: "2px solid var(--link)", outlineOffset: "1px" },
  ".cm-scroller": { fontFamily: "ui-monospace, monospace", lineHeight: "1.5" },
  ".cm-content": { caretColor: "var(--text)", padding: "0.4rem 0" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { background: "var(--raised)", color: "var(--quiet)", borderRight: "1px solid var(--line)" },
  ".cm-activeLine": { background: "transparent" },
  "&.cm-focused .cm-activeLine": { boxShadow: "inset 0 0 0 100vmax color-mix(in srgb, var(--raised) 60%, transparent)" },
  ".cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground": { background: "color-mix(in srgb, var(--link) 25%, transparent)" },
  ".cm-tooltip": { background: "var(--ground)", color: "var(--text)", border: "1px solid var(--quiet)", borderRadius: "5px", maxWidth: "min(30rem, 92vw)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "ui-monospace, monospace", maxHeight: "16rem" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": { background: "var(--accent)", color: "var(--ground)" },
  ".cm-tooltip li[aria-selected] .cm-completionDetail": { color: "inherit" },
  ".cm-completionDetail": { color: "var(--quiet)", fontStyle: "normal" },
  ".cm-completionIcon": { display: "none" },
  ".cm-completionInfo, .cm-about": { padding: "0.3rem 0.6rem", whiteSpace: "pre-line" },
  ".cm-diagnostic-error": { borderLeftColor: "var(--bad)" },
  ".cm-matchingBracket": { background: "var(--raised)", outline: "1px solid var(--line)" },
});

export function edit(parent: HTMLElement, text: string, schema: Schema, label: string, describedBy: string, changed: (text: string) => void): Editor {
  const view = new EditorView({
    parent,
    state: EditorState.create({
      doc: text,
      extensions: [
        lineNumbers(), lintGutter(), history(), drawSelection(), highlightSpecialChars(), highlightActiveLine(), indent,
        bracketMatching(), closeBrackets(), EditorView.lineWrapping, EditorState.tabSize.of(2), indentUnit.of("  "),
        yaml(), syntaxHighlighting(colours), look,
        autocompletion({ override: [completionOf(schema)], icons: false, maxRenderedOptions: 200 }),
        hoverTooltip((shown, position) => about(shown, position, schema)),
        keymap.of([...closeBracketsKeymap, ...completionKeymap, ...defaultKeymap, ...historyKeymap, ...lintKeymap, indentWithTab]),
        EditorView.contentAttributes.of({ "aria-label": label, "aria-describedby": describedBy }),
        EditorView.updateListener.of((update) => update.docChanged && changed(update.state.doc.toString())),
      ],
    }),
  });
  view.scrollDOM.tabIndex = 0; // long lines are scrolled by keys as well
  const place = ({ line, column }: Fault) => {
    const at = view.state.doc.line(Math.min(Math.max(line, 1), view.state.doc.lines));
    return at.from + [...at.text].slice(0, column - 1).join("").length;
  };
  return {
    replace: (wanted) =>
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: wanted }, selection: { anchor: 0 }, annotations: Transaction.userEvent.of("input.replace") }),
    bounds: () => faultsOf(view.state, schema),
    inside: (fault) => {
      const last = view.state.doc.line(view.state.doc.lines);
      return fault.line > last.number ? { ...fault, line: last.number, column: last.length + 1 } : fault;
    },
    show: (faults) => view.dispatch(setDiagnostics(view.state, faults.map((fault) => diagnostic(view, place(fault), fault.text)))),
    goTo: (fault) => {
      view.dispatch({ selection: { anchor: place(fault) }, scrollIntoView: true });
      view.focus();
    },
    close: () => view.destroy(),
  };
}

function diagnostic(view: EditorView, from: number, message: string): Diagnostic {
  const word = view.state.wordAt(from);
  return { from, to: Math.max(word?.to ?? from, Math.min(from + 1, view.state.doc.length)), severity: "error", message };
}

// What the schema says of the key under the pointer; the completion says it to those who have none.
function about(view: EditorView, position: number, schema: Schema) {
  const word = view.state.wordAt(position);
  if (!word) return null;
  const place = placeIn(view.state, word.to);
  const shape = place && !place.isValue ? shapeAt([...place.path, view.state.sliceDoc(word.from, word.to)], schema) : null;
  const text = shape && [shape.description, boundsText(shape)].filter(Boolean).join(" ");
  if (!text) return null;
  return {
    pos: word.from,
    end: word.to,
    create: () => {
      const dom = document.createElement("div");
      dom.className = "cm-about";
      dom.textContent = text;
      return { dom };
    },
  };
}
