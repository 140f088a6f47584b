// What pages ask the hub, and how often anew.

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { ask, path } from "./client";
import type {
  AuditEntry, Checked, HubView, InvitationView, IssuedInvitation, Job, ModelView, ParticipantView, ProjectView, RunSummary,
  RunView, StatusView,
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

export const useParticipants = (project: string) => useQuery(participantsOf(project));

export const useInvitations = (project: string) =>
  useQuery({
    queryKey: ["invitations", project],
    queryFn: async () =>
      (await ask<{ invitations: InvitationView[] }>(path`/v1/projects/${project}/invitations`)).invitations,
    refetchInterval: SOON,
  });

export const runsOf = (project: string) => ({
  queryKey: ["runs", project],
  queryFn: async () => (await ask<{ runs: RunSummary[] }>(path`/v1/projects/${project}/runs`)).runs,
  refetchInterval: SOON,
});

export const useRuns = (project: string) => useQuery(runsOf(project));

export const useRun = (project: string, run: string) =>
  useQuery({
    queryKey: ["run", project, run],
    queryFn: () => ask<RunView>(path`/v1/projects/${project}/runs/${run}`),
    refetchInterval: (query) => (query.state.data && ended(query.state.data) ? false : SOON),
  });

export const useModels = (project: string) =>
  useQuery({
    queryKey: ["models", project],
    queryFn: async () => (await ask<{ models: ModelView[] }>(path`/v1/projects/${project}/models`)).models.reverse(),
    refetchInterval: LATER,
  });

export const useAudit = (project: string, after: number) =>
  useQuery({
    queryKey: ["audit", project, after],
    queryFn: async () =>
      (await ask<{ events: AuditEntry[] }>(path`/v1/projects/${project}/audit` + `?after=${after}&limit=200`)).events,
  });

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

export const createProject = (body: { name: string; description: string; schema: unknown }) =>
  ask<ProjectView>("/v1/projects", { method: "POST", body });

export const invite = (project: string) => (participant: string) =>
  ask<IssuedInvitation>(path`/v1/projects/${project}/invitations`, { method: "POST", body: { participant } });

export const submitRun = (project: string) => (job: Job) =>
  ask<RunView>(path`/v1/projects/${project}/runs`, { method: "POST", body: { job } });

export const steer = (project: string, run: string) => (how: "pause" | "resume" | "cancel") =>
  ask<RunView>(path`/v1/projects/${project}/runs/${run}/` + how, { method: "POST" });
