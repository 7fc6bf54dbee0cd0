// Runs a test program that cargo built for wasm32-wasip1: CARGO_TARGET_WASM32_WASIP1_RUNNER="node --no-warnings web/test/wasi.mjs".

import { readFile } from "node:fs/promises";
import { WASI } from "node:wasi";

const [program, ...rest] = process.argv.slice(2);
const wasi = new WASI({ version: "preview1", args: [program, ...rest], env: process.env, preopens: {}, returnOnExit: true });
const module = await WebAssembly.compile(await readFile(program));
process.exitCode = wasi.start(await WebAssembly.instantiate(module, wasi.getImportObject()));
