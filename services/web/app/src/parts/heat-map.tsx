// All hosts as cells on a canvas: tens of thousands of them. The text below says of the cell under the pointer what its
// colour says of it; hosts that are not up have a stroke as well, and the fuller a cell the darker or lighter it is.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { count } from "../format";
import { hostHref } from "../host";
import { type Colouring, type Host, describe } from "../hosts";
import { go } from "../router";
import { colour, theme } from "../theme";
import { toneOf } from "./state";

const CELL_MAX = 32;
const CELL_MIN = 2;
const HEIGHT_WANTED = 320;
const STEPS = 10; // of percents
const STROKE_FROM = 5; // pixels of a cell, to have a stroke
const TONE_COLOURS: Record<string, string> = { good: "--good", busy: "--busy", waiting: "--waiting", bad: "--bad", over: "--over", none: "--line" };

interface Grid {
  cell: number;
  columns: number;
  height: number;
}

export function gridOf(hosts: number, width: number): Grid {
  const fitting = Math.floor(Math.sqrt((width * HEIGHT_WANTED) / Math.max(hosts, 1)));
  const cell = Math.max(CELL_MIN, Math.min(CELL_MAX, fitting));
  const columns = Math.max(1, Math.floor(width / cell));
  return { cell, columns, height: Math.ceil(hosts / columns) * cell };
}

export function HeatMap({ hosts, colouring }: { hosts: Host[]; colouring: Colouring }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [under, setUnder] = useState<Host | null>(null);
  const [redrawn, redraw] = useState(0);
  const grid = useMemo(() => gridOf(hosts.length, width), [hosts.length, width]);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry!.contentRect.width)));
    observer.observe(box.current!);
    const system = matchMedia("(prefers-color-scheme: dark)");
    const onChange = () => redraw((turn) => turn + 1);
    system.addEventListener("change", onChange);
    return () => {
      observer.disconnect();
      system.removeEventListener("change", onChange);
    };
  }, []);
  useEffect(() => {
    if (width) draw(canvas.current!, hosts, colouring, grid, width);
  }, [hosts, colouring, grid, width, theme.value, redrawn]);
  const at = (event: MouseEvent): Host | null => {
    const column = Math.floor(event.offsetX / grid.cell);
    if (column < 0 || column >= grid.columns) return null;
    return hosts[Math.floor(event.offsetY / grid.cell) * grid.columns + column] ?? null;
  };
  const summary = useMemo(() => summed(hosts, colouring), [hosts, colouring]);
  return (
    <div ref={box}>
      <canvas
        ref={canvas} class="heat" role="img" aria-label={`${colouring.title} of ${count(hosts.length, "host")}: ${summary}`}
        onMouseMove={(event) => setUnder(at(event))} onMouseLeave={() => setUnder(null)}
        onClick={(event) => {
          const host = at(event);
          if (host) go(hostHref(host.name));
        }}
      />
      <p class="quiet">{under ? <><strong>{under.name}</strong>: {described(under, colouring)}</> : summary}</p>
    </div>
  );
}

function described(host: Host, colouring: Colouring): string {
  const parts = [`${colouring.title} ${describe(host, colouring)}`, host.state.toLowerCase(), count(host.pods, "pod")];
  if (host.mark && host.mark !== "GREEN") parts.push(`marked ${host.mark.toLowerCase()}`);
  if (host.isMaintained) parts.push("in maintenance");
  if (host.isAvoided) parts.push("avoided");
  return parts.join(", ");
}

function summed(hosts: Host[], colouring: Colouring): string {
  const counts = new Map<string, number>();
  for (const host of hosts) {
    const value = colouring.percent?.(host);
    const key = colouring.word ? describe(host, colouring) : value === undefined ? "not known" : value >= 90 ? "90 % or more" : value >= 50 ? "50 to 89 %" : "less than 50 %";
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return [...counts].sort(([, one], [, other]) => other - one).map(([key, hosts]) => (colouring.word ? `${count(hosts)} ${key}` : `${key}: ${count(hosts, "host")}`)).join(", ");
}

function draw(canvas: HTMLCanvasElement, hosts: Host[], colouring: Colouring, grid: Grid, width: number): void {
  const ratio = devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = Math.max(grid.height, 1) * ratio;
  canvas.style.height = `${grid.height}px`;
  const paper = canvas.getContext("2d")!;
  paper.scale(ratio, ratio);
  const gap = grid.cell > 4 ? 1 : 0;
  const size = grid.cell - gap;
  const byColour = new Map<string, number[]>(); // one change of colour for each
  hosts.forEach((host, index) => {
    const key = keyOf(host, colouring);
    const cells = byColour.get(key);
    if (cells) cells.push(index);
    else byColour.set(key, [index]);
  });
  const [ink, line] = [colour("--allocation"), colour("--line")];
  for (const [key, cells] of byColour) {
    const step = Number(key);
    const isStep = key !== "" && !Number.isNaN(step);
    paper.fillStyle = isStep ? ink : key ? colour(key) : line;
    paper.globalAlpha = isStep ? 0.12 + (0.88 * step) / STEPS : 1;
    for (const index of cells) paper.fillRect((index % grid.columns) * grid.cell, Math.floor(index / grid.columns) * grid.cell, size, size);
  }
  paper.globalAlpha = 1;
  if (grid.cell < STROKE_FROM) return;
  paper.strokeStyle = colour("--bad");
  paper.lineWidth = 1.5;
  hosts.forEach((host, index) => {
    if (host.state === "UP") return;
    const [x, y] = [(index % grid.columns) * grid.cell, Math.floor(index / grid.columns) * grid.cell];
    paper.beginPath();
    paper.moveTo(x, y + size);
    paper.lineTo(x + size, y);
    paper.stroke();
  });
}

// A step of percents, or the name of a colour; empty: nothing is known.
function keyOf(host: Host, colouring: Colouring): string {
  if (colouring.word) {
    const word = colouring.word(host);
    return word ? TONE_COLOURS[toneOf(word)]! : "";
  }
  const value = colouring.percent!(host);
  return value === undefined ? "" : String(Math.min(STEPS, Math.round(value / STEPS)));
}
