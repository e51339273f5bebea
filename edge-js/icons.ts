/** The page's icon as PNG files and its web manifest, made at build time: an update's squares, blue and orange. */

import { crc32, deflateSync } from "node:zlib";

const BACK = [11, 92, 138];
const [BLUE, ORANGE, NONE] = [[160, 205, 240], [245, 165, 80], BACK];
/** Four by four squares; all within the circle that a platform may cut out. */
const SQUARES = [[BLUE, ORANGE, BLUE, NONE], [ORANGE, BLUE, NONE, BLUE], [BLUE, NONE, ORANGE, BLUE], [NONE, BLUE, BLUE, ORANGE]];
export const SIZES = [192, 512];

function chunk(kind: string, content: Uint8Array): Buffer {
  const [out, body] = [Buffer.alloc(12 + content.length), Buffer.concat([Buffer.from(kind, "latin1"), content])];
  out.writeUInt32BE(content.length);
  body.copy(out, 4);
  out.writeUInt32BE(crc32(body), 8 + content.length);
  return out;
}

/** A square PNG of `size` pixels. */
export function icon(size: number): Buffer {
  const [margin, rows] = [size / 4, Buffer.alloc(size * (1 + 3 * size))];
  for (let y = 0; y < size; y++) {
    for (let x = 0; x < size; x++) {
      const [column, row] = [x, y].map((at) => ((at - margin) / (size - 2 * margin)) * 4);
      const inside = column % 1 > 0.08 && row % 1 > 0.08; // a gap between squares
      const square = inside ? SQUARES[Math.floor(row)]?.[Math.floor(column)] : undefined;
      rows.set(square ?? BACK, y * (1 + 3 * size) + 1 + 3 * x);
    }
  }
  const head = Buffer.alloc(13);
  head.writeUInt32BE(size);
  head.writeUInt32BE(size, 4);
  head.set([8, 2, 0, 0, 0], 8); // 8 bits each of red, green and blue
  const parts = [chunk("IHDR", head), chunk("IDAT", deflateSync(rows)), chunk("IEND", new Uint8Array())];
  return Buffer.concat([Buffer.from("\x89PNG\r\n\x1a\n", "latin1"), ...parts]);
}

export const manifest = JSON.stringify({
  name: "edgefr: a recommender that learns in this tab", short_name: "edgefr", start_url: "/", scope: "/", id: "/",
  display: "standalone", background_color: "#15171a", theme_color: "#0b5c8a",
  icons: SIZES.map((size) => (
    { src: `/icon-${size}.png`, sizes: `${size}x${size}`, type: "image/png", purpose: "any maskable" }
  )),
});
