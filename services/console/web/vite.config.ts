import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// The bundle is committed inside the Python package, so that neither installing nor testing Hanse needs Node.
export default defineConfig({
  plugins: [react()],
  build: {
    outDir: "../src/hanse_console/bundle",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2022",
    chunkSizeWarningLimit: 1000,
    // What others wrote changes seldom: browsers keep it over releases of ours, and so does the repository.
    rolldownOptions: { output: { codeSplitting: { groups: [{ name: "libraries", test: /node_modules/ }] } } },
  },
});
