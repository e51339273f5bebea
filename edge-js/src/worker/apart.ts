/** A device in a worker, from its page's side: the page calls it, stays responsive, and ends it where it hangs. */

import { Refused } from "../errors.js";

interface Waiting {
  done(value: unknown): void;
  failed(error: Error): void;
}

const BEAT = 250; // milliseconds between two questions whether the worker is alive

/**
 * Calls what `serve` answers in `worker`, and passes what it tells on to `heard`. A worker that is in one piece of work
 * for more than `seconds` is ended: all calls are refused then, and the state is the last that was kept.
 */
export class Apart {
  readonly #waiting = new Map<number, Waiting>();
  #last = 0;
  #missed = 0;
  #ended: Refused | null = null;
  #beats: ReturnType<typeof setInterval> | undefined;

  constructor(
    private readonly worker: Worker, private readonly seconds = Infinity, heard: (told: never) => void = () => {},
  ) {
    worker.onmessage = ({ data }: MessageEvent<{ id?: number; value?: unknown; refused?: string; told?: unknown }>) => {
      this.#missed = 0;
      if ("told" in data) return heard(data.told as never);
      const waiting = this.#waiting.get(data.id ?? 0);
      if (!waiting) return;
      this.#waiting.delete(data.id!);
      if (!this.#waiting.size) clearInterval(this.#beats);
      if (data.refused === undefined) waiting.done(data.value);
      else waiting.failed(new Refused(data.refused));
    };
    worker.onerror = () => this.end("the worker of the device does not run; reload");
  }

  /** Calls a function of the worker by its name. */
  call<T>(name: string, ...given: unknown[]): Promise<T> {
    if (this.#ended) return Promise.reject(this.#ended);
    return new Promise((done, failed) => {
      if (!this.#waiting.size) this.#watch();
      this.#waiting.set(++this.#last, { done: done as Waiting["done"], failed });
      this.worker.postMessage({ id: this.#last, call: name, given });
    });
  }

  /** Ends the worker at once; every call is refused with the reason. */
  end(why: string): void {
    this.worker.terminate();
    clearInterval(this.#beats);
    this.#ended ??= new Refused(why);
    for (const { failed } of this.#waiting.values()) failed(this.#ended);
    this.#waiting.clear();
  }

  /** Counts beats, not time: a page that was asleep does not take its worker for hanging. */
  #watch(): void {
    this.#missed = 0;
    this.#beats = setInterval(() => {
      this.worker.postMessage({ id: 0 });
      if (this.#missed++ * BEAT <= this.seconds * 1000) return;
      this.end(`the device worked for more than ${this.seconds} s and was stopped; its state is the last one kept`);
    }, BEAT);
  }
}
