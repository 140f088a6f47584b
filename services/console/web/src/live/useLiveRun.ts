import { useQueryClient } from "@tanstack/react-query";
import { useCallback, useMemo, useSyncExternalStore } from "react";
import { runOf } from "../api/queries";
import type { RunView } from "../api/types";
import { watchOf, type Watched } from "./watch";

/** A run as it happens. Where the connection breaks, it goes on after the last event that was seen. */
export function useLiveRun(project: string, run: string): Watched {
  const queries = useQueryClient();
  const watch = useMemo(() => watchOf(project, run), [project, run]);
  const subscribe = useCallback(
    (changed: () => void) =>
      watch.reading(changed, (state) => {
        // The record is asked for anew, unless it says so already.
        const { queryKey } = runOf(project, run);
        if (state === null || queries.getQueryData<RunView>(queryKey)?.state !== state) void queries.invalidateQueries({ queryKey });
      }),
    [project, run, queries, watch],
  );
  return useSyncExternalStore(subscribe, watch.now);
}
