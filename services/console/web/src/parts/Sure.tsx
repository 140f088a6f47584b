import { Button, Modal, Text, type ButtonProps } from "@mantine/core";
import { useState, type ReactNode } from "react";

interface Given extends Pick<ButtonProps, "size" | "color" | "variant"> {
  children: ReactNode;
  /** For whom the button's own words are too few. */
  label: string;
  asks: string;
  says: string;
  act(): void;
}

/** A button for what cannot be taken back: it says what follows, and asks. */
export function Sure({ children, label, asks, says, act, ...looks }: Given) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button {...looks} aria-label={label} onClick={() => setOpen(true)}>
        {children}
      </Button>
      <Modal opened={open} onClose={() => setOpen(false)} title={asks} lockScroll={false} closeButtonProps={{ "aria-label": "Close" }}>
        <Text>{says}</Text>
        <div className="row end">
          <Button variant="default" onClick={() => setOpen(false)}>
            Leave it
          </Button>
          <Button
            color="red"
            onClick={() => {
              setOpen(false);
              act();
            }}
          >
            {children}
          </Button>
        </div>
      </Modal>
    </>
  );
}
