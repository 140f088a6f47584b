import { Loader, Text } from "@mantine/core";
import { useEffect, useState } from "react";

const LONG_MS = 8_000;

/** That something is awaited. Requests end by themselves after twenty seconds; this says so when it takes long. */
export function Loading({ what }: { what: string }) {
  const [long, setLong] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLong(true), LONG_MS);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div className="loading" role="status">
      <Loader size="sm" aria-hidden />
      <Text c="dimmed">{long ? `Still asking the hub for ${what}; it gives up by itself.` : `Asking the hub for ${what} …`}</Text>
    </div>
  );
}
