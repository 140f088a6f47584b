import { Checkbox, NumberInput, Textarea, TextInput } from "@mantine/core";
import type { AskedTerms } from "../api/types";

interface Given {
  terms: AskedTerms;
  change(terms: AskedTerms): void;
}

/** What an owner asks sites to agree to, but for the purpose. What has no field here stays as it is. */
export function TermsForm({ terms, change }: Given) {
  const set = (part: Partial<AskedTerms>) => change({ ...terms, ...part });
  return (
    <>
      <TextInput
        label="Who answers for it" description="An organisation or a person, and how sites reach them." required maxLength={500}
        value={terms.owner} onChange={(event) => set({ owner: event.target.value })}
      />
      <Checkbox
        label="Nothing leaves a site but in masked sums: nobody sees one site's part" checked={terms.masked ?? false}
        onChange={(event) => set({ masked: event.currentTarget.checked })}
      />
      <Checkbox
        label="Nothing is trained without noise that hides single people (differential privacy)" checked={terms.noise ?? false}
        onChange={(event) => set({ noise: event.currentTarget.checked })}
      />
      <NumberInput
        label="A job asks at most this epsilon of a site" description="Empty: no ceiling is agreed on." maw={420} min={0} decimalScale={3}
        value={terms.epsilon ?? ""} onChange={(value) => set({ epsilon: typeof value === "number" && value > 0 ? value : null })}
      />
      <NumberInput
        label="Sites in a round, at least" description="The sum of few hides little." maw={420} min={1} max={10000} allowDecimal={false} required
        value={terms.minimum_sites ?? 2} onChange={(value) => set({ minimum_sites: typeof value === "number" ? value : 2 })}
      />
      <Textarea
        label="What sites will tell" description="One sentence a line, such as: how many patients it has." autosize minRows={2} maxRows={12}
        value={(terms.told ?? []).join("\n")} onChange={(event) => set({ told: event.target.value.split("\n") })}
      />
    </>
  );
}

/** The form's terms as they are sent: without lines that are empty. */
export const written = (terms: AskedTerms): AskedTerms => ({
  ...terms, owner: terms.owner.trim(), told: (terms.told ?? []).map((line) => line.trim()).filter(Boolean),
});
