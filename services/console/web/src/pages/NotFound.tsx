import { Link } from "wouter";
import { Empty } from "../parts/Empty";
import { Page } from "../parts/Page";

export function NotFound() {
  return (
    <Page title="There is no such page">
      <Empty title="The address leads nowhere" action={<Link href="/" className="link">To the overview</Link>}>
        It may have been cut when it was copied.
      </Empty>
    </Page>
  );
}
