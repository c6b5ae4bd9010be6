// The screen of a terminal, drawn by xterm.js as large as its place is.
import { FitAddon } from "@xterm/addon-fit";
import { type ITheme, Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { colour } from "../theme";
import type { Size } from "./session";

const SCROLLBACK = 5_000; // lines
const CONTRAST = 4.5; // of WCAG AA: colours of programs are made for dark ground

export interface Screen {
  size: Size;
  write: (data: Uint8Array, drawn: () => void) => void;
  focus: () => void;
  readAloud: (is: boolean) => void;
  dispose: () => void;
}

interface Heard {
  typed: (data: Uint8Array) => void;
  resized: (size: Size) => void;
}

export function openScreen(place: HTMLElement, heard: Heard): Screen {
  const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const terminal = new Terminal({
    scrollback: SCROLLBACK, minimumContrastRatio: CONTRAST, cursorBlink: !isCalm, fontFamily: "ui-monospace, monospace", fontSize: 14, theme: theme(),
    linkHandler: { activate: () => undefined }, // a program may call any address a link
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(place);
  fit.fit();
  const letters = new TextEncoder();
  terminal.onData((text) => heard.typed(letters.encode(text)));
  terminal.onBinary((text) => heard.typed(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
  terminal.onResize(({ rows, cols }) => heard.resized({ rows, columns: cols }));
  terminal.attachCustomKeyEventHandler((event) => !(event.key === "Tab" && event.shiftKey)); // the way out by keys
  const watched = new ResizeObserver(() => fit.fit());
  watched.observe(place);
  return {
    get size() {
      return { rows: terminal.rows, columns: terminal.cols };
    },
    write: (data, drawn) => terminal.write(data, drawn),
    focus: () => terminal.focus(),
    readAloud: (is) => (terminal.options.screenReaderMode = is),
    dispose: () => {
      watched.disconnect();
      terminal.dispose();
    },
  };
}

function theme(): ITheme {
  return { background: colour("--ground"), foreground: colour("--text"), cursor: colour("--text"), selectionBackground: colour("--line") };
}
