import { signal } from "@preact/signals";
import { fetched } from "./api";

export interface Settings {
  temporalUi: string; // empty: not known
  temporalNamespace: string; // empty: its default
  viewer: string;
  mayChange: boolean; // whether buttons that change something can be pressed
  needsSignIn: boolean; // whether the cluster shows nothing without
  isSignedIn: boolean;
}

export const MAY_NOT = "You have no role that changes something.";

export const settings = signal<Settings>({ temporalUi: "", temporalNamespace: "", viewer: "", mayChange: false, needsSignIn: false, isSignedIn: false });

export function readSettings(): void {
  fetched<Settings>("/settings.json").then(
    (value) => {
      settings.value = value;
      if (value.needsSignIn) location.assign(`/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`);
    },
    () => undefined, // the page says that Peloton does not answer
  );
}

readSettings();
