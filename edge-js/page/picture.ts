/** An update as a small picture: a square a number, blue below zero, orange above, by the root of its size. */

export interface Told {
  length: number;
  largest: number;
}

export function draw(canvas: HTMLCanvasElement, values: Float32Array): Told {
  const side = Math.max(1, Math.ceil(Math.sqrt(values.length)));
  const largest = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const length = Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));
  canvas.width = canvas.height = side;
  const pencil = canvas.getContext("2d")!;
  const image = pencil.createImageData(side, side);
  values.forEach((value, n) => {
    const [red, green, blue] = value < 0 ? [40, 110, 200] : [230, 120, 20];
    image.data.set([red, green, blue, largest ? Math.round(255 * Math.sqrt(Math.abs(value) / largest)) : 0], 4 * n);
  });
  pencil.putImageData(image, 0, 0);
  return { length, largest };
}
