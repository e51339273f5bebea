/** Texts become vectors by what a bundle has: a tokenizer and an ONNX encoder, or words alone (edge/encoder.py). */

import { finite } from "../arrays.js";
import type { Bundle } from "../bundle.js";
import { Refused } from "../errors.js";
import { Graph, type Runtime } from "../graph.js";
import { WordEncoder } from "../words.js";
import { WordPieces } from "./word_pieces.js";

export interface Encoder {
  /** The text's vector, float32 [width]; zeros for an empty text. */
  encode(text: string): Promise<Float32Array>;
}

/** What Python's `strip` takes for nothing. */
const EMPTY = /^[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]*$/;

/** The encoder of a bundle; texts run one at a time, so that a vector does not depend on company. */
export async function openEncoder(bundle: Bundle, runtime: Runtime): Promise<Encoder> {
  const record = bundle.config.encoder;
  if (!record) throw new Refused("the bundle has no text encoder");
  if ("words" in record) return new WordEncoder(record, (path) => bundle.file(path));
  const { path, data, tokenizer, width, max_tokens } = record;
  const pieces = new WordPieces(bundle.file(tokenizer), tokenizer);
  const beside = data === null ? undefined : { name: data.split("/").pop()!, content: bundle.file(data) };
  const graph = await Graph.open(runtime, path, bundle.file(path), beside);
  const encode = async (text: string) => {
    if (typeof text !== "string") throw new Refused("a text must be a string");
    if (EMPTY.test(text)) return new Float32Array(width);
    const ids = pieces.numbers(text, max_tokens);
    const shape = [1, ids.length];
    const mask = { data: ids.map(() => 1), shape };
    const found = await graph.one({ ids: { data: ids, shape }, mask });
    if (found.shape.join() !== `1,${width}` || !finite(found.data))
      throw new Refused(`${path} gives [${found.shape}] instead of [1,${width}], or no finite numbers; export again`);
    return found.data;
  };
  return { encode };
}
