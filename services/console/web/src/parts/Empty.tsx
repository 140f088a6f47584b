import { Text, Title } from "@mantine/core";
import type { ReactNode } from "react";

/** In the place of an empty list: what would be here, and how it gets there. */
export function Empty({ title, children, action }: { title: string; children: ReactNode; action?: ReactNode }) {
  return (
    <div className="empty">
      <Title order={3} size="h4">
        {title}
      </Title>
      <Text c="dimmed" maw={560} component="div">
        {children}
      </Text>
      {action}
    </div>
  );
}
