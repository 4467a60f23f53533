// Writes files and reads them back by each means of node:fs that promises whole data, in parallel,
// and fails if a byte differs: node node-files.js COUNT. Where Node leaves counts to the program
// (read, write), this goes on after a short one.
'use strict';
const fs = require('node:fs/promises');
const { createReadStream, createWriteStream } = require('node:fs');
const { pipeline } = require('node:stream/promises');
const { Readable } = require('node:stream');

const COUNT = Number(process.argv[2]);
const JOBS = 8;

function content(i) {
  const data = Buffer.alloc(1 + ((i * 7919) % 90000));
  for (let at = 0; at < data.length; at++) data[at] = (at * 31 + i * 17 + (at >> 8)) & 255;
  return data;
}

function same(got, want, how) {
  if (!got.equals(want)) {
    let at = 0;
    while (at < Math.min(got.length, want.length) && got[at] === want[at]) at++;
    throw new Error(`${how}: other bytes from ${at} on (${got.length} of ${want.length})`);
  }
}

async function writeAll(file, data) {
  for (let at = 0; at < data.length; ) {
    at += (await file.write(data, at, data.length - at, at)).bytesWritten;
  }
}

async function readAll(file, size) {
  const data = Buffer.alloc(size);
  for (let at = 0; at < size; ) {
    const { bytesRead } = await file.read(data, at, size - at, at);
    if (bytesRead === 0) return data.subarray(0, at);
    at += bytesRead;
  }
  return data;
}

const writers = {
  writeFile: (name, data) => fs.writeFile(name, data),
  appendFile: async (name, data) => {
    await fs.writeFile(name, data.subarray(0, data.length >> 1));
    await fs.appendFile(name, data.subarray(data.length >> 1));
  },
  write: async (name, data) => {
    const file = await fs.open(name, 'w');
    await writeAll(file, data);
    await file.sync();
    await file.close();
  },
  createWriteStream: (name, data) => {
    const parts = [];
    for (let at = 0; at < data.length; at += 5000) parts.push(data.subarray(at, at + 5000));
    return pipeline(Readable.from(parts), createWriteStream(name));
  },
};

const readers = {
  readFile: (name) => fs.readFile(name),
  read: async (name, size) => {
    const file = await fs.open(name, 'r');
    const data = await readAll(file, size);
    await file.close();
    return data;
  },
  createReadStream: async (name) => {
    const parts = [];
    for await (const part of createReadStream(name)) parts.push(part);
    return Buffer.concat(parts);
  },
};

async function one(i) {
  const data = content(i);
  const all = Object.entries(writers);
  const [how, write] = all[i % all.length];
  const [from, to] = [`new${i}`, `old${i}`];
  await write(from, data);
  await fs.rename(from, to);
  const { size } = await fs.stat(to);
  if (size !== data.length) throw new Error(`${how}: ${size} of ${data.length} bytes`);
  for (const [reader, read] of Object.entries(readers)) {
    same(await read(to, size), data, `${how}, ${reader}`);
  }
  await fs.unlink(to);
}

async function main() {
  let next = 0;
  const job = async () => {
    for (let i; (i = next++) < COUNT; ) await one(i);
  };
  await Promise.all(Array.from({ length: JOBS }, job));
  console.log(`${COUNT} files`);
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
