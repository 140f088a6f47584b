import type { ReactNode } from "react";
import { Link } from "wouter";
import { useModels } from "../api/queries";
import type { ModelView } from "../api/types";
import { count, headline } from "../parts/numbers";

const BEFORE = 3;
const AFTER = 3;
const SITES = 6;

/** Where a version came from, as boxes and arrows: versions before it, the sites and the run that made it, and what was made of it. */
export function Lineage({ project, model }: { project: string; model: ModelView }) {
  const { data: all = [] } = useModels(project, 500);
  const before: ModelView[] = [];
  let parent = model.lineage.parent;
  while (parent && before.length < BEFORE) {
    const found = all.find((one) => one.digest === parent);
    if (!found || before.includes(found)) break;
    before.unshift(found);
    parent = found.lineage.parent;
  }
    const after = all.filter((one) => one.lineage.parent === model.digest).sort((a, b) => a.version - b.version);
  const { lineage } = model;
  return (
    <ol className="lineage" aria-label="Lineage">
      {parent ? (
        <Box kind="begin" title="Earlier">
          <code>{parent.slice(0, 12)}…</code>
        </Box>
      ) : (
        <Box kind="begin" title="Begun">from seed {String((before[0] ?? model).lineage.seed)}</Box>
      )}
      {before.map((one) => (
        <Version key={one.version} project={project} model={one} />
      ))}
      <li className="made">
        <div className="box">
          <b>{count(lineage.participants.length)} {lineage.participants.length === 1 ? "site" : "sites"}</b>
          <span>
            {lineage.participants.slice(0, SITES).join(", ") || "not told"}
            {lineage.participants.length > SITES && ` and ${lineage.participants.length - SITES} more`}
          </span>
          <span>{count(lineage.examples)} examples</span>
        </div>
        <div className="box">
          <b>Run</b>
          <Link href={`/projects/${project}/runs/${lineage.run}`} className="link">
            {lineage.run}
          </Link>
          <span>
            round {lineage.round}, {lineage.workflow.replaceAll("_", " ")}
          </span>
        </div>
      </li>
      <Version project={project} model={model} here />
      {after.slice(0, AFTER).map((one) => (
        <Version key={one.version} project={project} model={one} />
      ))}
      {after.length > AFTER && <Box kind="begin" title="and">{after.length - AFTER} more versions</Box>}
    </ol>
  );
}

function Box({ kind, title, children }: { kind: string; title: string; children: ReactNode }) {
  return (
    <li>
      <div className={`box box-${kind}`}>
        <b>{title}</b>
        <span>{children}</span>
      </div>
    </li>
  );
}

function Version({ project, model, here = false }: { project: string; model: ModelView; here?: boolean }) {
  return (
    <li aria-current={here ? "true" : undefined}>
      <div className={here ? "box box-here" : "box"}>
        <b>
          {here ? `Version ${model.version}` : (
            <Link href={`/projects/${project}/models/${model.version}`} className="link">
              Version {model.version}
            </Link>
          )}
        </b>
        <span>{model.stage}{model.final ? ", last of its run" : ""}</span>
        <span>{headline(model.metrics)}</span>
      </div>
    </li>
  );
}
