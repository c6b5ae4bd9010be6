// A button that changes something asks first.
import { useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { MAY_NOT, settings } from "../settings";

interface Props {
  label: string; // of the button, a verb: "Drain"
  title: string; // of the question: "Drain host-7?"
  children?: ComponentChildren; // what will happen
  act: () => Promise<unknown>;
  disabled?: boolean;
  weight?: "primary" | "danger"; // primary: the one button of its card; danger: what it ends does not come back by itself
}

export function Confirm({ label, title, children, act, disabled, weight }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [isActing, setActing] = useState(false);
  const [failure, setFailure] = useState("");
  const open = () => {
    setFailure("");
    dialog.current!.showModal();
  };
  const confirm = async () => {
    setActing(true);
    try {
      await act();
      dialog.current?.close(); // with what it has done the button may be gone
    } catch (error) {
      setFailure((error as Error).message);
    } finally {
      setActing(false);
    }
  };
  return (
    <>
      <button type="button" class={weight} disabled={disabled || !settings.value.mayChange} title={settings.value.viewer && !settings.value.mayChange ? MAY_NOT : undefined} onClick={open}>{label}</button>
      <dialog ref={dialog} aria-label={title}>
        <h2>{title}</h2>
        {children}
        {failure && <p class="stale" role="alert">{failure}</p>}
        <p class="buttons">
          <button type="button" class={weight ?? "primary"} disabled={isActing} onClick={confirm}>{label}</button>
          <button type="button" onClick={() => dialog.current!.close()}>Leave it as it is</button>
        </p>
      </dialog>
    </>
  );
}
