import { Checkbox } from "@mantine/core";
import { Link } from "wouter";
import { useAhead } from "../api/queries";
import type { RunSummary } from "../api/types";
import { headline } from "../parts/numbers";
import { State, stateOfRun } from "../parts/State";
import { Ago, Moment } from "../parts/Time";

interface Given {
  runs: RunSummary[];
  withProject?: boolean;
  /** Runs that are marked; without it none can be. */
  marked?: string[];
  mark?(run: string, on: boolean): void;
}

/** Runs as a list: each leads to its page. */
export function RunTable({ runs, withProject = false, marked, mark }: Given) {
  const ahead = useAhead();
  return (
    <div className="table-around" tabIndex={0} role="region" aria-label="Runs">
      <table className="table">
        <thead>
          <tr>
            {marked && (
              <th>
                <span className="unseen">To compare</span>
              </th>
            )}
            <th>Run</th>
            {withProject && <th>Project</th>}
            <th>State</th>
            <th className="number">Round</th>
            <th>Metrics</th>
            <th>Begun</th>
            <th>Changed</th>
          </tr>
        </thead>
        <tbody>
          {runs.map((run) => (
            <tr key={run.run}>
              {marked && (
                <td>
                  <Checkbox
                    size="xs" aria-label={`Compare ${run.name || run.run}`} checked={marked.includes(run.run)}
                    onChange={(event) => mark?.(run.run, event.currentTarget.checked)}
                  />
                </td>
              )}
              <td>
                <Link
                  href={`/projects/${run.project}/runs/${run.run}`} className="link"
                  onPointerEnter={() => ahead(run.project, run.run)} onFocus={() => ahead(run.project, run.run)}
                >
                  {run.name || run.run}
                </Link>
              </td>
              {withProject && <td>{run.project}</td>}
              <td>
                <State is={stateOfRun(run)} why={run.reason} />
              </td>
              <td className="number">{run.rounds ? `${run.round} of ${run.rounds}` : "–"}</td>
              <td>{headline(run.metrics)}</td>
              <td>
                <Moment at={run.created_at} />
              </td>
              <td>
                <Ago at={run.updated_at} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
