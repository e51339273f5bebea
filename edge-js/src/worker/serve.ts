/** The worker's side: functions that a page calls by their names. */

import { reason, Refused } from "../errors.js";

/** What a page may call; values must be such as can be posted. */
export type Calls = Record<string, (...given: never[]) => unknown>;

/** Answers a page's calls, one line for every error; returns how to tell the page something unasked. */
export function serve(calls: Calls): (told: unknown) => void {
  const page = globalThis as unknown as Worker;
  page.onmessage = async ({ data }: MessageEvent<{ id: number; call?: string; given?: never[] }>) => {
    const { id, call, given = [] } = data;
    try {
      if (call !== undefined && !Object.hasOwn(calls, call)) throw new Refused(`the worker has no call ${call}`);
      page.postMessage({ id, value: call === undefined ? null : await calls[call](...given) });
    } catch (error) {
      page.postMessage({ id, refused: reason(error) });
    }
  };
  return (told) => page.postMessage({ told });
}
