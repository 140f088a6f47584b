// What pages ask the hub, and how often anew.

import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo } from "react";
import { watchAhead } from "../live/watch";
import { ask, path } from "./client";
import type {
  AskedTerms, AuditEntry, Checked, Evaluation, HitView, HubView, InvitationView, IssuedInvitation, Job, KeyView, ModelView, ParticipantView,
  ProjectView, RunCurves, RunSummary, RunView, StatusView, StudyPoints, StudyQuantiles, StudyView,
} from "./types";

const SOON = 5_000;
const LATER = 15_000;

export const useHub = () => useQuery({ queryKey: ["hub"], queryFn: () => ask<HubView>("/v1/hub"), staleTime: 60_000 });

export const useAbout = () =>
  useQuery({ queryKey: ["about"], queryFn: () => ask<{ hub: string }>("/console.json"), staleTime: Infinity });

export const useStatus = (operator: boolean) =>
  useQuery({
    queryKey: ["status"], queryFn: () => ask<StatusView>("/v1/status"), refetchInterval: LATER, enabled: operator,
  });

export const useProjects = () =>
  useQuery({
    queryKey: ["projects"],
    queryFn: async () => (await ask<{ projects: ProjectView[] }>("/v1/projects")).projects,
    refetchInterval: LATER,
  });

export const useProject = (project: string) =>
  useQuery({ queryKey: ["project", project], queryFn: () => ask<ProjectView>(path`/v1/projects/${project}`) });

export const participantsOf = (project: string) => ({
  queryKey: ["participants", project],
  queryFn: async () =>
    (await ask<{ participants: ParticipantView[] }>(path`/v1/projects/${project}/participants`)).participants,
  refetchInterval: SOON,
});

/** `live`: asked anew again and again; `enabled`: false: not asked yet. */
export const useParticipants = (project: string, live = true, enabled = true) =>
  useQuery({ ...participantsOf(project), refetchInterval: live && SOON, enabled });

export const useInvitations = (project: string) =>
  useQuery({
    queryKey: ["invitations", project],
    queryFn: async () =>
      (await ask<{ invitations: InvitationView[] }>(path`/v1/projects/${project}/invitations`)).invitations,
    refetchInterval: SOON,
  });

export const RUNS_PAGE = 100;

/** The newest runs. */
export const runsOf = (project: string, most = RUNS_PAGE) => ({
  queryKey: ["runs", project, most],
  queryFn: async () => (await ask<{ runs: RunSummary[] }>(path`/v1/projects/${project}/runs` + `?limit=${most}`)).runs,
  refetchInterval: SOON,
});

export const useRuns = (project: string, most = RUNS_PAGE) => useQuery({ ...runsOf(project, most), placeholderData: (former) => former });

export const runOf = (project: string, run: string) => ({
  queryKey: ["run", project, run],
  queryFn: () => ask<RunView>(path`/v1/projects/${project}/runs/${run}`),
});

export const useRun = (project: string, run: string) =>
  useQuery({
    ...runOf(project, run),
    refetchInterval: (query) => (query.state.data && ended(query.state.data) ? false : SOON),
  });

/** What a list that this browser has says of a run. */
export function useListed(project: string, run: string): RunSummary | undefined {
  const queries = useQueryClient();
  return useMemo(
    () => queries.getQueriesData<RunSummary[]>({ queryKey: ["runs", project] }).flatMap(([, runs]) => runs ?? []).find((one) => one.run === run),
    [queries, project, run],
  );
}

export const MODELS_PAGE = 100;

/** The newest versions. */
export const useModels = (project: string, most = MODELS_PAGE) =>
  useQuery({
    queryKey: ["models", project, most],
    queryFn: async () => (await ask<{ models: ModelView[] }>(path`/v1/projects/${project}/models` + `?newest=true&limit=${most}`)).models,
    refetchInterval: LATER,
    placeholderData: (former) => former,
  });

export const AUDIT_PAGE = 50;

/** A page of the audit, newest first; `project` null: of what belongs to no project. */
export const auditOf = (project: string | null, wanted: Record<string, string>, before: number | null, limit = AUDIT_PAGE) => ({
  queryKey: ["audit", project, wanted, before, limit],
  queryFn: async () => {
    const query = new URLSearchParams({ newest: "true", limit: String(limit), ...(before === null ? {} : { before: String(before) }), ...wanted });
    const where = project === null ? "/v1/audit" : path`/v1/projects/${project}/audit`;
    return (await ask<{ events: AuditEntry[] }>(`${where}?${query}`)).events;
  },
  staleTime: 10_000,
});

/** A run's curve of one metric; null: of the hub's choice. `sites`: true: each of them; a name: that one alone; null: none. */
export const curvesOf = (project: string, run: string, metric: string | null, sites: true | string | null) => ({
  queryKey: ["curves", project, run, metric, sites],
  queryFn: () => {
    const which: Record<string, string> = typeof sites === "string" ? { site: sites } : { sites: String(sites === true) };
    const query = new URLSearchParams({ points: "300", ...which, ...(metric ? { metric } : {}) });
    return ask<RunCurves>(path`/v1/projects/${project}/runs/${run}/curves` + `?${query}`);
  },
  staleTime: 10_000,
  gcTime: 30_000,
});

