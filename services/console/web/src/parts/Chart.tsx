import { useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef, useState } from "react";
import uPlot from "uplot";
import { number } from "./numbers";
import { axis, looks } from "./palette";

export interface Series {
  name: string;
  values: (number | null)[];
  low?: (number | null)[];
  high?: (number | null)[];
  /** One of many in the background: neither in the legend nor in the table. */
  faint?: boolean;
}

interface Given {
  /** What the picture shows, in a sentence, for who does not see it. */
  says: string;
  x: { name: string; values: number[] };
  series: Series[];
  height?: number;
}

/** Curves, with a band from smallest to largest where there is one; hover tells the numbers, a table tells them all. */
export function Chart({ says, x, series, height = 260 }: Given) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const dark = useComputedColorScheme("light") === "dark";
  const shown = useRef<Series[]>([]);
  const labels = useRef<HTMLElement[]>([]);
  const shape = series.map((one) => (one.faint ? "." : one.low ? "~" : "-")).join("");
  const few = x.values.length < 40;

  useEffect(() => {
    const element = place.current;
    if (!element) return;
    labels.current = series.map((one) => labelOf(one.name));
    const made = new uPlot(optionsOf(x.name, series, labels.current, dark, element.clientWidth, height, few), dataOf(x.values, series), element);
    plot.current = made;
    shown.current = series;
    const watch = new ResizeObserver(() => {
      if (element.clientWidth !== made.width) made.setSize({ width: element.clientWidth, height });
    });
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
    // Names and values come by the effect below: the plot is made anew only where it has other kinds of lines, or colours.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [shape, dark, height, x.name, few]);

  useEffect(() => {
    if (!plot.current || shown.current === series) return;
    shown.current = series;
    series.forEach((one, at) => labels.current[at]!.textContent = one.name);
    show(plot.current, dataOf(x.values, series));
  }, [x.values, series]);

  return (
    <figure className="chart">
      <div ref={place} role="img" aria-label={says} />
      <Numbers says={says} x={x} series={series.filter((one) => !one.faint)} />
    </figure>
  );
}

function Numbers({ says, x, series }: Pick<Given, "says" | "x" | "series">) {
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>The numbers as a table</summary>
      {open && (
        <div className="table-around short" tabIndex={0} role="region" aria-label={`${says}, as numbers`}>
          <table className="table">
            <thead>
              <tr>
                <th className="number">{x.name}</th>
                {series.map((one) => (
                  <th key={one.name} className="number">
                    {one.name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {x.values.map((at, row) => (
                <tr key={at}>
                  <td className="number">{number(at)}</td>
                  {series.map((one) => (
                    <td key={one.name} className="number">
                      {number(one.values[row])}
                      {one.low && one.high && one.low[row] != null && ` (${number(one.low[row])} to ${number(one.high[row])})`}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </details>
  );
}

/** A label of the legend whose text may change. */
function labelOf(name: string): HTMLElement {
  const made = document.createElement("span");
  made.textContent = name;
  return made;
}

/** Other values; the part that somebody looks at closer stays. */
function show(plot: uPlot, data: uPlot.AlignedData): void {
  const [before, { min, max }] = [plot.data[0], plot.scales.x!];
  const closer = min != null && max != null && before.length > 1 && (min > before[0]! || max < before.at(-1)!);
  plot.setData(data, !closer);
  if (closer) plot.setScale("x", { min, max });
}

function dataOf(x: number[], series: Series[]): uPlot.AlignedData {
  const columns = series.flatMap((one) => (one.low && one.high ? [one.values, one.high, one.low] : [one.values]));
  return [x, ...columns] as uPlot.AlignedData;
}

function optionsOf(
  xName: string, series: Series[], labels: HTMLElement[], dark: boolean, width: number, height: number, few: boolean,
): uPlot.Options {
  const look = looks(dark);
  const lines: uPlot.Series[] = [{ label: xName }];
  const bands: uPlot.Band[] = [];
  const told = (_: uPlot, value: number | null) => number(value);
  let colour = 0;
  for (const [at, one] of series.entries()) {
    const label = labels[at]!;
    if (one.faint) {
      lines.push({ label, class: "faint", stroke: look.quiet, width: 1, points: { show: false }, spanGaps: true, value: told });
      continue;
    }
    const stroke = look.colours[colour++ % look.colours.length]!;
    lines.push({ label, stroke, width: 2, points: { show: few }, spanGaps: true, value: told });
    if (one.low && one.high) {
      const edge = { stroke: "transparent", width: 0, points: { show: false }, spanGaps: true, value: told };
      lines.push({ ...edge, label: "largest at a site" }, { ...edge, label: "smallest at a site" });
      bands.push({ series: [lines.length - 2, lines.length - 1], fill: `${stroke}33` });
    }
  }
  return {
    width, height, series: lines, bands,
    scales: { x: { time: false } },
    axes: [
      { ...axis(look), label: xName, labelSize: 18, incrs: xName === "Round" ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 10000] : undefined },
      { ...axis(look), size: 62, values: (_, ticks) => ticks.map(number) },
    ],
    cursor: { drag: { x: true, y: false }, points: { show: (_, at) => (lines[at]?.class === "faint" ? false : undefined) as never } },
  };
}
