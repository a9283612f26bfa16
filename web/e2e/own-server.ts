// A heaptrace server of one test file, for recordings that the others must not see.
import { type ChildProcess, spawn } from "node:child_process";
import { inject } from "vitest";

/** Serves these recordings; the address, once it is said, and what ends it. */
export async function serveOwn(files: string[]): Promise<{ url: string; end: () => void }> {
  const server: ChildProcess = spawn(inject("heaptrace"), ["server", ...files, "--port", "0"], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  const url = await new Promise<string>((found) => {
    server.stdout?.on("data", (part: Buffer) => {
      const address = /http:\/\/[0-9.:]+[0-9]/.exec(part.toString())?.[0];
      if (address) found(address);
    });
  });
  return { url, end: () => server.kill("SIGKILL") };
}
