import { Button, SegmentedControl, Text, TextInput } from "@mantine/core";
import { useEffect, useState, type FormEvent } from "react";
import { invite, useAbout, useChange, useHub, useInvitations } from "../api/queries";
import type { IssuedInvitation } from "../api/types";
import { Copyable } from "../parts/Copyable";
import { Section } from "../parts/Page";
import { Table } from "../parts/Table";
import { save } from "../parts/save";
import { Problem } from "../parts/Problem";
import { ShownOnce } from "../parts/ShownOnce";
import { State } from "../parts/State";
import { Moment } from "../parts/Time";
import { fingerprint, startLine, WAYS, type Way } from "./startLines";

const NAME = "[a-z0-9]([a-z0-9\\-]{0,61}[a-z0-9])?";

/** `terms`: digest of what sites agree to; null: to nothing. */
export function Invitations({ project, terms }: { project: string; terms: string | null }) {
  const invitations = useInvitations(project);
  const making = useChange(invite(project));
  const [name, setName] = useState("");
  const submit = (event: FormEvent) => {
    event.preventDefault();
    making.mutate(name.trim(), { onSuccess: () => setName("") });
  };
  const told = [...(invitations.data ?? [])].reverse().slice(0, 100);
  return (
    <Section title="Invite a site">
      <form onSubmit={submit} className="row">
        <TextInput
          label="Name of the site" description="Small letters, digits and hyphens, such as clinic-north." pattern={NAME} required
          value={name} onChange={(e) => setName(e.target.value)}
        />
        <Button type="submit" loading={making.isPending}>
          Invite
        </Button>
      </form>
      <Problem error={making.error} />
      {making.data && <Line issued={making.data} terms={terms} />}
      <Problem error={invitations.error} retry={() => void invitations.refetch()} />
      {told.length > 0 && (
        <Table label="Invitations" heads={["Invited", "State", "When", "Good until"]}>
          {told.map((one) => (
            <tr key={one.id}>
              <td>{one.participant}</td>
              <td>
                <State is={one.state} />
              </td>
              <td>
                <Moment at={one.created_at} />
              </td>
              <td>
                <Moment at={one.expires_at} />
              </td>
            </tr>
          ))}
        </Table>
      )}
    </Section>
  );
}

/** The line by which a site starts. Its token is shown this once: the hub keeps only a hash. */
function Line({ issued, terms }: { issued: IssuedInvitation; terms: string | null }) {
  const { data: hub } = useHub();
  const { data: about } = useAbout();
  const [way, setWay] = useState<Way>("docker");
  const [mark, setMark] = useState<string | null>(null);
  const ca = hub?.ca ?? null;
  useEffect(() => {
    if (ca) void fingerprint(ca).then(setMark);
  }, [ca]);
  if (!hub || !about || (ca && !mark)) return null;
  return (
    <ShownOnce says={`Give this to the administrator of ${issued.participant}. It works once, and is shown this once.`}>
      <SegmentedControl
        aria-label="How the site is started" value={way} onChange={(value) => setWay(value as Way)} data={WAYS}
      />
      <Copyable label={`Line that starts ${issued.participant}`} text={startLine(way, about.hub, issued, mark, terms)} />
      {ca && way !== "python" && (
        <Button variant="default" size="xs" onClick={() => save("hub-ca.pem", ca, "application/x-pem-file")}>
          Save hub-ca.pem, which goes beside it
        </Button>
      )}
      <Text size="sm" c="dimmed">
        Good until <Moment at={issued.expires_at} />. The site only connects outwards; its administrator sets the path of the data
        and may limit all that is done with them by a policy file.{" "}
        {terms && (
          <>
            Whoever starts it so agrees to the project&apos;s terms, of which the line has the digest; <code>hanse site preview</code> shows them first.
          </>
        )}
      </Text>
    </ShownOnce>
  );
}
