import { useEffect, useState } from "react";

/** Long enough for a screen to have what was drawn first, too short for a reader to miss the rest. */
const PAUSE_MS = 100;

/** How many of a long list, or of a page's parts, are drawn: at once as many as a window shows; after a pause the others, so many in each
 *  frame. What is in view waits for nothing that is not. */
export function useInParts(all: number, first: number, step = 40): number {
  const [drawn, setDrawn] = useState(first);
  useEffect(() => {
    if (drawn >= all) return;
    let frame = 0;
    const more = () => {
      frame = requestAnimationFrame(() => setDrawn((now) => now + step));
    };
    const pause = setTimeout(more, drawn === first ? PAUSE_MS : 0);
    return () => {
      clearTimeout(pause);
      cancelAnimationFrame(frame);
    };
  }, [drawn, all, first, step]);
  return Math.min(drawn, all);
}
