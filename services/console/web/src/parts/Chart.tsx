import { useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import { number } from "./numbers";

export interface Series {
  name: string;
  values: (number | null)[];
  low?: (number | null)[];
  high?: (number | null)[];
}

interface Given {
  /** What the picture shows, in a sentence, for who does not see it. */
  says: string;
  x: { name: string; values: number[] };
  series: Series[];
  height?: number;
}

const LIGHT = ["#1864ab", "#b4460a", "#2b7a3d", "#862e9c", "#a61e4d", "#0b7285"];
const DARK = ["#74c0fc", "#ffa94d", "#8ce99a", "#e599f7", "#faa2c1", "#66d9e8"];

/** Curves, with a band from smallest to largest where there is one; hover tells the numbers, a table tells them all. */
export function Chart({ says, x, series, height = 260 }: Given) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const dark = useComputedColorScheme("light") === "dark";
  const shape = series.map((one) => `${one.name}${one.low ? "~" : ""}`).join("|");

  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const made = new uPlot(optionsOf(x.name, series, dark, element.clientWidth, height), dataOf(x.values, series), element);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
    // Values come by the effect below: the plot is made anew only where its lines or colours change.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [shape, dark, height, x.name]);

  useEffect(() => {
    plot.current?.setData(dataOf(x.values, series));
  }, [x.values, series]);

  return (
    <figure className="chart">
      <div ref={place} role="img" aria-label={says} />
      <details>
        <summary>The numbers as a table</summary>
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
                  <td className="number">{at}</td>
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
      </details>
    </figure>
  );
}

function dataOf(x: number[], series: Series[]): uPlot.AlignedData {
  const columns = series.flatMap((one) => (one.low && one.high ? [one.values, one.high, one.low] : [one.values]));
  return [x, ...columns] as uPlot.AlignedData;
}

function optionsOf(xName: string, series: Series[], dark: boolean, width: number, height: number): uPlot.Options {
  const colours = dark ? DARK : LIGHT;
  const ink = dark ? "#c9c9c9" : "#495057";
  const grid = dark ? "rgb(255 255 255 / 10%)" : "rgb(0 0 0 / 8%)";
  const lines: uPlot.Series[] = [{ label: xName }];
  const bands: uPlot.Band[] = [];
  series.forEach((one, at) => {
    const stroke = colours[at % colours.length]!;
    lines.push({ label: one.name, stroke, width: 2, points: { show: one.values.length < 40 }, value: (_, value) => number(value) });
    if (one.low && one.high) {
      const edge = { stroke: "transparent", width: 0, points: { show: false }, value: (_: uPlot, value: number) => number(value) };
      lines.push({ ...edge, label: "largest at a site" }, { ...edge, label: "smallest at a site" });
      bands.push({ series: [lines.length - 2, lines.length - 1], fill: `${stroke}33` });
    }
  });
  const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "12px system-ui" };
  return {
    width, height, series: lines, bands,
    scales: { x: { time: false } },
    axes: [
      { ...axis, label: xName, labelFont: "12px system-ui", labelSize: 18, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 10000] },
      { ...axis, size: 62, values: (_, ticks) => ticks.map(number) },
    ],
    cursor: { drag: { x: true, y: false } },
  };
}
