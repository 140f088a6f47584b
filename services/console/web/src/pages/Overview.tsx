import { Button, Text } from "@mantine/core";
import { Link } from "wouter";
import { ended } from "../api/queries";
import type { ParticipantView, ProjectView, RunSummary } from "../api/types";
import { Empty } from "../parts/Empty";
import { Loading } from "../parts/Loading";
import { headline } from "../parts/numbers";
import { Page, Section } from "../parts/Page";
import { Problem } from "../parts/Problem";
import { State, stateOfRun } from "../parts/State";
import { useConcerns } from "./Alerts";
import { Attention } from "./Attention";
import { RunTable } from "./RunTable";

export function Overview() {
  const { projects, rows, concerns } = useConcerns();
  const flying = rows.flatMap((row) => row.runs.filter((run) => !ended(run)));
  const every = rows.flatMap((row) => row.sites);

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
      {rows.length > 0 && (
        <>
          <div className="tiles">
            <Tile value={projects.data?.length ?? 0} label={projects.data?.length === 1 ? "project" : "projects"} />
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
