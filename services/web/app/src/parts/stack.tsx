// Areas on top of each other over time, lines over them, and marks. A table has the same for those who do not see it.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { theme } from "../theme";
import type { Values } from "../pools";

export interface Layer {
  name: string;
  values: Values;
}

interface Props {
  label: string;
  timesS: number[];
  layers: Layer[]; // the lowest first
  lines: Layer[]; // lettered after the layers
  marks: { index: number; text: string }[];
  shown: (value: number) => string;
}

export const TONES = 8;
const HEIGHT = 220;
const DAY_S = 86_400;
const MINUTE_S = 60;
const POINTS_MIN = 2; // of a chart
const LABEL_PX = 90; // between labels of the time axis: more than the longest takes
const STEPS_S = [1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, DAY_S, 2 * DAY_S, 7 * DAY_S, 30 * DAY_S, 90 * DAY_S];
const toTheSecond = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const DASHES = [[6, 4], [2, 3], [], [10, 3, 2, 3]]; // lines differ without colour
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

export function letterOf(index: number): string {
  return LETTERS[index % LETTERS.length]!;
}

// Where a chart begins: of a young cluster the time before it was recorded is left out.
export function beginOf(series: Values[], length: number): number {
  return Math.min(length, ...series.map((values) => values.findIndex((value) => value !== null)).filter((at) => at >= 0));
}

// Whether there is a line to draw, and not a point.
export function isDrawn(layers: Layer[]): boolean {
  return layers.some(({ values }) => values.filter((value) => value !== null).length >= POINTS_MIN);
}

export function Undrawn({ step }: { step: string }) {
  return <p class="quiet">There is one point so far. The chart begins with the second, within {step}.</p>;
}

export function Stack({ label, timesS, layers, lines, marks, shown }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const scheme = theme.value;
  useEffect(() => {
    const element = box.current!;
    const sums = cumulated(layers);
    const chart = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        cursor: { drag: { x: false, y: false } },
        scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.05 : 1] } },
        axes: [
          { stroke: colour(element, "var(--quiet)"), grid: { stroke: colour(element, "var(--line)"), width: 1 }, space: LABEL_PX, incrs: STEPS_S, values: (_, ticks, __, ___, step) => ticks.map((at) => (step >= DAY_S ? day : step < MINUTE_S ? toTheSecond : clock).format(at * 1000)) },
          { stroke: colour(element, "var(--quiet)"), grid: { stroke: colour(element, "var(--line)"), width: 1 }, size: 80, values: (_, ticks) => ticks.map(shown) },
        ],
        series: [
          {},
          ...layers.map((layer, index) => area(element, layer, index, shown)).reverse(),
          ...lines.flatMap((line, index) => over(element, line, layers.length + index, DASHES[index % DASHES.length]!, shown)),
        ],
        hooks: { draw: [(drawn) => drawMarks(drawn, element, timesS, marks), (drawn) => drawLetters(drawn, element, layers, sums, timesS), (drawn) => drawLineLetters(drawn, element, lines, layers.length, timesS)] },
      },
      [timesS, ...sums.slice().reverse(), ...lines.flatMap((line) => [line.values, line.values])] as uPlot.AlignedData,
      element,
    );
    const observer = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      chart.destroy();
    };
  }, [timesS, layers, lines, marks, scheme]);
  return <div class="chart" role="img" aria-label={label} ref={box} />;
}

function cumulated(layers: Layer[]): Values[] {
  let below: Values | undefined;
  return layers.map(({ values }) => {
    const under = below;
    below = values.map((value, at) => (value === null ? null : value + (under?.[at] ?? 0)));
    return below;
  });
}

// Drawn from the highest sum down, each over the one before: what stays visible is its own part.
function area(element: HTMLElement, layer: Layer, index: number, shown: Props["shown"]): uPlot.Series {
  const tone = colour(element, `var(--series-${index % TONES})`);
  return {
    label: `${letterOf(index)} ${layer.name}`,
    stroke: tone,
    fill: tone,
    width: 1,
    points: { show: false },
    value: (_, __, ___, at) => (at === null || layer.values[at] == null ? "–" : shown(layer.values[at])),
  };
}

// On a seam of the ground, so that it is seen on any area.
function over(element: HTMLElement, line: Layer, index: number, dash: number[], shown: Props["shown"]): uPlot.Series[] {
  const points = { show: false };
  return [
    { class: "seam", stroke: colour(element, "var(--ground)"), width: 5, points },
    {
      label: `${letterOf(index)} ${line.name}`,
      stroke: colour(element, "var(--text)"),
      width: 2,
      dash,
      points,
      value: (_: uPlot, value: number | null) => (value == null ? "–" : shown(value)),
    },
  ];
}

function drawMarks(chart: uPlot, element: HTMLElement, timesS: number[], marks: Props["marks"]): void {
  const { ctx, bbox } = chart;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour(element, "var(--bad)");
  ctx.setLineDash([3, 3]);
  ctx.textAlign = "center";
  for (const { index } of marks) {
    const x = chart.valToPos(timesS[index]!, "x", true);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillText("▼", x, bbox.top + 10);
  }
  ctx.restore();
}

// Where an area is the thickest, if it is thick enough to read it.
function drawLetters(chart: uPlot, element: HTMLElement, layers: Layer[], sums: Values[], timesS: number[]): void {
  const { ctx, bbox } = chart;
  const size = 13 * devicePixelRatio;
  ctx.save();
  ctx.font = `bold ${size}px system-ui, sans-serif`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.fillStyle = colour(element, "var(--on-series)");
  layers.forEach(({ values }, index) => {
    const at = values.reduce<number>((best, value, here) => ((value ?? 0) > (values[best] ?? 0) ? here : best), 0);
    const top = chart.valToPos(sums[index]![at] ?? 0, "y", true);
    const bottom = chart.valToPos((sums[index]![at] ?? 0) - (values[at] ?? 0), "y", true);
    const x = Math.min(Math.max(chart.valToPos(timesS[at]!, "x", true), bbox.left + size), bbox.left + bbox.width - size);
    if (bottom - top > size) ctx.fillText(letterOf(index), x, (top + bottom) / 2);
  });
  ctx.restore();
}

// Where a line ends.
function drawLineLetters(chart: uPlot, element: HTMLElement, lines: Layer[], before: number, timesS: number[]): void {
  const { ctx } = chart;
  const size = 12 * devicePixelRatio;
  ctx.save();
  ctx.font = `bold ${size}px system-ui, sans-serif`;
  ctx.textAlign = "right";
  ctx.textBaseline = "bottom";
  ctx.fillStyle = colour(element, "var(--text)");
  lines.forEach(({ values }, index) => {
    const at = values.findLastIndex((value) => value !== null);
    if (at >= 0) ctx.fillText(letterOf(before + index), chart.valToPos(timesS[at]!, "x", true) - index * size, chart.valToPos(values[at]!, "y", true) - 2);
  });
  ctx.restore();
}

// A canvas takes no names of colours that the sheet has.
function colour(element: HTMLElement, name: string): string {
  const probe = document.createElement("span");
  probe.style.color = name;
  element.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
