/** Texts become numbers of word pieces, as a BERT's `tokenizer.json` says (edge/encoder.py). */

import { parsed } from "../bundle.js";
import { Refused } from "../errors.js";
import type { Schema } from "../schema.js";
import { GONE, MARKS, PUNCTUATION, WHOLE } from "./code_points.js";

const MOST_BYTES = 16 << 20;
const NUMBER = { type: "integer", min: 0, below: 2 ** 31 };
const TEXT = { type: "string", maxLength: 200 };
const PIECE = { p: { id: TEXT, type_id: NUMBER } };
const PLACES = { items: [{ p: { Sequence: PIECE } }, { p: { SpecialToken: PIECE } }], maxItems: 8 };
const END = { items: [TEXT, NUMBER], minItems: 2, maxItems: 2 };
const BOOLEANS = (names: string[]) => Object.fromEntries(names.map((name) => [name, "boolean"]));

/** What a tokenizer may say; how texts are cut and filled up is said by who uses it, so that is not read. */
const SCHEMA: Exclude<Schema, string> = {
  p: {
    version: { const: "1.0" }, truncation: {}, padding: {},
    added_tokens: { items: "Added", maxItems: 10_000 }, normalizer: ["Normalizer", "null"],
    pre_tokenizer: [{ p: { type: { const: "BertPreTokenizer" } } }, "null"],
    post_processor: ["Template", "Ends", "null"], decoder: ["Decoder", "null"], model: "WordPiece",
  },
  o: ["truncation", "padding", "decoder"],
  $defs: {
    Added: {
      p: { id: NUMBER, content: TEXT, ...BOOLEANS(["single_word", "lstrip", "rstrip", "normalized", "special"]) },
    },
    Normalizer: {
      p: {
        type: { const: "BertNormalizer" }, strip_accents: ["boolean", "null"],
        ...BOOLEANS(["clean_text", "handle_chinese_chars", "lowercase"]),
      },
      o: ["strip_accents"],
    },
    Template: {
      p: {
        type: { const: "TemplateProcessing" }, single: PLACES, pair: PLACES,
        special_tokens: { values: "Special", maxProperties: 100 },
      },
    },
    Special: { p: { id: TEXT, ids: { items: NUMBER, maxItems: 8 }, tokens: { items: TEXT, maxItems: 8 } } },
    Ends: { p: { type: { const: "BertProcessing" }, sep: END, cls: END } },
    Decoder: { p: { type: { const: "WordPiece" }, prefix: TEXT, cleanup: "boolean" } },
    WordPiece: {
      p: {
        type: { const: "WordPiece" }, unk_token: TEXT, continuing_subword_prefix: TEXT,
        max_input_chars_per_word: { type: "integer", min: 1, max: 200 },
        vocab: { type: "object", maxProperties: 2 ** 20 },
      },
      o: ["type"],
    },
  },
};

interface Normalizer {
  clean_text: boolean; handle_chinese_chars: boolean; strip_accents?: boolean | null; lowercase: boolean;
}
type Place = { Sequence: { id: string } } | { SpecialToken: { id: string } };
type Ends =
  | { type: "TemplateProcessing"; single: Place[]; special_tokens: Record<string, { ids: number[] }> }
  | { type: "BertProcessing"; sep: [string, number]; cls: [string, number] };
interface Tokenizer {
  added_tokens: { content: string; single_word: boolean; lstrip: boolean; rstrip: boolean; normalized: boolean }[];
  normalizer: Normalizer | null; pre_tokenizer: object | null; post_processor: Ends | null;
  model: {
    unk_token: string; continuing_subword_prefix: string; max_input_chars_per_word: number;
    vocab: Record<string, number>;
  };
}

const SPACE = "\\t-\\r \\u0085\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const classOf = (points: string) => points.trim().split(/\s+/).map(
  (range) => range.split("-").map((point) => `\\u{${point}}`).join("-"),
).join("");
const [GONE_ALL, MARKS_ALL] = [GONE, MARKS].map((points) => new RegExp(`[${classOf(points)}]`, "gu"));
const DECOMPOSED = new RegExp(`[^${classOf(WHOLE)}]+`, "gu");
const SPACES = new RegExp(`[${SPACE}]`, "gu");
const MARK = `!-/:-@\\[-\`{-~${classOf(PUNCTUATION)}`;
const WORD = new RegExp(`[${MARK}]|[^${SPACE}${MARK}]+`, "gu");
const IDEOGRAPH = new RegExp(
  `[${classOf("3400-4dbf 4e00-9fff f900-faff 20000-2a6df 2a700-2b81f 2b920-2ceaf 2f800-2fa1f")}]`, "gu",
);

