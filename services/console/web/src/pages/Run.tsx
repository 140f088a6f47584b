import { Alert, Button, Modal, Progress, Text } from "@mantine/core";
import { memo, useCallback, useEffect, useMemo, useState } from "react";
import { Link, useLocation } from "wouter";
import { stringify } from "yaml";
import { ended, removeRun, steer, useAhead, useAheadOfSite, useChange, useListed, useParticipants, useRun } from "../api/queries";
import type { RunSummary, RunView } from "../api/types";
import type { Line as Told, Live } from "../live/run";
import { useCalm } from "../live/useCalm";
import { useLiveRun } from "../live/useLiveRun";
import type { Line } from "../live/watch";
import { Copyable } from "../parts/Copyable";
import { Loading } from "../parts/Loading";
import { bytes, headline } from "../parts/numbers";
import { Facts, Page, Section } from "../parts/Page";
import { Problem } from "../parts/Problem";
import { State, stateOfRun } from "../parts/State";
import { Ago, Moment } from "../parts/Time";
import { useInParts } from "../parts/useInParts";
import { Curves } from "./Curves";
import { EvaluationPlots } from "./EvaluationPlots";
import { RunSites } from "./RunSites";

const LINES: Record<Line, string> = {
  connecting: "connecting", live: "live", broken: "the connection broke; it is tried again", ended: "",
};

/** All of a run's record, or as much of it as lists have. */
type Known = RunSummary & Partial<RunView>;

export function Run({ project, run: id }: { project: string; run: string }) {
  const run = useRun(project, id);
  const { live, line } = useLiveRun(project, id);
  const [metric, setMetric] = useState<string | null>(null);
  const [site, setSite] = useState<string | null>(null);
  const toggle = useCallback((name: string) => setSite((open) => (open === name ? null : name)), []);
  const finished = useCalm(live.finished || (run.data && ended(run.data) ? run.data.round : 0), 1_000);
  // What a window shows comes first, then the rest.
  const whole = useInParts(2, 1, 1) > 1;
  // What sites tell of themselves stands in the rows of those that have come: it waits for them.
  const sites = useParticipants(project, !(run.data && ended(run.data)), whole && live.round > 0);
  const listed = useListed(project, id);
  const ahead = useAhead();
  useEffect(() => ahead(project, id), [ahead, project, id]);
  const aheadOfSite = useAheadOfSite(project, id, metric);
  const told = useMemo(() => Object.fromEntries((sites.data ?? []).map((one) => [one.participant, one])), [sites.data]);
  if (run.error && !run.data) return <Problem error={run.error} retry={() => void run.refetch()} />;
  const known: Known | undefined = run.data ?? listed;
  if (!known) return <Loading what="the run" />;
  // Events are told sooner than the record is asked for; but what has ended stays so.
  const view = ended(known) ? known : { ...known, state: (live.state as RunView["state"] | null) ?? known.state };
  const over = ended(view);
  const round = Math.max(live.round, view.round);
  const isStudy = view.job?.study != null;
  return (
    <Page
      title={view.name || id}
      above={[["Overview", "/"], [project, `/projects/${project}`]]}
      state={<State is={stateOfRun(view)} />}
      actions={run.data && (over ? <Again project={project} run={view} /> : <Steering project={project} run={view} />)}
    >
      {line !== "ended" && (
        <Text size="sm" c="dimmed" role="status" className="line">
          <span className={`dot dot-${line}`} aria-hidden /> {LINES[line]}
        </Text>
      )}
      <Outcome run={view} reason={live.reason || view.reason} />
      <Rounds view={view} live={live} over={over} round={round} />
      {isStudy && over && view.state === "completed" && (
        <Section title="Results">
          <Button component={Link} href={`/projects/${project}/runs/${id}/study`}>
            Manhattan plot, hits, quality control
          </Button>
        </Section>
      )}
      <Curves project={project} run={id} finished={finished} metric={metric} choose={setMetric} site={site} begins={run.data !== undefined && !over && !isStudy} />
      {whole && <EvaluationPlots project={project} run={id} finished={finished} />}
      <RunSites sites={live.sites} told={told} over={over} open={site} toggle={toggle} ahead={aheadOfSite} />
      {whole && <Lines lines={live.lines} />}
      {whole && run.data && (
        <>
          <Section title="Privacy">
            <Text className="prose">{run.data.privacy}</Text>
          </Section>
          <JobFile job={run.data.job} />
        </>
      )}
    </Page>
  );
}

