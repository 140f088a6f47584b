import { Alert, Button, Tabs, Text, Textarea } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { useLocation, useSearch } from "wouter";
import { stringify } from "yaml";
import { ApiError, ask, path } from "../api/client";
import { submitRun, useChange, useCheck, useParticipants, useProject } from "../api/queries";
import type { Checked, RunView } from "../api/types";
import { changed, firstJob, read } from "../job/file";
import { JobForm } from "../job/JobForm";
import { useSchemas } from "../job/schema";
import { Loading } from "../parts/Loading";
import { Page, Section } from "../parts/Page";
import { Problem } from "../parts/Problem";
import { Preflight } from "./Preflight";

const QUIET_MS = 500;

/** Waits for what the file begins with: the project's kind of data, or a run that it is to be like. */
export function NewRun({ project }: { project: string }) {
  const about = useProject(project);
  const sites = useParticipants(project);
  const like = new URLSearchParams(useSearch() || location.hash.split("?")[1]).get("like");
  const model = useQuery({
    queryKey: ["run", project, like],
    queryFn: () => ask<RunView>(path`/v1/projects/${project}/runs/${like ?? ""}`),
    enabled: like !== null,
  });
  const problem = about.error ?? sites.error ?? model.error;
  if (problem) return <Problem error={problem} />;
  if (!about.data || !sites.data || (like && !model.data)) return <Loading what="the project" />;
  const online = sites.data.filter((site) => site.online && !site.revoked).length;
  return <Editor project={project} begin={model.data ? stringify(model.data.job) : firstJob(about.data.schema, online)} />;
}

function Editor({ project, begin }: { project: string; begin: string }) {
  const [text, setText] = useState(begin);
  const [, go] = useLocation();
  const schemas = useSchemas();
  const { job, problem } = useMemo(() => read(text), [text]);
  const [settled] = useDebouncedValue(job, QUIET_MS);
  const check = useCheck(project, settled);
  const submit = useChange(submitRun(project));
  const current = settled === job && !check.isPlaceholderData;
  const good = current && check.isSuccess && job !== null;
  const wrong = useMemo(() => (current && check.error instanceof ApiError ? fieldsIn(check.error.message) : {}), [current, check.error]);

  return (
    <Page
      title="New run"
      above={[["Overview", "/"], [project, `/projects/${project}`]]}
      actions={
        <Button
          disabled={!good} loading={submit.isPending}
          onClick={() => job && submit.mutate(job, { onSuccess: (run) => go(`/projects/${project}/runs/${run.run}`) })}
        >
          Start the run
        </Button>
      }
    >
      <Problem error={submit.error} />
      <div className="two">
        <div>
          <Section title="Form">
            <Problem error={schemas.error} retry={() => void schemas.refetch()} />
            {schemas.isLoading && <Loading what="the form" />}
            {schemas.data && job && (
              <JobForm schemas={schemas.data} job={job} wrong={wrong} change={(at, value) => setText(changed(text, at, value))} />
            )}
            {!job && <Text c="dimmed">The form is back as soon as the file can be read.</Text>}
          </Section>
        </div>
        <div className="beside">
          <Section title="File">
            <Textarea
              aria-label="Job file" autosize minRows={12} maxRows={30} spellCheck={false} value={text}
              onChange={(e) => setText(e.target.value)} error={problem || undefined} classNames={{ input: "code" }}
            />
          </Section>
          <Verdict problem={problem} checking={!current && job !== null} error={check.error} checked={check.data ?? null} />
          {good && job && <Preflight key={JSON.stringify(job)} project={project} job={job} />}
        </div>
      </div>
    </Page>
  );
}

interface Given {
  problem: string;
  checking: boolean;
  error: Error | null;
  checked: Checked | null;
}

/** What the hub's checker says: the same that `hanse run check` says. */
function Verdict({ problem, checking, error, checked }: Given) {
  return (
    <div aria-live="polite">
      <Section title="Check" aside={checking && !problem && <Text c="dimmed" size="sm">checking …</Text>}>
        {problem && <Alert color="red" title="This is no job file yet">{problem}</Alert>}
        {!problem && error && <Problem error={error} title="The hub would refuse this job" />}
        {!problem && !error && checked && <Good checked={checked} />}
      </Section>
    </div>
  );
}

function Good({ checked }: { checked: Checked }) {
  return (
    <div className="stack">
      <Alert color={checked.warnings.length ? "yellow" : "green"} title={checked.warnings.length ? "The hub takes this job, with warnings" : "The hub takes this job"}>
        <ul className="plain">
          {checked.warnings.map((warning) => (
            <li key={warning}>{warning}</li>
          ))}
        </ul>
        {checked.epsilon !== undefined && <Text size="sm">It costs each site at most ε = {checked.epsilon.toPrecision(4)} of its privacy budget.</Text>}
      </Alert>
      <Tabs defaultValue="privacy" keepMounted={false}>
        <Tabs.List>
          <Tabs.Tab value="privacy">Privacy</Tabs.Tab>
          <Tabs.Tab value="pooled">As if pooled?</Tabs.Tab>
        </Tabs.List>
        <Tabs.Panel value="privacy">
          <Text size="sm" className="prose">{checked.privacy || "Nothing is promised."}</Text>
        </Tabs.Panel>
        <Tabs.Panel value="pooled">
          <ul className="plain">
            {checked.utility.map((finding) => (
              <li key={finding.component}>
                <b>{finding.ok ? "Yes" : "No"}</b>, {finding.component} {finding.value}: {finding.reason}
              </li>
            ))}
          </ul>
        </Tabs.Panel>
      </Tabs>
    </div>
  );
}

/** Which fields the hub's words are about: `body: job.rounds: Input should be …; job.seed: …`. */
function fieldsIn(message: string): Record<string, string> {
  const found: Record<string, string> = {};
  for (const part of message.replace(/^body: /, "").split("; ")) {
    const [, field, said] = /^(?:job\.)?([a-z_][a-z_.0-9]*): (.+)$/s.exec(part) ?? [];
    if (field && said) found[field] = said;
  }
  return found;
}
