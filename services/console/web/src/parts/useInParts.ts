import { useEffect, useState } from "react";

/** How many of a long list, or of a page's parts, are drawn: at once as many as a window shows, and more after each frame. What is in
 *  view waits for nothing that is not. */
export function useInParts(all: number, first: number, step = 40): number {
  const [drawn, setDrawn] = useState(first);
  useEffect(() => {
    if (drawn >= all) return;
    const frame = requestAnimationFrame(() => setDrawn((now) => now + step));
    return () => cancelAnimationFrame(frame);
  }, [drawn, all, step]);
  return Math.min(drawn, all);
}