function Rounds({ view, live, over, round }: { view: RunSummary; live: Live; over: boolean; round: number }) {
  return (
    <Section title="Progress">
      {view.rounds > 0 && (
        <Progress.Root size="lg">
          <Progress.Section
            value={(100 * (over && view.state === "completed" ? view.rounds : Math.max(0, round - (over ? 0 : 1)))) / view.rounds}
            aria-label="Rounds done"
          />
        </Progress.Root>
      )}
      <Facts
        of={[
          ["Round", view.rounds ? `${round} of ${view.rounds}` : "–"],
          ["This round began", over ? "–" : <Ago key="r" at={live.roundSince} />],
          ...(live.progress ? [[live.progress.what, `${live.progress.done} of ${live.progress.of || "?"}`] as [string, string]] : []),
          ["Models and updates sent", bytes(live.bytes)],
          ["Begun", <Moment key="b" at={view.created_at} />],
          ["Last change", <Ago key="c" at={view.updated_at} />],
        ]}
      />
    </Section>
  );
}

const JobFile = memo(function JobFile({ job }: { job: RunView["job"] }) {
  return (
    <Section title="Job">
      <Copyable label="The job" text={stringify(job)} />
    </Section>
  );
});

function Outcome({ run, reason }: { run: RunSummary; reason: string }) {
  if (run.state === "failed") {
    return (
      <Alert color="red" title="The run failed" role="alert">
        {reason || "The hub gives no reason; its log does."} Below is who dropped out, and when. Mend the cause, then run the job again.
      </Alert>
    );
  }
  if (run.state === "waiting") {
    return (
      <Alert color="yellow" title="Waiting for sites">
        The run begins by itself when as many sites are online as its job asks for.
      </Alert>
    );
  }
  if (run.model_version !== null && ended(run)) {
    return (
      <Alert color="green" title="The model is there" role="status">
        <Link href={`/projects/${run.project}/models/${run.model_version}`} className="link">
          Version {run.model_version}
        </Link>
        : {headline(run.metrics)}{reason && `. ${reason}`}
      </Alert>
    );
  }
  return null;
}

function Again({ project, run }: { project: string; run: RunSummary }) {
  return (
    <>
      <Button component={Link} href={`/projects/${project}/new-run?like=${run.run}`} variant="default">
        Run again, or change it
      </Button>
      <Removal project={project} run={run} />
    </>
  );
}

function Removal({ project, run }: { project: string; run: RunSummary }) {
  const [, go] = useLocation();
  const change = useChange(removeRun(project, run.run));
  const [sure, setSure] = useState(false);
  const remove = () => change.mutate(undefined, { onSuccess: () => go(`/projects/${project}/runs`) });
  return (
    <>
      <Button color="red" variant="outline" onClick={() => setSure(true)}>
        Remove
      </Button>
      <Modal opened={sure} onClose={() => setSure(false)} title="Remove this run?" lockScroll={false} closeButtonProps={{ "aria-label": "Close" }}>
        <Text>Its curves, its events and, of a study, its results are gone then. Versions that it has published and the audit stay.</Text>
        {change.error && <Problem error={change.error} />}
        <div className="row end">
          <Button variant="default" onClick={() => setSure(false)}>
            Keep it
          </Button>
          <Button color="red" loading={change.isPending} onClick={remove}>
            Remove the run
          </Button>
        </div>
      </Modal>
    </>
  );
}

function Steering({ project, run }: { project: string; run: RunSummary }) {
  const change = useChange(steer(project, run.run));
  const [sure, setSure] = useState(false);
  const paused = run.wanted === "pause";
  return (
    <>
      <Button
        variant="default" loading={change.isPending} disabled={run.wanted === "cancel"}
        onClick={() => change.mutate(paused ? "resume" : "pause")}
      >
        {paused ? "Resume" : "Pause"}
      </Button>
      <Button color="red" variant="outline" disabled={run.wanted === "cancel"} onClick={() => setSure(true)}>
        Cancel
      </Button>
      {change.error && <Problem error={change.error} />}
      <Modal opened={sure} onClose={() => setSure(false)} title="Cancel this run?" lockScroll={false} closeButtonProps={{ "aria-label": "Close" }}>
        <Text>It ends now and cannot go on. Versions that it has published stay. To let it rest for a while, pause it instead.</Text>
        <div className="row end">
          <Button variant="default" onClick={() => setSure(false)}>
            Keep it
          </Button>
          <Button
            color="red"
            onClick={() => {
              change.mutate("cancel");
              setSure(false);
            }}
          >
            Cancel the run
          </Button>
        </div>
      </Modal>
    </>
  );
}

const LINES_IN_VIEW = 15;

const Lines = memo(function Lines({ lines }: { lines: Told[] }) {
  const drawn = useInParts(lines.length, LINES_IN_VIEW);
  if (lines.length === 0) return null;
  return (
    <Section title="What happened">
      <ol className="lines" reversed tabIndex={0} aria-label="What has happened">
        {lines.slice(lines.length - drawn).reverse().map((line) => (
          <li key={line.id} className={line.bad ? "bad" : undefined}>
            <Moment at={line.at} /> {line.text}
          </li>
        ))}
      </ol>
    </Section>
  );
});
