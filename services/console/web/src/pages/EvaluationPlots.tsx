import { Text } from "@mantine/core";
import { memo, useMemo } from "react";
import { useEvaluation } from "../api/queries";
import type { EvaluationCurves } from "../api/types";
import { count, number } from "../parts/numbers";
import { Section } from "../parts/Page";
import { Scatter, type Dots } from "../parts/Scatter";

/** What the newest evaluation has beside its metrics, where the sites' policies let their counts be added up. */
export const EvaluationPlots = memo(function EvaluationPlots({ project, run, finished }: { project: string; run: string; finished: number }) {
  const { data: newest } = useEvaluation(project, run, finished);
  if (!newest) return null;
  const { curves } = newest;
  return (
    <Section title="Calibration, ranking and groups" aside={<Text c="dimmed" size="sm">of round {newest.round}</Text>}>
      <div className="plots">
        {curves.calibration && curves.calibration.length > 0 && <Calibration rows={curves.calibration} />}
        {curves.roc && Object.keys(curves.roc).length > 0 && <Roc curves={curves.roc} />}
      </div>
      {curves.confusion && <Confusion table={curves.confusion} />}
      {curves.subgroups && <Subgroups told={curves.subgroups} whole={newest.metrics} />}
    </Section>
  );
});

function Calibration({ rows }: { rows: NonNullable<EvaluationCurves["calibration"]> }) {
  const dots = useMemo<Dots>(() => {
    const sorted = [...rows].sort((a, b) => a.predicted - b.predicted);
    return { x: sorted.map((row) => row.predicted), y: sorted.map((row) => row.observed), kind: sorted.map(() => 2) };
  }, [rows]);
  const sorted = useMemo(() => [...rows].sort((a, b) => a.predicted - b.predicted), [rows]);
  return (
    <div>
      <Text size="sm">Calibration: on the line, what is predicted happens as often as it is said to.</Text>
      <Scatter
        says={`Calibration in ${rows.length} bins: observed over predicted`} dots={dots} xLabel="predicted" yLabel="observed" from={0} to={1} most={1} diagonal
        height={260}
        tell={(at) => `predicted ${number(sorted[at]?.predicted)}, observed ${number(sorted[at]?.observed)}, of ${count(sorted[at]?.examples ?? 0)} examples`}
      />
    </div>
  );
}

function Roc({ curves }: { curves: Record<string, [number, number][]> }) {
  const names = Object.keys(curves);
  const dots = useMemo<Dots>(() => {
    const every = names.flatMap((name, at) => (curves[name] ?? []).map(([x, y]) => ({ x, y, kind: at % 3 }))).sort((a, b) => a.x - b.x);
    return { x: every.map((one) => one.x), y: every.map((one) => one.y), kind: every.map((one) => one.kind) };
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [curves]);
  return (
    <div>
      <Text size="sm">ROC{names.length > 1 ? ` of ${names.length} classes` : ""}: the further above the line, the better it ranks.</Text>
      <Scatter
        says="ROC: true positives over false positives" dots={dots} xLabel="false positive rate" yLabel="true positive rate" from={0} to={1} most={1} diagonal
        height={260} tell={(at) => `false positives ${number(dots.x[at])}, true positives ${number(dots.y[at])}`}
      />
    </div>
  );
}

function Confusion({ table }: { table: number[][] }) {
  if (table.length > 12) return null;
  return (
    <div className="table-around" tabIndex={0} role="region" aria-label="Who was taken for whom">
      <table className="table">
        <caption>Who was taken for whom, in examples</caption>
        <thead>
          <tr>
            <th>Truly of class</th>
            {table.map((_, at) => (
              <th key={at} className="number">
                taken for {at}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {table.map((row, at) => (
            <tr key={at}>
              <th scope="row">{at}</th>
              {row.map((cell, column) => (
                <td key={column} className="number">
                  {at === column ? <b>{count(cell)}</b> : count(cell)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** By label, with those that are too small to be told of together. */
function groupsOf({ groups, others }: NonNullable<EvaluationCurves["subgroups"]>): [string, Record<string, number>][] {
  const named = Object.entries((groups ?? {}) as Record<string, Record<string, number>>);
  return others ? [...named, ["all others together", others as Record<string, number>]] : named;
}

function Subgroups({ told, whole }: { told: NonNullable<EvaluationCurves["subgroups"]>; whole: Record<string, unknown> }) {
  const groups = groupsOf(told);
  const names = [...new Set(groups.flatMap(([, group]) => Object.keys(group)))].filter((name) => name !== "examples").slice(0, 6);
  if (groups.length === 0) return null;
  return (
    <div className="table-around" tabIndex={0} role="region" aria-label={`Groups by ${told.column}`}>
      <table className="table">
        <caption>Groups by {told.column}; small ones are kept back</caption>
        <thead>
          <tr>
            <th>Group</th>
            <th className="number">Examples</th>
            {names.map((name) => (
              <th key={name} className="number">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {groups.map(([label, group]) => (
            <tr key={label}>
              <td>{label}</td>
              <td className="number">{count(group.examples ?? 0)}</td>
              {names.map((name) => (
                <td key={name} className="number">
                  {number(group[name])}
                </td>
              ))}
            </tr>
          ))}
          <tr>
            <th scope="row">all</th>
            <td />
            {names.map((name) => (
              <td key={name} className="number">
                {number(whole[name])}
              </td>
            ))}
          </tr>
        </tbody>
      </table>
    </div>
  );
}
