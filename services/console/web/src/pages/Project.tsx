import { Button, Tabs, Text } from "@mantine/core";
import { useState } from "react";
import { Link, useLocation } from "wouter";
import { RUNS_PAGE, useProject, useRuns } from "../api/queries";
import type { DataSchema } from "../api/types";
import { Empty } from "../parts/Empty";
import { Loading } from "../parts/Loading";
import { Facts, Page, Section } from "../parts/Page";
import { Problem } from "../parts/Problem";
import { Table } from "../parts/Table";
import { Moment } from "../parts/Time";
import { Invitations } from "./Invitations";
import { MOST_COMPARED } from "./Compare";
import { RunTable } from "./RunTable";
import { Sites } from "./Sites";
import { Terms } from "./Terms";

const MOST_RUNS = 1000;
const TABS = ["runs", "sites", "terms", "data"];

export function Project({ project: name, tab = "runs" }: { project: string; tab?: string }) {
  const project = useProject(name);
  const [, go] = useLocation();
  if (project.error) return <Problem error={project.error} retry={() => void project.refetch()} />;
  if (!project.data) return <Loading what="the project" />;
  const { description, schema, created_at, created_by, longest_absence_days } = project.data;
  return (
    <Page
      title={name}
      above={[["Overview", "/"]]}
      actions={<Button component={Link} href={`/projects/${name}/new-run`}>New run</Button>}
    >
      {description && <Text className="description">{description}</Text>}
      <Tabs
        value={TABS.includes(tab) ? tab : "runs"}
        onChange={(to) => go(`/projects/${name}/${to}`, { replace: true })}
        keepMounted={false}
      >
        <Tabs.List>
          <Tabs.Tab value="runs">Runs</Tabs.Tab>
          <Tabs.Tab value="sites">Sites and invitations</Tabs.Tab>
          <Tabs.Tab value="terms">Terms</Tabs.Tab>
          <Tabs.Tab value="data">Data</Tabs.Tab>
        </Tabs.List>
        <Tabs.Panel value="runs">
          <Runs project={name} />
        </Tabs.Panel>
        <Tabs.Panel value="sites">
          <Sites project={name} terms={project.data.terms !== null} />
          <Invitations project={name} terms={project.data.terms_digest} />
        </Tabs.Panel>
        <Tabs.Panel value="terms">
          <Terms key={project.data.terms_digest} project={project.data} />
        </Tabs.Panel>
        <Tabs.Panel value="data">
          <Schema schema={schema} />
          <Section title="About">
            <Facts
              of={[
                ["Created", <Moment key="at" at={created_at} />],
                ["By", created_by],
                ["Sites may be away for", longest_absence_days === null ? "any time" : `${longest_absence_days} days`],
              ]}
            />
          </Section>
        </Tabs.Panel>
      </Tabs>
    </Page>
  );
}

function Runs({ project }: { project: string }) {
  const [most, setMost] = useState(RUNS_PAGE);
  const [marked, setMarked] = useState<string[]>([]);
  const runs = useRuns(project, most);
  if (runs.error) return <Problem error={runs.error} retry={() => void runs.refetch()} />;
  if (!runs.data) return <Loading what="runs" />;
  if (runs.data.length === 0) {
    return (
      <Empty title="No run yet" action={<Button component={Link} href={`/projects/${project}/new-run`}>Start the first run</Button>}>
        A run trains one model in rounds: every site trains on its own data, and only what it has learnt is combined. Invite sites
        first: a run waits for as many as its job asks for.
      </Empty>
    );
  }
  return (
    <>
      <RunTable
        runs={runs.data} marked={marked}
        mark={(run, on) => setMarked(on ? [...marked, run].slice(-MOST_COMPARED) : marked.filter((one) => one !== run))}
      />
      <div className="row">
        {marked.length < 2 ? (
          <Button variant="default" size="xs" disabled>
            Compare runs
          </Button>
        ) : (
          <Button component={Link} href={`/projects/${project}/compare/${marked.join(",")}`} variant="default" size="xs">
            Compare {marked.length} runs
          </Button>
        )}
        {runs.data.length === most && most < MOST_RUNS && (
          <Button variant="default" size="xs" loading={runs.isFetching} onClick={() => setMost(Math.min(most + RUNS_PAGE, MOST_RUNS))}>
            Older runs
          </Button>
        )}
        <Text size="sm" c="dimmed">
          Mark two to {MOST_COMPARED} runs to see them side by side.
        </Text>
      </div>
    </>
  );
}

/** What every site's data must look like. */
function Schema({ schema }: { schema: DataSchema }) {
  const facts: [string, string][] = [["Kind", schema.kind]];
  if (schema.task) facts.push(["Task", schema.task]);
  if (schema.target) facts.push(["Target", schema.target]);
  if (schema.classes) facts.push(["Classes", String(schema.classes)]);
  if (schema.shape) facts.push(["Shape", schema.shape.join(" × ")]);
  return (
    <Section title="What every site's data look like">
      <Facts of={facts} />
      {schema.features && (
        <Table label="Columns" heads={["Column", "Kind", ["Smallest", "number"], ["Largest", "number"], "Unit"]}>
          {schema.features.map((column) => (
            <tr key={column.name}>
              <td>{column.name}</td>
              <td>{column.kind ?? "number"}</td>
              <td className="number">{column.minimum ?? "–"}</td>
              <td className="number">{column.maximum ?? "–"}</td>
              <td>{column.unit ?? "–"}</td>
            </tr>
          ))}
        </Table>
      )}
    </Section>
  );
}
