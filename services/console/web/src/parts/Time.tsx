import { useEffect, useState } from "react";

const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });
const ago = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" });

export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** A moment in the reader's own zone. */
export function Moment({ at }: { at: string | null }) {
  if (!at) return <>never</>;
  const date = new Date(at);
  return (
    <time dateTime={at} title={exact.format(date)}>
      {whole.format(date)}
    </time>
  );
}

/** How long ago; renewed as time goes by. */
export function Ago({ at }: { at: string | null }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 5_000);
    return () => clearInterval(timer);
  }, []);
  if (!at) return <>never</>;
  const date = new Date(at);
  return (
    <time dateTime={at} title={exact.format(date)}>
      {relative((date.getTime() - now) / 1000)}
    </time>
  );
}

function relative(seconds: number): string {
  const size = Math.abs(seconds);
  if (size < 10) return "just now";
  if (size < 60) return ago.format(Math.round(seconds), "second");
  if (size < 3600) return ago.format(Math.round(seconds / 60), "minute");
  if (size < 86_400) return ago.format(Math.round(seconds / 3600), "hour");
  return ago.format(Math.round(seconds / 86_400), "day");
}
