import { Button, Checkbox, Text, Textarea, TextInput } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { useLocation } from "wouter";
import { createProject, useChange } from "../api/queries";
import type { AskedTerms } from "../api/types";
import { read } from "../job/file";
import { Page, Section } from "../parts/Page";
import { Problem } from "../parts/Problem";
import { useSession } from "../session/Session";
import { TermsForm, written } from "./TermsForm";

const EXAMPLES: Record<string, string> = {
  "A table": `kind: tabular
features:
  - {name: age, minimum: 0, maximum: 120, unit: years}
  - {name: dose}
  - {name: sex, kind: category, values: [f, m]}
target: died
task: classification
classes: 2
`,
  "Arrays or images": `kind: array
shape: [64]
task: classification
classes: 10
`,
  Genotypes: `kind: genotypes
`,
};

export function NewProject() {
  const [name, setName] = useState("");
  const [description, setDescription] = useState("");
  const { session } = useSession();
  const [agreed, setAgreed] = useState(true);
  const [terms, setTerms] = useState<Omit<AskedTerms, "purpose">>({ owner: session?.display || session?.person || "" });
  const [text, setText] = useState(EXAMPLES["A table"]!);
  const [, go] = useLocation();
  const making = useChange(createProject);
  const { job: schema, problem } = read(text);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!schema) return;
    const asked = agreed ? written({ ...terms, purpose: description }) : null;
    making.mutate({ name: name.trim(), description, schema, terms: asked }, { onSuccess: (made) => go(`/projects/${made.name}/sites`) });
  };
  return (
    <Page title="New project" above={[["Overview", "/"]]}>
      <form onSubmit={submit} className="form">
        <TextInput
          label="Name" description="Small letters, digits and hyphens: it stands in commands and addresses." required
          pattern="[a-z0-9]([a-z0-9\-]{0,61}[a-z0-9])?" value={name} onChange={(e) => setName(e.target.value)}
        />
        <Textarea
          label="What is it for?" description="Sites read this before they join." autosize minRows={2} maxLength={2000} required={agreed}
          value={description} onChange={(e) => setDescription(e.target.value)}
        />
        <Section title="What every site's data look like">
          <Text c="dimmed" size="sm">
            A site checks its own data against this before it takes part, and says which column differs. Begin with:
          </Text>
          <div className="row">
            {Object.entries(EXAMPLES).map(([title, example]) => (
              <Button key={title} variant="default" size="xs" onClick={() => setText(example)}>
                {title}
              </Button>
            ))}
          </div>
          <Textarea
            aria-label="Schema of the data" autosize minRows={8} maxRows={30} spellCheck={false} value={text}
            onChange={(e) => setText(e.target.value)} error={problem || undefined} classNames={{ input: "code" }}
          />
        </Section>
        <Section title="What sites agree to">
          <Checkbox
            label="Sites agree to terms before they join, and refuse what goes beyond" checked={agreed}
            onChange={(event) => setAgreed(event.currentTarget.checked)}
          />
          {agreed && (
            <div className="form within">
              <TermsForm terms={{ ...terms, purpose: description }} change={setTerms} />
            </div>
          )}
        </Section>
        <Problem error={making.error} />
        <div>
          <Button type="submit" loading={making.isPending} disabled={!schema}>
            Create the project
          </Button>
        </div>
      </form>
    </Page>
  );
}
