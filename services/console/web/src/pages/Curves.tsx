import { Select, Text } from "@mantine/core";
import { useMemo, useState } from "react";
import type { Point } from "../live/run";
import { Chart } from "../parts/Chart";
import { mainMetrics, number } from "../parts/numbers";
import { Section } from "../parts/Page";

/** A metric over the rounds, with a band over the sites where their numbers are told. */
export function Curves({ points, thinned }: { points: Point[]; thinned: boolean }) {
  const [chosen, setChosen] = useState<string | null>(null);
  const names = useMemo(() => {
    const all: Record<string, number> = {};
    for (const point of points) Object.assign(all, point.values);
    const main = Object.keys(mainMetrics(all));
    return [...main, ...Object.keys(all).filter((name) => !main.includes(name)).sort()];
  }, [points]);
  const metric = chosen && names.includes(chosen) ? chosen : names[0];
  const drawn = useMemo(() => (metric ? curve(points, metric) : null), [points, metric]);
  if (!metric || !drawn) return null;
  const newest = drawn.series[0]!.values.at(-1);
  return (
    <Section
      title="Metrics"
      aside={
        <Select
          aria-label="Metric" size="xs" data={names} value={metric} onChange={setChosen} allowDeselect={false}
          comboboxProps={{ transitionProps: { duration: 0 } }}
        />
      }
    >
      <Chart says={`${metric} by round; now ${number(newest)}`} x={drawn.x} series={drawn.series} />
      {thinned && (
        <Text size="sm" c="dimmed">
          A long run: {points.length} of its rounds are drawn, evenly spaced. Drag over a part to look closer, double-click to see all.
        </Text>
      )}
    </Section>
  );
}

function curve(points: Point[], metric: string) {
  const there = points.filter((point) => metric in point.values);
  const band = there.some((point) => metric in point.low);
  return {
    x: { name: "Round", values: there.map((point) => point.round) },
    series: [
      {
        name: metric,
        values: there.map((point) => point.values[metric] ?? null),
        ...(band && {
          low: there.map((point) => point.low[metric] ?? null),
          high: there.map((point) => point.high[metric] ?? null),
        }),
      },
    ],
  };
}
