import { render } from "preact";
import { Shell } from "./parts/shell";
import { start } from "./router";
import { applyTheme } from "./theme";
import { escapeTexts } from "./visible";
import "./styles.css";

escapeTexts();
applyTheme();
start();
render(<Shell />, document.getElementById("app")!);
