/** A bundle's files in a store, so that a device opens it without its server; whoever opens it checks every digest. */

import { packTensors, parseTensors, type Arr } from "../arrays.js";
import type { Files } from "../bundle.js";
import type { Store } from "../store.js";

/** The files in the store; where it has none, those given, which `keep` puts there once they were opened. */
export async function kept(store: Store, files: Files): Promise<{ files: Files; keep(): Promise<void> }> {
  const content = await store.read();
  const read = new Map<string, Arr>();
  if (!content) {
    const remembered = async (path: string) => {
      const data = await files.read(path);
      if (data) read.set(path, { data, shape: [data.length] });
      return data;
    };
    const keep = () => store.write(packTensors(read, {}));
    return { files: { list: () => files.list(), read: remembered }, keep };
  }
  for (const [path, one] of parseTensors(content).tensors) read.set(path, one);
  const file = (path: string) => Promise.resolve((read.get(path)?.data ?? null) as Uint8Array | null);
  return { files: { list: () => Promise.resolve([...read.keys()]), read: file }, keep: () => Promise.resolve() };
}
