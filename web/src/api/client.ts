// HTTP client of the page: builds URLs, reads answers, distinguishes kinds of failure.
import { inSteps } from "../lib/in-steps.ts";
import { jsonSteps } from "../lib/json-steps.ts";
import type { Problem } from "./types.ts";

/** The server answered, and refused or could not. */
export class ProblemError extends Error {
  readonly problem: Problem;
  constructor(problem: Problem) {
    super(problem.detail || problem.title);
    this.name = "ProblemError";
    this.problem = problem;
  }
}

/** The server did not answer. */
export class LostServerError extends Error {
  constructor() {
    super("The server does not respond.");
    this.name = "LostServerError";
  }
}

export type Parameters = Record<string, string | number | boolean | undefined>;

/** `/api/v1/…` with the parameters that are set, in a fixed order. */
export function apiUrl(path: string, parameters: Parameters = {}): string {
  const query = new URLSearchParams();
  for (const key of Object.keys(parameters).sort()) {
    const value = parameters[key];
    if (value !== undefined && value !== "") query.set(key, String(value));
  }
  const text = query.toString();
  return `/api/v1/${path}${text ? `?${text}` : ""}`;
}

let answering: ((path: string, parameters: Parameters) => unknown) | undefined;

/** Takes answers from a function in place of the server; `undefined`: from the server again. */
export function answerFrom(source: ((path: string, parameters: Parameters) => unknown) | undefined): void {
  answering = source;
}

/** Asks for a JSON document. */
export async function getJson<T>(path: string, parameters: Parameters, signal?: AbortSignal): Promise<T> {
  if (answering) return answering(path, parameters) as T;
  const response = await ask(path, parameters, signal);
  return inSteps(jsonSteps<T>(await response.text()), signal);
}

async function ask(path: string, parameters: Parameters, signal?: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(apiUrl(path, parameters), {
      signal: signal ?? null,
      headers: { accept: "application/json" },
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new LostServerError();
  }
  if (!response.ok) throw new ProblemError(await readProblem(response));
  return response;
}

/** Tells the server to do something. */
export async function sendCommand(path: string): Promise<void> {
  let response: Response;
  try {
    response = await fetch(apiUrl(path), { method: "POST", headers: { accept: "application/json" } });
  } catch {
    throw new LostServerError();
  }
  if (!response.ok) throw new ProblemError(await readProblem(response));
}

async function readProblem(response: Response): Promise<Problem> {
  const fallback: Problem = {
    type: "about:blank",
    title: `HTTP ${response.status}`,
    status: response.status,
    detail: `The server answered ${response.status} ${response.statusText}.`.replace(" .", "."),
    parameter: null,
  };
  try {
    const body: unknown = await response.json();
    return typeof body === "object" && body !== null ? { ...fallback, ...body } : fallback;
  } catch {
    return fallback;
  }
}
