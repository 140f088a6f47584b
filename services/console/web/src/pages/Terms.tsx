import { Button, Modal, Text, Textarea } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { useChange, useParticipants, writeTerms } from "../api/queries";
import type { AskedTerms, ProjectView } from "../api/types";
import { Copyable } from "../parts/Copyable";
import { Empty } from "../parts/Empty";
import { Section } from "../parts/Page";
import { Problem } from "../parts/Problem";
import { TermsForm, written } from "./TermsForm";

/** What sites agree to before they join, and who has agreed. */
export function Terms({ project }: { project: ProjectView }) {
  const [open, setOpen] = useState(false);
  const sites = (useParticipants(project.name).data ?? []).filter((site) => !site.revoked);
  const agreed = sites.filter((site) => site.consent?.current).length;
  const button = (
    <Button variant="default" size="xs" onClick={() => setOpen(true)}>
      {project.terms ? "Change the terms" : "Write terms"}
    </Button>
  );
  return (
    <Section title="Terms" aside={project.terms && button}>
      {project.terms ? (
        <>
          <Text size="sm" c="dimmed">
            Version {project.terms.version}; {agreed} of {sites.length} sites have agreed to it. A site is shown this before it joins, and refuses what
            goes beyond.
          </Text>
          <ul className="rules">
            {project.terms_words.map((words) => (
              <li key={words}>{words}</li>
            ))}
          </ul>
          <Text size="sm">Digest of these terms, with the data&apos;s description:</Text>
          <Copyable label="Digest of the terms" text={project.terms_digest ?? ""} />
        </>
      ) : (
        <Empty title="No terms" action={button}>
          Terms say who answers for the project, what it is for, and what may be asked. A site&apos;s administrator reads them before joining, and agrees
          to them by their digest; the site refuses what goes beyond.
        </Empty>
      )}
      <Change project={project} open={open} close={() => setOpen(false)} />
    </Section>
  );
}

function Change({ project, open, close }: { project: ProjectView; open: boolean; close(): void }) {
  const [terms, setTerms] = useState<AskedTerms>(project.terms?.asked ?? { owner: "", purpose: project.description });
  const writing = useChange(writeTerms(project.name));
  const submit = (event: FormEvent) => {
    event.preventDefault();
    writing.mutate(written(terms), { onSuccess: close });
  };
  return (
    <Modal opened={open} onClose={close} title={`Terms of ${project.name}`} size="lg" lockScroll={false} closeButtonProps={{ "aria-label": "Close" }}>
      <form onSubmit={submit} className="form">
        <Text size="sm">Sites that have joined do nothing in new runs until somebody there agrees to what you write here.</Text>
        <Textarea
          label="What is it for?" autosize minRows={2} maxRows={12} maxLength={4000} required value={terms.purpose}
          onChange={(event) => setTerms({ ...terms, purpose: event.target.value })}
        />
        <TermsForm terms={terms} change={setTerms} />
        <Problem error={writing.error} />
        <div className="row end">
          <Button variant="default" onClick={close}>
            Leave them
          </Button>
          <Button type="submit" loading={writing.isPending}>
            Write these terms
          </Button>
        </div>
      </form>
    </Modal>
  );
}
