// Starts the page.
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import "./ui/tokens.css";
import "./ui/base.css";
import "./ui/frame.css";
import "./ui/controls.css";
import "./ui/tables.css";
import "./ui/histogram.css";
import "./ui/states.css";
import "./ui/small-screens.css";
import { openReport } from "./api/report.ts";
import { App } from "./app/app.tsx";

const root = document.getElementById("root");
if (root) {
  try {
    await openReport();
    createRoot(root).render(
      <StrictMode>
        <App />
      </StrictMode>,
    );
  } catch (error) {
    root.textContent = `This report is damaged: ${error instanceof Error ? error.message : String(error)}`;
  }
}
