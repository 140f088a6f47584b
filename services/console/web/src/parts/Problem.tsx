import { Alert, Button, Text } from "@mantine/core";
import { ApiError } from "../api/client";

/** An error: what is wrong, in the hub's words, and what to do. */
export function Problem({ error, retry, title }: { error: unknown; retry?: () => void; title?: string }) {
  if (!error) return null;
  const known = error instanceof ApiError;
  return (
    <Alert color="red" variant="light" role="alert" title={title ?? titleOf(error)} className="problem">
      <Text size="sm">{known ? error.message : "Something in this page went wrong."}</Text>
      <Text size="sm" mt={4}>
        {known ? error.hint : "Load the page again; if that does not help, tell the hub's operator."}
      </Text>
      {retry && (
        <Button size="xs" variant="default" mt="xs" onClick={retry}>
          Try again
        </Button>
      )}
    </Alert>
  );
}

function titleOf(error: unknown): string {
  if (!(error instanceof ApiError)) return "This did not work";
  switch (error.code) {
    case "forbidden":
      return "You may not do this";
    case "not-found":
      return "This is not there";
    case "unavailable":
    case "timeout":
      return "The hub cannot be reached";
    default:
      return "The hub refused this";
  }
}
