import { Text } from "@mantine/core";
import type { ReactNode } from "react";

/** A secret that has just been made. It is shown this once: the hub keeps only a hash. */
export function ShownOnce({ says, children }: { says: string; children: ReactNode }) {
  return (
    <div className="card issued" role="status">
      <Text fw={600}>{says}</Text>
      {children}
    </div>
  );
}
