// Reads a file in memory, closes it, opens a FIFO, which gets the file's number, and reads that:
// node node-fifo.js sync|async, by which way to close. Such a read waits until somebody writes, and
// timers go on meanwhile. Prints how often the number was the same.
'use strict';
const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { promisify } = require('node:util');

const [open, read] = [promisify(fs.open), promisify(fs.read)];
const close = process.argv[2] === 'sync' ? async (fd) => fs.closeSync(fd) : promisify(fs.close);
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const dir = fs.mkdtempSync('/dev/shm/softring-node-');
const [file, fifo] = ['file', 'fifo'].map((name) => path.join(dir, name));

async function length(fd) {
  return (await read(fd, Buffer.alloc(64), 0, 64, null)).bytesRead;
}

function demand(holds, what) {
  if (!holds) throw new Error(what);
}

async function round() {
  const first = await open(file, 'r');
  for (let i = 0; i < 3; i++) demand((await length(first)) === 64, 'the file');
  await close(first);
  // Not by a thread of libuv's, which would take the number later.
  const second = fs.openSync(fifo, fs.constants.O_RDWR);
  let ticks = 0;
  const timer = setInterval(() => ticks++, 20);
  const got = length(second);
  await pause(200);
  demand(ticks > 2, `${ticks} ticks while a read waits`);
  fs.writeSync(second, 'late');
  demand((await got) === 4, 'the FIFO');
  clearInterval(timer);
  fs.closeSync(second);
  return first === second;
}

async function main() {
  fs.writeFileSync(file, 'x'.repeat(4096));
  execFileSync('mkfifo', [fifo]);
  let same = 0;
  for (let i = 0; i < 5; i++) same += await round();
  demand(same > 0, 'never the same number');
  console.log(`same number ${same} of 5`);
}

main().finally(() => fs.rmSync(dir, { recursive: true }));