/** A text in the form in which words are looked up. */
function normalised(text: string, how: Normalizer): string {
  let out = text;
  if (how.clean_text) out = out.replace(GONE_ALL, "").replace(SPACES, " ");
  if (how.handle_chinese_chars) out = out.replace(IDEOGRAPH, " $& ");
  if (how.strip_accents ?? how.lowercase)
    out = out.replace(DECOMPOSED, (part) => part.normalize("NFD")).replace(MARKS_ALL, "");
  // each by itself: a sigma at the end of a word is as any other
  return how.lowercase ? Array.from(out, (point) => point.toLowerCase()).join("") : out;
}

export class WordPieces {
  readonly #said: Tokenizer;
  readonly #vocabulary: Map<string, number>;
  readonly #added: RegExp | null;
  readonly #before: number[];
  readonly #after: number[];

  /** Refuses any tokenizer but a BERT's, as this device reads it. */
  constructor(content: Uint8Array, path: string) {
    if (content.length > MOST_BYTES) throw new Refused(`${path} is longer than ${MOST_BYTES} bytes`);
    this.#said = parsed<Tokenizer>(content, SCHEMA, path);
    const { added_tokens, model, post_processor } = this.#said;
    this.#vocabulary = new Map(Object.entries(model.vocab));
    for (const [piece, number] of this.#vocabulary) {
      if (!Number.isInteger(number) || number < 0 || number >= 2 ** 31 || [...piece].length > 200)
        throw new Refused(`${path} has a piece that is no text of 200 characters with a number`);
    }
    if (!this.#vocabulary.has(model.unk_token)) throw new Refused(`${path} has no piece for unknown words`);
    for (const { content: one, ...how } of added_tokens) {
      const plain = !how.single_word && !how.lstrip && !how.rstrip && !how.normalized;
      if (!plain || !one || !this.#vocabulary.has(one))
        throw new Refused(`${path} adds a token that is none of the vocabulary, or is looked for in words`);
    }
    const longest = added_tokens.map((one) => one.content).sort((a, b) => b.length - a.length);
    const literal = longest.map((one) => one.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"));
    this.#added = longest.length ? new RegExp(`(${literal.join("|")})`, "u") : null;
    [this.#before, this.#after] = ends(post_processor, path);
  }

  /** The numbers of a text's pieces, at most so many, with those that stand before and after every text. */
  numbers(text: string, most: number): number[] {
    const found: number[] = [];
    const parts = this.#added ? text.split(this.#added) : [text];
    parts.forEach((part, n) => {
      if (n % 2) found.push(this.#vocabulary.get(part)!);
      else for (const word of this.#words(part)) found.push(...this.#pieces(word));
    });
    const room = Math.max(most - this.#before.length - this.#after.length, 0);
    return [...this.#before, ...found.slice(0, room), ...this.#after];
  }

  #words(text: string): string[] {
    const { normalizer, pre_tokenizer } = this.#said;
    const out = normalizer ? normalised(text, normalizer) : text;
    return pre_tokenizer ? (out.match(WORD) ?? []) : out ? [out] : [];
  }

  /** The longest pieces from the left; of a word that they do not make up, the piece for unknown words. */
  #pieces(word: string): number[] {
    const { max_input_chars_per_word, continuing_subword_prefix, unk_token } = this.#said.model;
    const [points, out, unknown] = [Array.from(word), [] as number[], [this.#vocabulary.get(unk_token)!]];
    if (points.length > max_input_chars_per_word) return unknown;
    for (let start = 0; start < points.length; ) {
      const prefix = start ? continuing_subword_prefix : "";
      let end = points.length;
      while (end > start && !this.#vocabulary.has(prefix + points.slice(start, end).join(""))) end--;
      if (end === start) return unknown;
      out.push(this.#vocabulary.get(prefix + points.slice(start, end).join(""))!);
      start = end;
    }
    return out;
  }
}

/** The numbers before and after a text. */
function ends(how: Ends | null, path: string): [number[], number[]] {
  if (how === null) return [[], []];
  if (how.type === "BertProcessing") {
    const found = [how.cls[1], how.sep[1]];
    if (!found.every(Number.isInteger)) throw new Refused(`${path} has ends that are no numbers`);
    return [[found[0]], [found[1]]];
  }
  const at = how.single.findIndex((place) => "Sequence" in place);
  const known = (place: Place) => "SpecialToken" in place && Object.hasOwn(how.special_tokens, place.SpecialToken.id);
  const others = how.single.filter((_, n) => n !== at);
  if (at < 0 || !others.every(known)) throw new Refused(`${path} does not place one text between its special tokens`);
  const numbers = (places: Place[]) =>
    places.flatMap((place) => ("SpecialToken" in place ? how.special_tokens[place.SpecialToken.id].ids : []));
  return [numbers(how.single.slice(0, at)), numbers(how.single.slice(at + 1))];
}
