import { render } from "preact";
import { Shell } from "./parts/shell";
import { start } from "./router";
import { applyTheme } from "./theme";
import "./styles.css";

applyTheme();
start();
render(<Shell />, document.getElementById("app")!);
