import "@mantine/core/styles.css";
import "uplot/dist/uPlot.min.css";
import "./app.css";

import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { createRoot } from "react-dom/client";
import { ApiError } from "./api/client";
import { App } from "./App";
import { SessionProvider } from "./session/Session";

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 2_000,
      gcTime: 5 * 60_000,
      // Refusals stay refusals; what may be the network's fault is asked three times.
      retry: (failures, error) => failures < 2 && !(error instanceof ApiError && error.status >= 400 && error.status < 500),
    },
  },
});

// No style tags: the content security policy takes styles of the bundle alone. Colours are set in app.css.
createRoot(document.getElementById("root")!).render(
  <MantineProvider theme={{ respectReducedMotion: true }} defaultColorScheme="auto" withCssVariables={false} withGlobalClasses={false}>
    <QueryClientProvider client={queries}>
      <SessionProvider>
        <App />
      </SessionProvider>
    </QueryClientProvider>
  </MantineProvider>,
);
