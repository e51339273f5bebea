/** A secret is cut into shares: `threshold` of them give it back, fewer say nothing (privacy/secret_sharing.py). */

const PRIME = (1n << 256n) + 297n; // the smallest above 2^256, so that every 32 bytes are a secret
/** Bytes of a share: a number below the prime. */
export const SHARE = 33;

/** So many random bytes; a test feeds its own. */
export type Draw = (count: number) => Uint8Array;

export const drawn: Draw = (count) => crypto.getRandomValues(new Uint8Array(count));

/** A share for each place, the value there of a polynomial that is the secret at 0 and random else. */
export function cut(secret: Uint8Array, threshold: number, places: number[], draw: Draw): Map<number, Uint8Array> {
  const random = Array.from({ length: threshold - 1 }, () => below(draw));
  const polynomial = [whole(secret), ...random];
  return new Map(places.map((place) => [place, written(valueAt(polynomial, BigInt(place)))]));
}

function valueAt(polynomial: bigint[], place: bigint): bigint {
  return polynomial.reduceRight((value, coefficient) => (value * place + coefficient) % PRIME, 0n);
}

/** A uniform number below the prime: what is not below it is drawn anew. */
function below(draw: Draw): bigint {
  for (;;) {
    const content = draw(SHARE);
    content[0] &= 1;
    const found = whole(content);
    if (found < PRIME) return found;
  }
}

const whole = (content: Uint8Array): bigint => content.reduce((sum, byte) => (sum << 8n) | BigInt(byte), 0n);

const written = (value: bigint): Uint8Array =>
  Uint8Array.from({ length: SHARE }, (_, n) => Number((value >> BigInt(8 * (SHARE - 1 - n))) & 255n));
