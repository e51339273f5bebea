/** Where a device's private state is kept: one value, wholly there or not at all. */

export interface Store {
  read(): Promise<Uint8Array | null>;
  /** Put `content` in place of what is there, at once. */
  write(content: Uint8Array): Promise<void>;
  remove(): Promise<void>;
}

export function memoryStore(): Store {
  let kept: Uint8Array | null = null;
  return {
    read: () => Promise.resolve(kept),
    write: (content) => Promise.resolve(void (kept = content.slice())),
    remove: () => Promise.resolve(void (kept = null)),
  };
}

/** A value of the browser's database: a transaction is done or not, whenever the tab is closed. */
export function databaseStore(name: string): Store {
  const run = async <T>(mode: IDBTransactionMode, work: (store: IDBObjectStore) => IDBRequest<T>): Promise<T> => {
    const database = await new Promise<IDBDatabase>((resolve, reject) => {
      const opening = indexedDB.open("edgefr", 1);
      opening.onupgradeneeded = () => opening.result.createObjectStore("devices");
      opening.onsuccess = () => resolve(opening.result);
      opening.onerror = () => reject(opening.error as Error);
    });
    try {
      return await new Promise<T>((resolve, reject) => {
        const transaction = database.transaction("devices", mode, { durability: "strict" });
        const request = work(transaction.objectStore("devices"));
        transaction.oncomplete = () => resolve(request.result);
        transaction.onabort = transaction.onerror = () => reject(transaction.error as Error);
      });
    } finally {
      database.close();
    }
  };
  return {
    read: async () => (await run("readonly", (store) => store.get(name) as IDBRequest<Uint8Array | undefined>)) ?? null,
    write: async (content) => void (await run("readwrite", (store) => store.put(content, name))),
    remove: async () => void (await run("readwrite", (store) => store.delete(name))),
  };
}
