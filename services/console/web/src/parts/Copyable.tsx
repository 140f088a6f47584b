import { Button, Text } from "@mantine/core";
import { useClipboard } from "@mantine/hooks";

/** Text to hand on, with a button that copies it. */
export function Copyable({ text, label }: { text: string; label: string }) {
  const board = useClipboard({ timeout: 2_000 });
  return (
    <div className="copyable">
      <pre tabIndex={0} aria-label={label}>
        {text}
      </pre>
      <Button size="xs" variant="default" onClick={() => board.copy(text)}>
        {board.copied ? "Copied" : "Copy"}
      </Button>
      {board.error && (
        <Text size="sm" c="red" role="alert">
          The browser does not let this page copy: select the text and copy it yourself.
        </Text>
      )}
    </div>
  );
}
