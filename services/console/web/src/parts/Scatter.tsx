import { useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import { number } from "./numbers";
import { axis, looks } from "./palette";

export interface Dots {
  x: number[];
  y: number[];
  /** Which of the colours each dot has; dots are in order of x. */
  kind: number[];
}

interface Given {
  /** What the picture shows, in a sentence, for who does not see it. */
  says: string;
  dots: Dots;
  xLabel: string;
  yLabel: string;
  /** Where the picture begins and ends; its y begins at 0. */
  from: number;
  to: number;
  most: number;
  /** Places on the x axis and what is written there; without: numbers. */
  ticks?: { at: number; text: string }[];
  /** Lines across the picture. */
  levels?: { at: number; dash: number[] }[];
  diagonal?: boolean;
  /** A part was dragged over. */
  pick?(from: number, to: number): void;
  /** What is said of the dot under the pointer. */
  tell?(at: number): string;
  height?: number;
}

/** Dots on two axes. A part that is dragged over can be picked; the dot nearest to the pointer is told of. */
export function Scatter(given: Given) {
  const { says, dots, from, to, most, height = 300 } = given;
  const place = useRef<HTMLDivElement>(null);
  const said = useRef<HTMLParagraphElement>(null);
  const now = useRef(given);
  now.current = given;
  const dark = useComputedColorScheme("light") === "dark";

  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const made = new uPlot(optionsOf(now, said, dark, element.clientWidth, height), dataOf(dots), element);
    const watch = new ResizeObserver(() => {
      if (element.clientWidth !== made.width) made.setSize({ width: element.clientWidth, height });
    });
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
    };
  }, [dots, dark, from, to, most, height]);

  return (
    <figure className="chart">
      <div ref={place} role="img" aria-label={says} />
      <p ref={said} className="pointed" aria-hidden />
    </figure>
  );
}

const KINDS = 3;

function dataOf({ x, y, kind }: Dots): uPlot.AlignedData {
  const columns = Array.from({ length: KINDS }, (_, one) => y.map((value, at) => (kind[at] === one ? value : null)));
  return [x, ...columns] as uPlot.AlignedData;
}

function optionsOf(
  now: { current: Given }, said: { current: HTMLElement | null }, dark: boolean, width: number, height: number,
): uPlot.Options {
  const look = looks(dark);
  const { ticks, xLabel, yLabel, from, to, most, levels = [], diagonal = false, pick } = now.current;
  const colours = [look.colours[0]!, dark ? "#4d8fc4" : "#6b9cc4", look.colours[1]!];
  const dot = (stroke: string, size: number): uPlot.Series => ({
    paths: () => null, points: { show: true, size, width: 0, fill: stroke, space: 0, stroke }, stroke,
  });
  return {
    width, height,
    series: [{}, dot(colours[0]!, 4), dot(colours[1]!, 4), dot(colours[2]!, 7)],
    legend: { show: false },
    scales: { x: { time: false, range: [from, to] }, y: { range: [0, most] } },
    axes: [
      {
        ...axis(look), label: xLabel, labelSize: 18,
        ...(ticks
          ? { splits: () => ticks.map(({ at }) => at), values: (plot: uPlot) => thinnedTicks(ticks, plot.bbox.width / devicePixelRatio), grid: { show: false } }
          : { values: (_: uPlot, at: number[]) => at.map(number) }),
      },
      { ...axis(look), label: yLabel, labelSize: 18, size: 44 },
    ],
    cursor: { drag: { x: pick !== undefined, y: false, setScale: false }, points: { show: false }, y: false },
    hooks: {
      drawAxes: [(plot) => drawLines(plot, levels, diagonal, look.ink)],
      setSelect: [
        (plot) => {
          const { left, width: wide } = plot.select;
          if (wide < 4) return;
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          now.current.pick?.(plot.posToVal(left, "x"), plot.posToVal(left + wide, "x"));
        },
      ],
      setCursor: [
        (plot) => {
          if (!said.current) return;
          const at = nearest(plot, now.current.dots);
          said.current.textContent = at === null ? "" : now.current.tell?.(at) ?? "";
        },
      ],
    },
  };
}

/** Of names that would stand on each other some are left out. */
function thinnedTicks(ticks: { at: number; text: string }[], width: number): string[] {
  const every = Math.max(1, Math.ceil((ticks.length * 26) / Math.max(width, 1)));
  return ticks.map(({ text }, at) => (at % every === 0 ? text : ""));
}

function drawLines(plot: uPlot, levels: { at: number; dash: number[] }[], diagonal: boolean, ink: string): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = ink;
  ctx.lineWidth = devicePixelRatio;
  const line = (x0: number, y0: number, x1: number, y1: number, dash: number[]) => {
    ctx.setLineDash(dash.map((each) => each * devicePixelRatio));
    ctx.beginPath();
    ctx.moveTo(x0, y0);
    ctx.lineTo(x1, y1);
    ctx.stroke();
  };
  for (const { at, dash } of levels) {
    const y = plot.valToPos(at, "y", true);
    if (y >= bbox.top) line(bbox.left, y, bbox.left + bbox.width, y, dash);
  }
  if (diagonal) {
    const end = Math.min(plot.scales.x!.max!, plot.scales.y!.max!);
    line(plot.valToPos(0, "x", true), plot.valToPos(0, "y", true), plot.valToPos(end, "x", true), plot.valToPos(end, "y", true), []);
  }
  ctx.restore();
}

const NEAR = 14;

function nearest(plot: uPlot, { x, y }: Dots): number | null {
  const { left, top, idx } = plot.cursor;
  if (left == null || top == null || idx == null || left < 0) return null;
  let best: number | null = null;
  let least = NEAR;
  for (const step of [-1, 1]) {
    for (let at = idx; at >= 0 && at < x.length; at += step) {
      const across = Math.abs(plot.valToPos(x[at]!, "x") - left);
      if (across > NEAR) break;
      const far = Math.hypot(across, plot.valToPos(y[at]!, "y") - top);
      if (far < least) [best, least] = [at, far];
    }
  }
  return best;
}
