import { signal } from "@preact/signals";
import { fetched } from "./api";

export interface Settings {
  temporalUi: string; // empty: not known
  temporalNamespace: string; // empty: its default
  viewer: string;
  mayChange: boolean; // whether buttons that change something are shown
}

export const settings = signal<Settings>({ temporalUi: "", temporalNamespace: "", viewer: "", mayChange: false });

fetched<Settings>("/settings.json").then(
  (value) => (settings.value = value),
  () => undefined, // the page says that Peloton does not answer
);