/** Asked at once, whatever has finished, and anew when a round has finished that the answer does not have. */
export function useCurves(project: string, run: string, metric: string | null, sites: true | string | null, finished: number) {
  const asked = useQuery({ ...curvesOf(project, run, metric, sites), placeholderData: keepPreviousData });
  const { data, isPlaceholderData, refetch } = asked;
  const newest = data?.rounds.at(-1) ?? 0;
  const behind = data !== undefined && !isPlaceholderData && newest < finished;
  useEffect(() => {
    if (behind) void refetch({ cancelRefetch: false });
  }, [behind, newest, finished, refetch]);
  return asked;
}

/** What a run's page asks first: asked while somebody is about to open it, it is there when they do. */
export function useAhead() {
  const queries = useQueryClient();
  return useCallback(
    (project: string, run: string) => {
      void queries.prefetchQuery(runOf(project, run));
      void queries.prefetchQuery(curvesOf(project, run, null, null));
      watchAhead(project, run);
    },
    [queries],
  );
}

/** A site's own curve of a metric. */
export function useAheadOfSite(project: string, run: string, metric: string | null) {
  const queries = useQueryClient();
  return useCallback((site: string) => void queries.prefetchQuery(curvesOf(project, run, metric, site)), [queries, project, run, metric]);
}

export const useEvaluation = (project: string, run: string, round: number) =>
  useQuery({
    queryKey: ["evaluation", project, run, round],
    queryFn: async () => (await ask<Evaluation>(path`/v1/projects/${project}/runs/${run}/evaluation`)).newest,
    placeholderData: (former) => former,
    enabled: round > 0,
    gcTime: 30_000,
  });

const study = (project: string, run: string, what: string) => path`/v1/projects/${project}/runs/${run}/study` + what;

export const useStudy = (project: string, run: string) =>
  useQuery({ queryKey: ["study", project, run], queryFn: () => ask<StudyView>(study(project, run, "")), staleTime: Infinity });

export interface Region {
  chromosome?: string;
  begin?: number;
  end?: number;
}

export const useStudyPoints = (project: string, run: string, region: Region) =>
  useQuery({
    queryKey: ["study-points", project, run, region],
    queryFn: () => {
      const query = new URLSearchParams(Object.entries(region).filter(([, value]) => value !== undefined).map(([name, value]) => [name, String(value)]));
      return ask<StudyPoints>(study(project, run, `/points?${query}`));
    },
    staleTime: Infinity, gcTime: 60_000, placeholderData: (former) => former,
  });

export const useStudyQuantiles = (project: string, run: string) =>
  useQuery({
    queryKey: ["study-quantiles", project, run], queryFn: () => ask<StudyQuantiles>(study(project, run, "/quantiles")), staleTime: Infinity,
  });

export const useStudyHits = (project: string, run: string, contains: string, after: number, limit: number) =>
  useQuery({
    queryKey: ["study-hits", project, run, contains, after, limit],
    queryFn: () => {
      const query = new URLSearchParams({ contains, after: String(after), limit: String(limit) });
      return ask<{ there: number; hits: HitView[] }>(study(project, run, `/hits?${query}`));
    },
    staleTime: Infinity, gcTime: 60_000, placeholderData: (former) => former,
  });

export const useKeys = () =>
  useQuery({ queryKey: ["keys"], queryFn: async () => (await ask<{ keys: KeyView[] }>("/v1/keys")).keys.reverse() });

/** What the sites that are there say of a job: asked when somebody wants to know, for a site answers so many a day. */
export const askSites = (project: string) => (job: Job) =>
  ask<Checked>(path`/v1/projects/${project}/check`, { method: "POST", body: { job, sites: true }, withinMs: 55_000 });

/** What the hub says to a job; asked anew whenever the job changes. */
export const useCheck = (project: string, job: Job | null) =>
  useQuery({
    queryKey: ["check", project, JSON.stringify(job)],
    queryFn: ({ signal }) =>
      ask<Checked>(path`/v1/projects/${project}/check`, { method: "POST", body: { job }, signal }),
    enabled: job !== null,
    retry: false,
    gcTime: 60_000,
    placeholderData: (former) => former,
  });

export const ended = (run: { state: string }) => ["completed", "failed", "cancelled"].includes(run.state);

/** A change at the hub; what lists show is asked anew after it. */
export function useChange<Given, Answer>(change: (given: Given) => Promise<Answer>) {
  const known = useQueryClient();
  return useMutation({ mutationFn: change, onSuccess: () => known.invalidateQueries() });
}

export const writeTerms = (project: string) => (asked: AskedTerms) =>
  ask<ProjectView>(path`/v1/projects/${project}/terms`, { method: "POST", body: asked });

export const createProject = (body: { name: string; description: string; schema: unknown; terms: AskedTerms | null }) =>
  ask<ProjectView>("/v1/projects", { method: "POST", body });

export const invite = (project: string) => (participant: string) =>
  ask<IssuedInvitation>(path`/v1/projects/${project}/invitations`, { method: "POST", body: { participant } });

export const submitRun = (project: string) => (job: Job) =>
  ask<RunView>(path`/v1/projects/${project}/runs`, { method: "POST", body: { job } });

export const removeRun = (project: string, run: string) => () =>
  ask<RunSummary>(path`/v1/projects/${project}/runs/${run}`, { method: "DELETE" });

export const steer = (project: string, run: string) => (how: "pause" | "resume" | "cancel") =>
  ask<RunView>(path`/v1/projects/${project}/runs/${run}/` + how, { method: "POST" });
