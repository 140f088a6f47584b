import { Checkbox, Select, Text } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { memo, useMemo, useState } from "react";
import { curvesOf, useCurves } from "../api/queries";
import type { RunCurves } from "../api/types";
import { Chart, type Series } from "../parts/Chart";
import { mainMetrics, number } from "../parts/numbers";
import { Section } from "../parts/Page";

interface Given {
  project: string;
  run: string;
  /** The newest round that has finished. */
  finished: number;
  /** Which metric is drawn; null: the hub's choice. */
  metric: string | null;
  choose(metric: string | null): void;
  /** A site whose own curve is drawn beside the whole. */
  site: string | null;
  /** Whether a run without a curve may yet have one. */
  begins: boolean;
}

/** A metric over the rounds, with a band over the sites where their numbers are told; and the sites one by one. */
export const Curves = memo(function Curves({ project, run, finished, metric, choose, site, begins }: Given) {
  const [each, setEach] = useState(false);
  const wanted = each || site;
  const curves = useCurves(project, run, metric, wanted, finished);
  const names = useMemo(() => order(curves.data?.metrics ?? []), [curves.data?.metrics]);
  const queries = useQueryClient();
  // The others are at hand by the time that somebody who points at the list has chosen one.
  const fetchOthers = () => {
    for (const name of names.slice(0, 6)) void queries.prefetchQuery(curvesOf(project, run, name, wanted));
  };
  const drawn = useMemo(() => curves.data && seriesOf(curves.data, each, site), [curves.data, each, site]);
  if (!curves.data || !drawn) return null;
  if (names.length === 0) {
    return begins ? (
      <Section title="Metrics">
        <Text c="dimmed">Curves begin with the first round that was evaluated.</Text>
      </Section>
    ) : null;
  }
  const told = curves.data;
  const newest = told.overall.findLast((value) => value !== null);
  return (
    <Section
      title="Metrics"
      aside={
        <div className="row tight">
          {told.low.some((value) => value !== null) && (
            <Checkbox label="Each site" size="xs" checked={each} onChange={(event) => setEach(event.currentTarget.checked)} />
          )}
          <Select
            aria-label="Metric" size="xs" data={names} value={told.metric} onChange={choose} allowDeselect={false}
            onPointerEnter={fetchOthers} onDropdownOpen={fetchOthers}
            comboboxProps={{ transitionProps: { duration: 0 }, keepMounted: false }}
          />
        </div>
      }
    >
      <Chart says={`${told.metric} by round; now ${number(newest)}`} x={drawn.x} series={drawn.series} />
      {told.rounds.length < told.finished && (
        <Text size="sm" c="dimmed">
          {told.rounds.length} of {told.finished} rounds are drawn; the highest and the lowest of each stretch are among them. Drag over a part to
          look closer, double-click to see all.
        </Text>
      )}
    </Section>
  );
});

function order(names: string[]): string[] {
  const main = Object.keys(mainMetrics(Object.fromEntries(names.map((name) => [name, 0]))));
  return [...main, ...names.filter((name) => !main.includes(name)).sort()];
}

function seriesOf(told: RunCurves, each: boolean, site: string | null): { x: { name: string; values: number[] }; series: Series[] } {
  const band = told.low.some((value) => value !== null);
  const own = site === null ? undefined : told.sites[site];
  return {
    x: { name: "Round", values: told.rounds },
    series: [
      ...(each ? Object.entries(told.sites).filter(([name]) => name !== site).map(([name, values]) => ({ name, values, faint: true })) : []),
      { name: told.metric, values: told.overall, ...(band && { low: told.low, high: told.high }) },
      ...(own && site !== null ? [{ name: site, values: own }] : []),
    ],
  };
}
