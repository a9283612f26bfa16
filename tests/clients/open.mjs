// Opens an export in the page that it is made for, in Chromium, and prints what the page then shows.
//   node open.mjs CLIENTS dh_view|speedscope FILE
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [clients, viewer, file] = process.argv.slice(2);
const { chromium } = createRequire(path.join(clients, "package.json"))("playwright-core");
const pages = {
  dh_view: "/usr/libexec/valgrind/dh_view.html",
  speedscope: path.join(clients, "node_modules/speedscope/dist/release/index.html"),
};
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--allow-file-access-from-files"],
});
try {
  const page = await browser.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(error.message));
  page.on("dialog", (dialog) => {
    errors.push(dialog.message());
    dialog.dismiss();
  });
  await page.goto(pathToFileURL(pages[viewer]).href);
  await page.locator("input[type=file]").setInputFiles(file);
  if (viewer === "dh_view") {
    await page.getByText("Times {", { exact: false }).or(page.getByText("AP 1", { exact: false })).first().waitFor();
  } else {
    // Once a profile is open, its name is in the title.
    await page.waitForFunction(() => document.title.includes(" - speedscope"));
    console.log(await page.title());
  }
  console.log(await page.locator("body").innerText());
  if (errors.length > 0) throw new Error(errors.join("; "));
} finally {
  await browser.close();
}
