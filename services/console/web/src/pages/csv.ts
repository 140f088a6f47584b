import type { AuditEntry } from "../api/types";

const COLUMNS = ["sequence", "at", "actor", "action", "subject", "authority", "detail"] as const;

/** Entries as RFC 4180 has it. A cell that a table program would take for a formula begins with an apostrophe. */
export function asCsv(entries: AuditEntry[]): string {
  const rows = entries.map((entry) => COLUMNS.map((name) => cell(name === "detail" ? JSON.stringify(entry.detail) : String(entry[name]))).join(","));
  return [COLUMNS.join(","), ...rows].join("\r\n") + "\r\n";
}

function cell(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
