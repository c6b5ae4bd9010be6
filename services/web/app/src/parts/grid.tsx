// All instances of a job on one canvas, a cell each: state by colour and shape, and by letter where cells are large enough.
import { useEffect, useRef, useState } from "preact/hooks";
import { count } from "../format";
import { POD_STATES } from "../jobs";
import { colour, theme } from "../theme";
import { State, type Tone, toneOf } from "./state";

const HEIGHT = 420; // as much as the cells may take before they become as small as they may
const CELL_MIN = 3;
const CELL_MAX = 18;
const LETTER_FROM = 12;
const SHAPE_FROM = 5;

interface Layout {
  cell: number;
  columns: number;
  rows: number;
}

function laidOut(total: number, width: number): Layout {
  const fit = Math.floor(Math.sqrt((width * HEIGHT) / Math.max(total, 1)));
  const cell = Math.max(CELL_MIN, Math.min(CELL_MAX, fit));
  const columns = Math.max(1, Math.floor(width / cell));
  return { cell, columns, rows: Math.ceil(total / columns) };
}

export function Grid({ states, chosen, choose }: { states: Uint8Array; chosen: number; choose: (instance: number) => void }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const layout = laidOut(states.length, width);
  useEffect(() => {
    const watcher = new ResizeObserver(([entry]) => setWidth(Math.floor(entry!.contentRect.width)));
    watcher.observe(canvas.current!.parentElement!);
    return () => watcher.disconnect();
  }, []);
  useEffect(() => {
    if (width) draw(canvas.current!, states, layout, chosen);
  }, [states, width, chosen, theme.value]);
  const counts = countsOf(states);
  const at = (event: MouseEvent) => {
    const box = canvas.current!.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / layout.cell);
    const instance = Math.floor((event.clientY - box.top) / layout.cell) * layout.columns + column;
    return column < layout.columns && instance < states.length ? instance : -1;
  };
  const press = (event: KeyboardEvent) => {
    const steps: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -layout.columns, ArrowDown: layout.columns };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    choose(Math.max(0, Math.min(states.length - 1, chosen + step)));
  };
  return (
    <>
      <ul class="legend" aria-label="Instances by state">
        {counts.map(([state, number]) => <li key={state}><State state={state} /> {count(number)}</li>)}
      </ul>
      <div class="grid">
        <canvas
          ref={canvas} tabIndex={0} role="slider" aria-label="Instance" aria-valuemin={0} aria-valuemax={states.length - 1}
          aria-valuenow={Math.max(chosen, 0)} aria-valuetext={chosen >= 0 ? `${chosen}, ${wordOf(states[chosen])}` : "none chosen"}
          onClick={(event) => { const found = at(event); if (found >= 0) choose(found); }}
          onMouseMove={(event) => { const found = at(event); canvas.current!.title = found < 0 ? "" : `${found}: ${wordOf(states[found])}`; }}
          onKeyDown={press}
        />
      </div>
    </>
  );
}

function wordOf(state: number | undefined): string {
  return (POD_STATES[state ?? 0] ?? String(state)).toLowerCase();
}

function countsOf(states: Uint8Array): [string, number][] {
  const counts = new Array<number>(256).fill(0);
  for (const state of states) counts[state]! += 1;
  const found = counts.flatMap((number, state): [string, number][] => (number ? [[POD_STATES[state] ?? String(state), number]] : []));
  return found.sort((one, other) => other[1] - one[1]);
}

function draw(canvas: HTMLCanvasElement, states: Uint8Array, { cell, columns, rows }: Layout, chosen: number): void {
  const scale = devicePixelRatio || 1;
  canvas.style.width = `${columns * cell}px`;
  canvas.style.height = `${rows * cell}px`;
  canvas.width = Math.round(columns * cell * scale);
  canvas.height = Math.round(rows * cell * scale);
  const pen = canvas.getContext("2d")!;
  pen.scale(scale, scale);
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.font = `${Math.round(cell * 0.7)}px system-ui`;
  const ground = colour("--ground");
  const byState = new Map<number, number[]>();
  states.forEach((state, instance) => {
    const found = byState.get(state);
    if (found) found.push(instance);
    else byState.set(state, [instance]);
  });
  for (const [state, instances] of byState) {
    const name = POD_STATES[state] ?? "?";
    const tone = toneOf(name);
    const ink = colour(`--${tone === "none" ? "line" : tone}`);
    for (const instance of instances) {
      const left = (instance % columns) * cell;
      const top = Math.floor(instance / columns) * cell;
      pen.fillStyle = ink;
      shape(pen, tone, left, top, cell, ground);
      if (cell < LETTER_FROM) continue;
      pen.fillStyle = isHollow(tone) ? ink : ground;
      pen.fillText(name.slice(0, 1), left + cell / 2, top + cell / 2 + 0.5);
    }
  }
  if (chosen < 0 || chosen >= states.length) return;
  pen.strokeStyle = colour("--text");
  pen.lineWidth = 2;
  pen.strokeRect((chosen % columns) * cell, Math.floor(chosen / columns) * cell, cell - 1, cell - 1);
}

function isHollow(tone: Tone): boolean {
  return tone === "waiting" || tone === "none";
}

// What waits is hollow, what is over is small, what is bad fills its whole cell.
function shape(pen: CanvasRenderingContext2D, tone: Tone, left: number, top: number, cell: number, ground: string): void {
  const gap = tone === "bad" ? 0 : 1;
  if (cell < SHAPE_FROM) {
    pen.fillRect(left, top, cell - 1, cell - 1);
    return;
  }
  const inset = tone === "over" && cell < LETTER_FROM ? Math.max(1, Math.floor(cell / 4)) : 0;
  pen.fillRect(left + inset, top + inset, cell - gap - 2 * inset, cell - gap - 2 * inset);
  if (!isHollow(tone)) return;
  pen.fillStyle = ground;
  pen.fillRect(left + 1, top + 1, cell - gap - 2, cell - gap - 2);
}
