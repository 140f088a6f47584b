import { Button, PasswordInput, Text, Title } from "@mantine/core";
import { useDocumentTitle } from "@mantine/hooks";
import { useEffect, useState, type FormEvent } from "react";
import { useLocation } from "wouter";
import { ask } from "../api/client";
import type { SessionView } from "../api/types";
import { Problem } from "../parts/Problem";
import { useSession } from "../session/Session";

/** What stands in the address in place of a token that was taken from it. */
const TAKEN = "link";

/** The first visit, by a one-time link: a password is chosen, and the link is worth nothing from then on. */
export function Welcome({ given }: { given: string }) {
  useDocumentTitle("Welcome · Hanse");
  const [token, setToken] = useState(given);
  const [, go] = useLocation();
  const { begin } = useSession();
  const [password, setPassword] = useState("");
  const [again, setAgain] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const differs = again !== "" && again !== password;

  // A token leaves the address at once: neither the history nor who looks over a shoulder shall have it. That of a second
  // link, opened in the same tab, as well.
  useEffect(() => {
    if (given === TAKEN) return;
    setToken(given);
    setError(null);
    history.replaceState(null, "", `#/welcome/${TAKEN}`);
  }, [given]);

  const submit = async (event: FormEvent) => {
    event.preventDefault();
    if (password !== again) return;
    setBusy(true);
    setError(null);
    try {
      begin(await ask<SessionView>("/v1/session/start", { method: "POST", body: { token, password }, opening: true }));
      go("/", { replace: true });
    } catch (failed) {
      setError(failed);
      setBusy(false);
    }
  };

  return (
    <main className="alone">
      <form onSubmit={(event) => void submit(event)} className="card sign-in">
        <img src="/icon.svg" alt="" width={40} height={40} />
        <Title order={1} size="h2">
          Welcome
        </Title>
        <Text>Choose a password. The link that brought you here works once.</Text>
        <PasswordInput
          label="New password" description="At least 12 characters, and not your name." autoComplete="new-password" required
          minLength={12} autoFocus value={password} onChange={(e) => setPassword(e.target.value)}
        />
        <PasswordInput
          label="The same again" autoComplete="new-password" required value={again} onChange={(e) => setAgain(e.target.value)}
          error={differs ? "The two are not the same." : undefined}
        />
        <Problem error={error} title="You are not signed in" />
        <Button type="submit" loading={busy} disabled={differs}>
          Begin
        </Button>
      </form>
    </main>
  );
}
