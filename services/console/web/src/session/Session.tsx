// Who is signed in. The answer to everything else waits for this.

import { useQueryClient } from "@tanstack/react-query";
import { createContext, useCallback, useContext, useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import { ApiError, ask, keepCsrf, whenSignedOut } from "../api/client";
import type { SessionView } from "../api/types";
import { forgetWatches } from "../live/watch";

interface Held {
  session: SessionView | null;
  /** False until the hub has said whether there is a session. */
  known: boolean;
  /** Why the sign-in page is shown although somebody was signed in. */
  over: boolean;
  problem: ApiError | null;
  begin(session: SessionView): void;
  end(): Promise<void>;
  retry(): void;
}

const Context = createContext<Held | null>(null);

export function useSession(): Held {
  const held = useContext(Context);
  if (!held) throw new Error("useSession is used outside of its provider");
  return held;
}

export function SessionProvider({ children }: { children: ReactNode }) {
  const queries = useQueryClient();
  const [session, setSession] = useState<SessionView | null>(null);
  const [known, setKnown] = useState(false);
  const [over, setOver] = useState(false);
  const [problem, setProblem] = useState<ApiError | null>(null);

  const present = useRef(false);

  const begin = useCallback((begun: SessionView) => {
    present.current = true;
    keepCsrf(begun.csrf);
    setSession(begun);
    setOver(false);
    setKnown(true);
  }, []);

  const forget = useCallback(() => {
    present.current = false;
    keepCsrf("");
    setSession(null);
    forgetWatches();
    queries.clear(); // the next person at this browser sees nothing of the last one's
  }, [queries]);

  const look = useCallback(async () => {
    setProblem(null);
    try {
      begin(await ask<SessionView>("/v1/session", { opening: true }));
    } catch (error) {
      if (error instanceof ApiError && error.status !== 401) setProblem(error);
      else setKnown(true);
    }
  }, [begin]);

  useEffect(() => {
    void look();
  }, [look]);

  useEffect(() => {
    whenSignedOut(() => {
      // Several requests are refused at once: what the sign-in page asks meanwhile is not forgotten by the later ones.
      if (!present.current) return;
      setOver(true);
      forget();
    });
  }, [forget]);

  const held = useMemo<Held>(
    () => ({
      session, known, over, problem, begin,
      end: async () => {
        await ask("/v1/session", { method: "DELETE" });
        forget();
      },
      retry: () => void look(),
    }),
    [session, known, over, problem, begin, forget, look],
  );
  return <Context.Provider value={held}>{children}</Context.Provider>;
}
