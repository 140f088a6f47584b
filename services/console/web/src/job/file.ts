// The job file: a text that people may write in, and that the form changes without losing a comment of it.

import { isMap, parseDocument } from "yaml";
import type { DataSchema, Job } from "../api/types";

export interface Read {
  job: Job | null;
  /** Why the text is no job file; empty where it is one. */
  problem: string;
}

export function read(text: string): Read {
  const document = parseDocument(text, { maxAliasCount: 0 } as never);
  const error = document.errors[0];
  if (error) return { job: null, problem: error.message.split("\n")[0] ?? "" };
  try {
    const job: unknown = document.toJS({ maxAliasCount: 0 });
    if (job === null) return { job: {}, problem: "" };
    if (typeof job !== "object" || Array.isArray(job)) {
      return { job: null, problem: "The file is one value; names with values were expected, such as: rounds: 5" };
    }
    return { job: job as Job, problem: "" };
  } catch {
    return { job: null, problem: "The file refers to its own parts (&, *), which a job does not." };
  }
}

/** The text with one value set; or, where it is undefined, taken out. */
export function changed(text: string, path: string[], value: unknown): string {
  const document = parseDocument(text);
  if (document.errors.length > 0) return text;
  if (!isMap(document.contents)) document.contents = document.createNode({}) as never;
  if (value === undefined) document.deleteIn(path);
  else document.setIn(path, value !== null && typeof value === "object" ? document.createNode(value) : value); // a plain value keeps its comment
  return document.toString({ lineWidth: 100 });
}

/** A job to begin with, for data of this kind. */
export function firstJob(schema: DataSchema, sites: number): string {
  // Of a sum of two each knows the other's part, so masks need three sites; where two are there, these shall be able to begin.
  const masked = sites !== 2;
  // Pairwise: a compensator's sums are refused by sites that have not pinned its key, which nobody does at first.
  const masks = masked
    ? `# Masks: nobody, the hub included, sees what one site has learnt; the sum is exact.
secure_aggregation: {mode: pairwise}`
    : `# With a third site, add masks, so that nobody, the hub included, sees what one site has learnt (minimum: 3):
# secure_aggregation: {mode: pairwise}`;
  if (schema.kind === "genotypes") {
    return `# A genome-wide study over all cohorts; sums are masked: nobody sees one cohort's numbers.
workflow: association_study
study:
  test: ${schema.task === "regression" ? "linear" : "logistic"}
participants:
  minimum: ${Math.max(3, sites)}
`;
  }
  const model = schema.kind === "tabular" ? `{name: ${schema.task === "regression" ? "linear" : "logistic"}}` : "{name: mlp, hidden: [64]}";
  return `# What is to be trained, and how. Change it here or in the form: both are the same file.
rounds: 10
model: ${model}
train: {optimizer: {name: sgd, lr: 0.1}, epochs: 1, batch_size: 32}
participants:
  minimum: ${masked ? Math.max(3, sites) : 2}          # the run waits for so many sites
${masks}
`;
}
