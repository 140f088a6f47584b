import { useEffect, useRef, useState } from "react";

/** A value that changes at once, and then no more often than every so many milliseconds: for what is asked anew after it. */
export function useCalm<Value>(value: Value, pauseMs: number): Value {
  const [calm, setCalm] = useState(value);
  const changed = useRef(0);
  useEffect(() => {
    if (value === calm) return;
    const timer = setTimeout(() => {
      changed.current = Date.now();
      setCalm(value);
    }, Math.max(0, changed.current + pauseMs - Date.now()));
    return () => clearTimeout(timer);
  }, [value, calm, pauseMs]);
  return calm;
}
