import { Button, Select, Text } from "@mantine/core";
import { useQueries } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Link } from "wouter";
import { curvesOf, runOf } from "../api/queries";
import type { RunCurves, RunView } from "../api/types";
import { Chart, type Series } from "../parts/Chart";
import { Empty } from "../parts/Empty";
import { Loading } from "../parts/Loading";
import { mainMetrics, number } from "../parts/numbers";
import { Page, Section } from "../parts/Page";
import { Problem } from "../parts/Problem";
import { State, stateOfRun } from "../parts/State";

/** As many as there are colours for. */
export const MOST_COMPARED = 6;

/** Runs side by side: one metric over their rounds, where each ended, and in what their jobs differ. */
export function Compare({ project, runs: listed }: { project: string; runs: string }) {
  const ids = useMemo(() => [...new Set(listed.split(","))].filter(Boolean).slice(0, MOST_COMPARED), [listed]);
  const [chosen, setChosen] = useState<string | null>(null);
  const asked = useQueries({ queries: ids.map((id) => runOf(project, id)) });
  const runs = asked.map(({ data }) => data).filter((run): run is RunView => run !== undefined);
  const names = useMemo(() => {
    const all: Record<string, unknown> = {};
    for (const run of runs) Object.assign(all, run.metrics);
    return Object.keys(mainMetrics(all));
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [runs.map((run) => run.run).join(), runs.length]);
  const metric = chosen ?? names[0] ?? null;
  const curves = useQueries({
    queries: runs.map((run) => ({ ...curvesOf(project, run.run, metric, null), enabled: metric !== null && run.round > 0 })),
  });
  const error = asked.find((one) => one.error)?.error;
  const above: [string, string][] = [["Overview", "/"], [project, `/projects/${project}`]];
  if (error) {
    return (
      <Page title="Runs compared" above={above}>
        <Problem error={error} retry={() => asked.forEach((one) => void one.refetch())} />
      </Page>
    );
  }
  if (ids.length < 2) {
    return (
      <Page title="Runs compared" above={above}>
        <Empty title="Choose two runs at least" action={<Button component={Link} href={`/projects/${project}`}>To the runs</Button>}>
          Mark runs in the project&apos;s list, then press “Compare”. The address of this page can be given to somebody else.
        </Empty>
      </Page>
    );
  }
  if (runs.length < ids.length) return <Loading what="the runs" />;
  const drawn = joined(runs, curves.map(({ data }) => data));
  return (
    <Page title="Runs compared" above={above}>
      <Section
        title="Metric"
        aside={
          names.length > 0 && (
            <Select
              aria-label="Metric" size="xs" data={names} value={metric} onChange={setChosen} allowDeselect={false}
              comboboxProps={{ transitionProps: { duration: 0 } }}
            />
          )
        }
      >
        {drawn.x.values.length > 0 ? (
          <Chart says={`${metric} by round, of ${runs.length} runs`} x={drawn.x} series={drawn.series} />
        ) : (
          <Text c="dimmed">None of them has a curve of a metric yet.</Text>
        )}
      </Section>
      <Section title="Where they are">
        <SideBySide runs={runs} rows={outcomes(project, runs, names)} label="Where they are" />
      </Section>
      <Section title="In what their jobs differ">
        <Differences runs={runs} />
      </Section>
    </Page>
  );
}

const called = (run: RunView) => run.name || run.run;

/** Names that are not the same twice. */
function titles(runs: RunView[]): string[] {
  return runs.map((run) => (runs.filter((other) => called(other) === called(run)).length > 1 ? `${called(run)} (${run.run})` : called(run)));
}

function joined(runs: RunView[], curves: (RunCurves | undefined)[]): { x: { name: string; values: number[] }; series: Series[] } {
  const rounds = [...new Set(curves.flatMap((one) => one?.rounds ?? []))].sort((a, b) => a - b);
  const names = titles(runs);
  const series = curves.map((one, at) => {
    const known = new Map(one?.rounds.map((round, index) => [round, one.overall[index] ?? null]));
    return { name: names[at]!, values: rounds.map((round) => known.get(round) ?? null) };
  });
  return { x: { name: "Round", values: rounds }, series };
}

type Row = [string, React.ReactNode[]];

function outcomes(project: string, runs: RunView[], names: string[]): Row[] {
  return [
    ["State", runs.map((run) => <State key={run.run} is={stateOfRun(run)} why={run.reason} />)],
    ["Round", runs.map((run) => (run.rounds ? `${run.round} of ${run.rounds}` : "–"))],
    ...names.slice(0, 12).map((name): Row => [name, runs.map((run) => number(run.metrics[name]))]),
    [
      "Version",
      runs.map((run) =>
        run.model_version === null ? "–" : (
          <Link key={run.run} href={`/projects/${project}/models/${run.model_version}`} className="link">
            {run.model_version}
          </Link>
        ),
      ),
    ],
  ];
}

function Differences({ runs }: { runs: RunView[] }) {
  const flat = runs.map((run) => flattened(run.job));
  const keys = [...new Set(flat.flatMap((job) => Object.keys(job)))].sort();
  const differ = keys.filter((key) => key !== "name" && new Set(flat.map((job) => job[key] ?? "")).size > 1);
  if (differ.length === 0) return <Text c="dimmed">In nothing: they are the same job.</Text>;
  return <SideBySide runs={runs} label="In what their jobs differ" rows={differ.map((key): Row => [key, flat.map((job) => job[key] ?? "–")])} />;
}

function flattened(value: unknown, at = ""): Record<string, string> {
  if (value !== null && typeof value === "object" && !Array.isArray(value)) {
    return Object.assign({}, ...Object.entries(value).map(([name, inner]) => flattened(inner, at ? `${at}.${name}` : name))) as Record<string, string>;
  }
  return { [at]: value === null ? "none" : typeof value === "string" ? value : JSON.stringify(value) };
}

function SideBySide({ runs, rows, label }: { runs: RunView[]; rows: Row[]; label: string }) {
  const names = titles(runs);
  return (
    <div className="table-around" tabIndex={0} role="region" aria-label={label}>
      <table className="table">
        <thead>
          <tr>
            <th />
            {runs.map((run, at) => (
              <th key={run.run}>
                <Link href={`/projects/${run.project}/runs/${run.run}`} className="link">
                  {names[at]}
                </Link>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(([name, values]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              {values.map((value, at) => (
                <td key={runs[at]!.run} className="said">
                  {value}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
