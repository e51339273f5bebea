/** What `manifest.json` and `config.json` say, as far as this device reads it; the schemas in docs/schemas check it. */

import type { Selection } from "./sampling.js";

export interface FileEntry {
  path: string; size: number; sha256: string; role: string;
}

export interface Promise_ {
  trust: "local" | "central"; mechanism: string; adjacency: "replace-one" | "zero-out"; norm: "l1" | "l2";
  clip: number; multiplier: number; steps: number; epsilon: number; delta: number; rounds: number; cohort: number;
}

export interface Manifest {
  schema: string; bundle_id: string; serial: number;
  expires: string | null; method: string; variant: string; privacy: Promise_ | null;
  item_count: number; ids_file: string; files: FileEntry[];
}

export interface TensorRecord {
  name: string; shape: number[]; place: "shared" | "private"; kind: "dense" | "rows";
  anew?: { purpose: string; scale: number } | null;
}

export interface Phase extends Partial<Selection> {
  name: string; graph: string; data: string | null; purpose: string;
  when: "round" | "final"; epochs: number; optimiser: "sgd" | "adam";
  dense: string[]; tables: string[]; lr: Record<string, number>; beta_2: number;
  alternates?: boolean; accumulates?: boolean;
}

export interface Release {
  clip: number | null; norm: "l1" | "l2"; noise: string | null; scale: number; step: number | null;
  noised: "here" | "server" | "nowhere"; weights: "uniform" | "size"; project?: number | null;
}

export interface Exchange {
  publish: string | null; order: "received" | "trained" | null;
  reply: string | null; receiver_noise: number; sender_noise?: number;
  keeps: Record<string, string>; marks: string[];
}

export interface Sessions extends Exchange {
  gap_s: number; teach: string | null; whole_catalogue?: boolean; once?: boolean;
}

export interface Replay {
  picks: string; list_size: number; shift_scale: number; weight: number; reduction: "mean" | "sum";
}

export interface Learning {
  tensors: TensorRecord[]; phases: Phase[]; prepared?: Record<string, string>;
  score: string; vectors: string | null; vectors_data: string | null;
  negatives: number; batch_size: number; seed: number; round: number; release: Release;
  replay: Replay | null; sessions: Sessions | null; messages?: Exchange | null; block?: number;
}

export interface Table {
  name: string; dtype: "i8" | "f16" | "f32" | "i32";
  width: number; path: string; scale: string | null;
}

export interface Words {
  words: string; width: number; pairs: boolean;
  table: { count: number; numbers: string; weights: string; scale?: string | null; parts?: number } | null;
}

export interface Encoder {
  path: string; data: string | null; tokenizer: string; width: number; max_tokens: number;
}

export interface Config {
  score: string; tables: Table[]; history: boolean; shared: string; init: string;
  window: number | null; last?: number | null; explain?: string | null;
  encoder: Words | Encoder | null; learning: Learning | null;
  start?: { path: string; count: number; basis: "popular" | "mean" } | null;
}

/** Which examples a phase learns from, with what is left out where it is as usual. */
export function selection(phase: Phase): Selection {
  const usual: Selection = { part: "all", support: 0.5, pairs: false, context: 0, summed: false };
  return { ...usual, ...Object.fromEntries(Object.keys(usual).map(
    (k) => [k, phase[k as keyof Selection] ?? usual[k as keyof Selection]],
  )) };
}

/** Names of the tensors of one place that phases of one kind change, in the program's order. */
export function trained(learning: Learning, when: string, place: string): string[] {
  const phases = learning.phases.filter((phase) => phase.when === when);
  const changed = new Set(phases.flatMap((phase) => [...phase.dense, ...phase.tables]));
  return learning.tensors.filter((t) => t.place === place && changed.has(t.name)).map((t) => t.name);
}

/** What is exchanged beside updates, of sessions or of a set; null: nothing. */
export const exchangeOf = ({ sessions, messages }: Learning): Exchange | null => sessions ?? messages ?? null;

export function tensor(learning: Learning, name: string): TensorRecord {
  return learning.tensors.find((one) => one.name === name)!;
}
