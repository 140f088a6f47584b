import { Button, Text } from "@mantine/core";
import { useState } from "react";
import { Link } from "wouter";
import { MODELS_PAGE, useModels } from "../api/queries";
import { Empty } from "../parts/Empty";
import { Loading } from "../parts/Loading";
import { Table } from "../parts/Table";
import { bytes, headline } from "../parts/numbers";
import { Page } from "../parts/Page";
import { Problem } from "../parts/Problem";
import { State } from "../parts/State";
import { Moment } from "../parts/Time";

const MOST_MODELS = 1000;

export function Models({ project }: { project: string }) {
  const [most, setMost] = useState(MODELS_PAGE);
  const models = useModels(project, most);
  return (
    <Page title="Models" above={[["Overview", "/"], [project, `/projects/${project}`]]}>
      <Problem error={models.error} retry={() => void models.refetch()} />
      {models.isLoading && <Loading what="the models" />}
      {models.data?.length === 0 && (
        <Empty title="No model yet" action={<Button component={Link} href={`/projects/${project}/new-run`}>New run</Button>}>
          Runs publish versions here: signed, with where they came from. Of them you promote one to production, or download it.
        </Empty>
      )}
      {models.data && models.data.length > 0 && (
        <>
          <Table label="Versions" heads={[["Version", "number"], "Stage", "Metrics", "Of the run", ["Round", "number"], ["Size", "number"], "Made"]}>
            {models.data.map((model) => (
              <tr key={model.version}>
                <td className="number">
                  <Link href={`/projects/${project}/models/${model.version}`} className="link">
                    {model.version}
                  </Link>
                </td>
                <td>
                  <State is={model.stage} /> {model.best && "best "}
                  {model.final && "last"}
                </td>
                <td>{headline(model.metrics)}</td>
                <td>
                  <Link href={`/projects/${project}/runs/${model.lineage.run}`} className="link">
                    {model.lineage.run}
                  </Link>
                </td>
                <td className="number">{model.lineage.round}</td>
                <td className="number">{bytes(model.size)}</td>
                <td>
                  <Moment at={model.created_at} />
                </td>
              </tr>
            ))}
          </Table>
          {models.data.length === most && most < MOST_MODELS && (
            <Button variant="default" size="xs" loading={models.isFetching} onClick={() => setMost(Math.min(most + MODELS_PAGE, MOST_MODELS))}>
              Older versions
            </Button>
          )}
          <Text size="sm" c="dimmed">
            The hub keeps the newest candidates of each run; what is in a stage, or the best of its run, stays.
          </Text>
        </>
      )}
    </Page>
  );
}
