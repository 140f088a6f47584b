import type { ReactNode } from "react";
import { Text } from "@mantine/core";
import type { StudyView } from "../api/types";
import { count } from "../parts/numbers";
import { Section } from "../parts/Page";

const WORDS: Record<string, string> = {
  all: "samples", founders: "founders", tested: "tested", cases: "cases", controls: "controls", males: "males", females: "females", left_out: "left out",
  common: "in all cohorts", snps: "SNPs in its file", duplicates: "duplicates left out", negative: "negative positions left out", flipped: "strand flips",
  incompatible: "alleles that do not agree", ambiguous: "ambiguous strand (A/T, C/G)", swapped: "turned", maf: "too rare", missing: "too many missing genotypes",
  hardy_weinberg: "not in Hardy-Weinberg equilibrium",
};

/** What was tested of what there was, and why the rest was left out: judged over all cohorts together. */
export function Quality({ study: { summary } }: { study: StudyView }) {
  const cohorts = Object.entries(summary.cohorts ?? {}).sort(([a], [b]) => a.localeCompare(b));
  const columns = [...new Set(cohorts.flatMap(([, counts]) => Object.keys(counts)))];
  return (
    <Section title="Quality control">
      <div className="plots">
        <Counts title="Samples" of={Object.entries(summary.samples ?? {}).map(([name, value]) => [WORDS[name] ?? name, value])} />
        <Counts
          title="SNPs"
          of={[
            ...Object.entries(summary.snps ?? {}).map(([name, value]): [string, number] => [WORDS[name] ?? name, value]),
            ...Object.entries(summary.reasons ?? {}).map(([words, value]): [string, number] => [`left out: ${words}`, value]),
          ]}
        />
      </div>
      {cohorts.length > 0 && (
        <Table label="Cohorts" head={["Cohort", ...columns.map((name) => WORDS[name] ?? name)]}>
          {cohorts.map(([name, counts]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              {columns.map((column) => (
                <td key={column} className="number">
                  {counts[column] === undefined ? "–" : count(counts[column])}
                </td>
              ))}
            </tr>
          ))}
        </Table>
      )}
      <Text size="sm" c="dimmed">
        How many samples, cases and controls each cohort has is masked: the hub knows the sums only.
      </Text>
      {summary.notes && summary.notes.length > 0 && (
        <ul className="plain">
          {summary.notes.map((note) => (
            <li key={note}>{note}</li>
          ))}
        </ul>
      )}
    </Section>
  );
}

function Counts({ title, of }: { title: string; of: [string, number][] }) {
  return (
    <Table label={title} head={[title, "Number"]}>
      {of
        .filter(([, value]) => typeof value === "number")
        .map(([name, value]) => (
          <tr key={name}>
            <td className="said">{name}</td>
            <td className="number">{count(value)}</td>
          </tr>
        ))}
    </Table>
  );
}

function Table({ label, head, children }: { label: string; head: string[]; children: ReactNode }) {
  return (
    <div className="table-around" tabIndex={0} role="region" aria-label={label}>
      <table className="table">
        <thead>
          <tr>
            {head.map((name, at) => (
              <th key={name} className={at > 0 ? "number" : undefined}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}
