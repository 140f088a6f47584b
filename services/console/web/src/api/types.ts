// The hub's answers, as far as the pages read them (/v1/openapi.json has all).

export interface SessionView {
  person: string;
  display: string;
  source: "local" | "provider";
  role: "owner" | "operator";
  projects: string[] | null;
  totp: boolean;
  csrf: string;
  expires_at: string;
}

export interface PersonView {
  name: string;
  display: string;
  source: "local" | "provider";
  role: "owner" | "operator";
  projects: string[] | null;
  totp: boolean;
  state: "invited" | "active" | "revoked";
  last_sign_in: string | null;
  sessions: number;
}

export interface IssuedPerson extends PersonView {
  token: string;
  token_expires_at: string;
}

export interface SignInWays {
  local: boolean;
  provider: { label: string } | null;
}

export interface HubView {
  name: string;
  version: string;
  time: string;
  compensators: Record<string, string>;
  ca?: string | null;
}

export interface StatusView {
  name: string;
  version: string;
  bus_ready: boolean;
  store_ready: boolean;
  projects: number;
  participants: number;
  participants_online: number;
  runs: Record<string, number>;
}

export interface Column {
  name: string;
  dtype?: string;
  kind?: string;
  minimum?: number | null;
  maximum?: number | null;
  unit?: string | null;
}

export interface DataSchema {
  kind: string;
  task?: string;
  target?: string;
  classes?: number | null;
  features?: Column[];
  shape?: number[];
  [key: string]: unknown;
}

export interface ProjectView {
  name: string;
  description: string;
  schema: DataSchema;
  created_at: string;
  created_by: string;
  longest_absence_days: number | null;
  /** What sites agree to before they join; null: nothing. */
  terms: { version: number; asked: AskedTerms } | null;
  terms_digest: string | null;
  terms_words: string[];
}

/** What an owner asks sites to agree to; what is left out is open. */
export interface AskedTerms {
  owner: string;
  purpose: string;
  workflows?: string[];
  algorithms?: string[];
  protocols?: string[] | null;
  masked?: boolean;
  noise?: boolean;
  epsilon?: number | null;
  minimum_sites?: number;
  told?: string[];
}

export interface ParticipantView {
  participant: string;
  region: string;
  enrolled_at: string;
  revoked: boolean;
  public_key: string;
  version: string;
  device: string;
  last_seen: string | null;
  online: boolean;
  clock_difference: number | null;
  working_on: string | null;
  unfit: boolean;
  /** Its administrator lets no task begin. */
  paused: boolean;
  /** Its policy in words, where it tells that. */
  rules: string[] | null;
  /** Of the project, where it tells that; `allowed` null: there is no ceiling. */
  budget: { spent: number; delta: number; allowed: number | null } | null;
  /** Its newest, to terms of the project; `current`: to those of now. */
  consent: { terms: string; by: string; at: string; current: boolean } | null;
}

export interface InvitationView {
  id: string;
  participant: string;
  region: string;
  state: "open" | "used" | "expired" | "revoked";
  created_at: string;
  expires_at: string;
}

export interface IssuedInvitation {
  id: string;
  token: string;
  participant: string;
  expires_at: string;
}

export type RunState = "waiting" | "running" | "paused" | "completed" | "failed" | "cancelled";
export type Job = Record<string, unknown>;

export interface RunSummary {
  project: string;
  run: string;
  state: RunState;
  wanted: "run" | "pause" | "cancel";
  created_at: string;
  created_by: string;
  updated_at: string;
  round: number;
  rounds: number;
  reason: string;
  metrics: Record<string, unknown>;
  model_version: number | null;
  name?: string;
  tags?: string[];
  outputs: string[];
}

export interface RunView extends RunSummary {
  job: Job;
  privacy: string;
}

export interface Checked {
  valid: boolean;
  warnings: string[];
  utility: { component: string; value: string; ok: boolean; reason: string }[];
  privacy: string;
  epsilon?: number;
  sites?: { participant: string; findings: { code: string; rule?: string; text?: string; remains?: number | null }[]; reason: string }[];
}

export interface ModelView {
  version: number;
  digest: string;
  size: number;
  architecture: Record<string, unknown>;
  lineage: {
    run: string;
    round: number;
    workflow: string;
    participants: string[];
    examples: number;
    strategy: Record<string, unknown>;
    seed: number;
    parent: string | null;
    privacy: Record<string, unknown>;
  };
  metrics: Record<string, number>;
  created_at: string;
  stage: "candidate" | "staging" | "production" | "archived";
  final: boolean;
  best?: boolean;
  problem?: Record<string, unknown> | null;
  promoted_at?: string | null;
  public_key: string;
  signature: string;
}

export interface RunCurves {
  metric: string;
  metrics: string[];
  finished: number;
  rounds: number[];
  overall: Values;
  low: Values;
  high: Values;
  sites: Record<string, Values>;
}

export type Values = (number | null)[];

export interface Evaluation {
  newest: { round: number; metrics: Record<string, unknown>; curves: EvaluationCurves } | null;
}

export interface EvaluationCurves {
  calibration?: { from: number; to: number; examples: number; predicted: number; observed: number }[];
  roc?: Record<string, [number, number][]>;
  confusion?: number[][];
  subgroups?: { column: string; groups?: unknown; others?: unknown };
  [more: string]: unknown;
}

export interface StudyView {
  digest: string;
  test: string;
  snps: number;
  tested: number;
  genome_wide: number;
  bonferroni: number;
  level: number;
  inflation: number | null;
  effect: string;
  chromosomes: { chromosome: string; begin: number; end: number }[];
  summary: {
    samples?: Record<string, number>;
    snps?: Record<string, number>;
    reasons?: Record<string, number>;
    cohorts?: Record<string, Record<string, number>>;
    notes?: string[];
    covariates?: string[];
    study?: Record<string, unknown>;
    [more: string]: unknown;
  };
}

export interface StudyPoints {
  there: number;
  chromosome: string[];
  position: number[];
  minus_log10_p: number[];
  snp: string[];
}

export interface StudyQuantiles {
  expected: number[];
  observed: number[];
}

export interface HitView {
  rank: number;
  snp: string;
  chromosome: string;
  position: number;
  a1: string;
  a2: string;
  frequency: number | null;
  effect: number | null;
  low: number | null;
  high: number | null;
  p: number | null;
  minus_log10_p: number;
}

export interface KeyView {
  id: string;
  role: "owner" | "site" | "operator";
  project: string | null;
  participant: string | null;
  name: string;
  created_at: string;
  created_by: string;
  revoked: boolean;
  expires_at: string | null;
  read_only: boolean;
  void: boolean;
}

export interface AuditEntry {
  sequence: number;
  project: string;
  at: string;
  actor: string;
  action: string;
  subject: string;
  authority: string;
  detail: Record<string, unknown>;
}

export interface RunEvent {
  kind: string;
  at: string;
  round: number;
  data: Record<string, unknown>;
}
