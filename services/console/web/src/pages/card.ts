import type { ModelView } from "../api/types";
import { number } from "../parts/numbers";

/** A version's card as Markdown: what the hub knows of it, and what its owners must say themselves. */
export function cardOf(project: string, model: ModelView, privacy: string): string {
  const { lineage } = model;
  const problem = model.problem?.schema as { kind?: string; task?: string; target?: string } | undefined;
  const rows = Object.entries(model.metrics).sort().map(([name, value]) => `| ${name} | ${number(value)} |`);
  return `# ${project}, version ${model.version}

## What it is for
${problem ? `Data of kind ${problem.kind}${problem.task ? `, ${problem.task}` : ""}${problem.target ? `, of ${problem.target}` : ""}.` : "Not told."}
To be written by its owners: who may use it, for whom, and for whom not.

## How it was made
- Run ${lineage.run}, round ${lineage.round} (${lineage.workflow}), seed ${lineage.seed}, ${model.created_at}
- Sites: ${lineage.participants.join(", ") || "not told"}; ${lineage.examples} examples
- From: ${lineage.parent ?? "a model begun from the seed"}

## How good it is
${rows.length ? `| metric | over all sites |\n|---|---|\n${rows.join("\n")}` : "It was not evaluated."}

## Privacy
${privacy || "Not told."}

## The file
- Stage: ${model.stage}
- ${model.size} bytes, SHA-256 ${model.digest}
- Signed (Ed25519) by ${model.public_key}: ${model.signature}
`;
}
