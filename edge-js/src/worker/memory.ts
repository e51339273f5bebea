/** A limit for what a runtime of WebAssembly takes, which the browser itself holds it to. */

const PAGE = 65_536;

/** Lets memories of WebAssembly that are made from now on grow to so many MB; call it before the first graph. */
export function capMemory(mb: number): void {
  const [Made, most] = [WebAssembly.Memory, Math.floor((mb * 1e6) / PAGE)];
  WebAssembly.Memory = class extends Made {
    constructor(asked: WebAssembly.MemoryDescriptor) {
      super({ ...asked, maximum: Math.min(asked.maximum ?? PAGE, most) });
    }
  };
}
