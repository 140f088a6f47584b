import type { ReactNode } from "react";

/** A column's head: of text, of numbers, or one that is read out and not seen. */
type Head = string | [string, "number" | "unseen"];

interface Given {
  /** What the table is of, for who does not see it. */
  label: string;
  heads: Head[];
  /** Its rows. */
  children: ReactNode;
  tall?: boolean;
}

/** A table that scrolls by itself where it is wider than the screen; with the keyboard, too. */
export function Table({ label, heads, children, tall = false }: Given) {
  return (
    <div className={tall ? "table-around tall" : "table-around"} tabIndex={0} role="region" aria-label={label}>
      <table className="table">
        <thead>
          <tr>{heads.map((head) => (typeof head === "string" ? <th key={head}>{head}</th> : <Marked key={head[0]} name={head[0]} as={head[1]} />))}</tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

function Marked({ name, as }: { name: string; as: "number" | "unseen" }) {
  return as === "number" ? <th className="number">{name}</th> : <th><span className="unseen">{name}</span></th>;
}
