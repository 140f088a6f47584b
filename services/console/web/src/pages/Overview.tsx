import { Button, Text } from "@mantine/core";
import { useQueries } from "@tanstack/react-query";
import { Link } from "wouter";
import { ended, participantsOf, runsOf, useProjects, useStatus } from "../api/queries";
import type { ParticipantView, ProjectView, RunSummary } from "../api/types";
import { Empty } from "../parts/Empty";
import { Loading } from "../parts/Loading";
import { headline } from "../parts/numbers";
import { Page, Section } from "../parts/Page";
import { Problem } from "../parts/Problem";
import { State, stateOfRun } from "../parts/State";
import { Ago, Moment } from "../parts/Time";
import { useSession } from "../session/Session";
import { Attention, attentionOf } from "./Attention";

const SHOWN = 30;
/** Projects whose runs and sites are asked for: the others are in the menu. */

export function Overview() {
  const { session } = useSession();
  const projects = useProjects();
  const { data: status } = useStatus(session?.role === "operator" && session.projects === null);
  const shown = (projects.data ?? []).slice(0, SHOWN);
  const runs = useQueries({ queries: shown.map(({ name }) => ({ ...runsOf(name), refetchInterval: 10_000 })) });
  const sites = useQueries({ queries: shown.map(({ name }) => ({ ...participantsOf(name), refetchInterval: 10_000 })) });
  const rows = shown.map((project, at) => ({
    project, runs: runs[at]?.data ?? [], sites: (sites[at]?.data ?? []).filter((site) => !site.revoked),
  }));
  const flying = rows.flatMap((row) => row.runs.filter((run) => !ended(run)));
  const every = rows.flatMap((row) => row.sites);
  const concerns = [
    ...rows.flatMap((row) => attentionOf(row.project.name, row.runs, row.sites)),
    ...(status && !(status.bus_ready && status.store_ready)
      ? [{ key: "hub", text: `The hub's ${status.bus_ready ? "object store" : "bus"} does not answer: its operator looks into its logs.` }]
      : []),
  ];

  return (
    <Page title="Overview" actions={<Button component={Link} href="/new-project">New project</Button>}>
      <Problem error={projects.error} retry={() => void projects.refetch()} />
      {projects.isLoading && <Loading what="your projects" />}
      {projects.data?.length === 0 && (
        <Empty title="No project yet" action={<Button component={Link} href="/new-project">Create the first project</Button>}>
          A project says what every site's data look like. Then you invite sites, each with one line to start, and train a model
          over all their data, which stay where they are.
        </Empty>
      )}
      {shown.length > 0 && (
        <>
          <div className="tiles">
            <Tile value={projects.data?.length ?? 0} label="projects" />
            <Tile value={flying.length} label="runs in flight" />
            <Tile value={`${every.filter((site) => site.online).length} of ${every.length}`} label="sites online" />
            <Tile value={concerns.length} label="to look at" />
          </div>
          <Section title="What needs attention">
            <Attention concerns={concerns} />
          </Section>
          <Section title="Runs in flight">
            {flying.length === 0 ? (
              <Text c="dimmed">No run is under way. A project's page starts one.</Text>
            ) : (
              <RunTable runs={flying} withProject />
            )}
          </Section>
          <Section title="Projects">
            <div className="cards">
              {rows.map((row) => (
                <ProjectCard key={row.project.name} {...row} />
              ))}
            </div>
          </Section>
        </>
      )}
    </Page>
  );
}

function Tile({ value, label }: { value: number | string; label: string }) {
  return (
    <div className="card tile">
      <b>{value}</b>
      <span>{label}</span>
    </div>
  );
}

function ProjectCard({ project, runs, sites }: { project: ProjectView; runs: RunSummary[]; sites: ParticipantView[] }) {
  const newest = runs[0];
  return (
    <Link href={`/projects/${project.name}`} className="card project-card">
      <b className="cut">{project.name}</b>
      <Text size="sm" c="dimmed" lineClamp={2}>
        {project.description || `${project.schema.kind} data`}
      </Text>
      <Text size="sm">
        {sites.filter((site) => site.online).length} of {sites.length} sites online
      </Text>
      <Text size="sm">
        {newest ? (
          <>
            Newest run <State is={stateOfRun(newest)} /> {headline(newest.metrics)}
          </>
        ) : (
          "No run yet"
        )}
      </Text>
    </Link>
  );
}

/** Runs as a list: each leads to its page. */
export function RunTable({ runs, withProject = false }: { runs: RunSummary[]; withProject?: boolean }) {
  return (
    <div className="table-around" tabIndex={0} role="region" aria-label="Runs">
      <table className="table">
        <thead>
          <tr>
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
              <td>
                <Link href={`/projects/${run.project}/runs/${run.run}`} className="link">
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
