// Numbers as people read them, with their units.

const four = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 4 });
const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });

export const number = (value: unknown): string => (typeof value === "number" ? four.format(value) : "–");
export const count = (value: number): string => whole.format(value);

export function bytes(size: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  let left = size;
  while (left >= 1024 && at < units.length - 1) {
    left /= 1024;
    at += 1;
  }
  return `${at === 0 ? left : left.toFixed(left < 10 ? 1 : 0)} ${units[at]}`;
}

const FIRST = ["auroc", "r2", "loss", "accuracy", "mse"];

/** What was measured on the model: minima over sites and what training reported only where there is nothing else. */
export function mainMetrics(metrics: Record<string, unknown>): Record<string, number> {
  const all = Object.entries(metrics).filter((entry): entry is [string, number] => typeof entry[1] === "number");
  const main = all.filter(([name]) => !name.startsWith("train_") && !name.endsWith("_min"));
  const rank = (name: string) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  return Object.fromEntries((main.length ? main : all).sort(([a], [b]) => rank(a) - rank(b) || a.localeCompare(b)));
}

export const headline = (metrics: Record<string, unknown>): string =>
  Object.entries(mainMetrics(metrics)).slice(0, 2).map(([name, value]) => `${name} ${number(value)}`).join(", ") || "–";
